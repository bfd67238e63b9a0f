"""The same stream requests to nats-server and to our checks: equal errors, or equal configurations byte for byte."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from jetraft.store.model.config import StreamConfig, StreamConfigRequest
from jetraft.store.model.errors import ApiError
from jetraft.store.model.validation.validate import (
    check_stream_create_request,
    check_stream_update,
    check_stream_update_request,
    normalise_stream,
)
from jetraft.store.model.versioning import shown_stream
from tests.store.model.reference import Reference

pytestmark = pytest.mark.reference

NUMBERS = itertools.count()
MS = 1_000_000
S = 1_000_000_000
SRC = {"name": "O"}
DURABLE = {"name": "d", "deliver_subject": "x"}

CREATE_CASES: list[dict[str, Any]] = [
    {},
    {"subjects": ["a", "b.*", "c.>"]},
    {"description": "text", "metadata": {"z": "1", "a": "<&>é"}},
    {"metadata": {"_nats.ver": "x", "_nats.level": "9", "_nats.req.level": "9", "_nats.other": "kept"}},
    {"max_msgs": 0, "max_bytes": -5, "max_msg_size": -9, "max_consumers": -3, "max_msgs_per_subject": -2},
    {"max_msgs": 5, "max_bytes": 1000, "max_msg_size": 100, "max_consumers": 3, "max_msgs_per_subject": 2},
    {"retention": "interest", "discard": "new", "storage": "memory", "no_ack": True},
    {"retention": "workqueue", "compression": "s2"},
    {"max_age": 50 * MS},
    {"max_age": -1},
    {"max_age": 100 * MS},
    {"max_age": 60 * S},
    {"max_age": 600 * S},
    {"duplicate_window": 50 * MS},
    {"duplicate_window": -1},
    {"duplicate_window": 100 * MS},
    {"duplicate_window": 60 * S, "max_age": 30 * S},
    {"num_replicas": 0},
    {"num_replicas": 3},
    {"num_replicas": 6},
    {"num_replicas": -1},
    {"description": "d" * 4096},
    {"description": "d" * 4097},
    {"metadata": {"k": "v" * (128 * 1024)}},
    {"metadata": {"k": "v" * (128 * 1024 - 17)}},  # the required level counts: 15 bytes of key, 1 of value
    {"metadata": {"k": "v" * (128 * 1024 - 16)}},
    {"subjects": [""]},
    {"subjects": ["a b"]},
    {"subjects": ["a..b"]},
    {"subjects": [".a"]},
    {"subjects": ["a."]},
    {"subjects": ["a.>.b"]},
    {"subjects": ["a*"]},
    {"subjects": ["a>"]},
    {"subjects": ["a\tb"]},
    {"subjects": ["a\x00b"]},
    {"subjects": ["é.ü"]},
    {"subjects": ["a", "a"]},
    {"subjects": ["a.*", "a.b"]},
    {"subjects": ["a.b", "a.>"]},
    {"subjects": ["a.b", "a.*.c", "a.b.c.d"]},
    {"subjects": ["*"]},
    {"subjects": [">"]},
    {"subjects": [">"], "no_ack": True},
    {"subjects": [">"], "no_ack": True, "num_replicas": 3},
    {"subjects": ["*.>"]},
    {"subjects": ["$JS.>"]},
    {"subjects": ["$JS.API.INFO"]},
    {"subjects": ["$JS.EVENT.>"]},
    {"subjects": ["$JS.EVENT.ADVISORY.API"]},
    {"subjects": ["$JS.*.>"]},
    {"subjects": ["$JSC.x"]},
    {"subjects": ["$NRG.x"]},
    {"subjects": ["$SYS.>"]},
    {"subjects": ["$SYS.ACCOUNT.>"]},
    {"subjects": ["$SYS.REQ.x"]},
    {"subjects": ["$SYS.REQ.x"], "no_ack": True},
    {"subjects": ["$KV.b.>"], "allow_direct": True, "deny_delete": True, "allow_rollup_hdrs": True},
    {"sealed": True},
    {"mirror_direct": True},
    {"deny_purge": True, "allow_rollup_hdrs": True},
    {"deny_purge": True, "deny_delete": True},
    {"discard_new_per_subject": True},
    {"discard_new_per_subject": True, "discard": "new"},
    {"discard_new_per_subject": True, "discard": "new", "max_msgs_per_subject": 1},
    {"first_seq": 100},
    {"consumer_limits": {"inactive_threshold": 5 * S, "max_ack_pending": 10}},
    {"placement": {}},
    {"placement": {"preferred": "x"}},
    {"allow_msg_ttl": True},
    {"subject_delete_marker_ttl": 2 * S},
    {"subject_delete_marker_ttl": 2 * S, "deny_purge": True},
    {"subject_delete_marker_ttl": 999 * MS},
    {"subject_delete_marker_ttl": -1},
    {"subject_delete_marker_ttl": 2 * S, "pedantic": True},
    {"subject_delete_marker_ttl": 2 * S, "allow_msg_ttl": True, "pedantic": True},
    {"allow_msg_counter": True},
    {"allow_msg_counter": True, "discard": "new"},
    {"allow_msg_counter": True, "allow_msg_ttl": True},
    {"allow_msg_counter": True, "allow_msg_schedules": True},
    {"allow_msg_counter": True, "retention": "workqueue"},
    {"allow_atomic": True, "allow_batched": True},
    {"allow_msg_schedules": True},
    {"allow_msg_schedules": True, "discard": "new"},
    {"allow_msg_schedules": True, "pedantic": True},
    {"persist_mode": "async"},
    {"persist_mode": "async", "storage": "memory"},
    {"persist_mode": "async", "allow_atomic": True},
    {"persist_mode": "async", "num_replicas": 3},
    {"max_msgs": -5, "pedantic": True},
    {"max_bytes": -5, "pedantic": True},
    {"max_msg_size": -5, "pedantic": True},
    {"max_consumers": -5, "pedantic": True},
    {"max_msgs_per_subject": -5, "pedantic": True},
    {"max_age": 60 * S, "pedantic": True},
    {"max_age": 60 * S, "duplicate_window": 60 * S, "pedantic": True},
    {"mirror": SRC},
    {"mirror": {"name": ""}},
    {"mirror": {"name": "a.b"}},
    {"mirror": SRC, "first_seq": 2},
    {"mirror": SRC, "subjects": ["x"]},
    {"mirror": SRC, "sources": [SRC]},
    {"mirror": SRC, "allow_msg_counter": True},
    {"mirror": SRC, "allow_atomic": True},
    {"mirror": SRC, "allow_batched": True},
    {"mirror": SRC, "allow_msg_schedules": True},
    {"mirror": SRC, "subject_delete_marker_ttl": 2 * S},
    {"mirror": {**SRC, "consumer": DURABLE}},
    {"mirror": {**SRC, "consumer": {"name": "d"}}},
    {"mirror": {**SRC, "consumer": DURABLE, "opt_start_seq": 4}},
    {"mirror": {**SRC, "filter_subject": "x", "subject_transforms": [{"src": "a", "dest": "b"}]}},
    {"mirror": {**SRC, "subject_transforms": [{"src": "a.>", "dest": "b.>"}, {"src": "a.b", "dest": "c"}]}},
    {"mirror": {**SRC, "subject_transforms": [{"src": "a..b", "dest": "b"}]}},
    {"mirror": {**SRC, "external": {"api": "$JS.dom.API", "deliver": "x"}}},
    {"mirror": {**SRC, "external": {"api": "$JS.API", "deliver": ""}}},
    {"mirror": {**SRC, "external": {"api": "x.*", "deliver": ""}}},
    {"mirror": {**SRC, "external": {"api": "x", "deliver": "x.*"}}},
    {"sources": [SRC]},
    {"sources": [SRC, SRC]},
    {"sources": [SRC, {"name": "O", "filter_subject": "x"}], "subjects": ["y"]},
    {"sources": [{"name": ""}]},
    {"sources": [None]},
    {"sources": [SRC], "allow_msg_schedules": True},
    {"sources": [{**SRC, "filter_subject": "x", "subject_transforms": [{"src": "a", "dest": "b"}]}]},
    {"sources": [{**SRC, "subject_transforms": [{"src": "a.>", "dest": "b.>"}, {"src": "a.b", "dest": "c"}]}]},
    {"sources": [{**SRC, "consumer": DURABLE}]},
    {"sources": [{**SRC, "consumer": DURABLE}, {**SRC, "consumer": DURABLE, "external": {"api": "y", "deliver": ""}}]},
    {"sources": [{**SRC, "opt_start_time": "2024-01-02T03:04:05.000000006Z"}]},
    {"subject_transform": {"src": "a.>", "dest": "b.>"}},
    {"subject_transform": {"src": "a..b", "dest": "b"}},
    {"republish": {"dest": "b.>"}},
    {"republish": {"dest": "b.>"}, "pedantic": True},
    {"subjects": ["s"], "republish": {"src": ">", "dest": "s"}},
    {"republish": {"src": "a.>", "dest": "r.>", "headers_only": True}},
    {"republish": {"src": "a..b", "dest": "r"}},
    {
        "subjects": ["a.>"],
        "subject_transform": {"src": "a.>", "dest": "z.>"},
        "republish": {"src": ">", "dest": ">"},
    },
]

NAMES = ["", "a b", "a.b", "a*", "a>", "a/b", "a\\b", "a\tb", "a\x00b", "n" * 255, "n" * 256, "é", "a\u00a0b"]

UPDATE_CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"subjects": ["one", "other"]}),
    ({}, {"name": "T"}),
    ({}, {"storage": "memory"}),
    ({}, {"retention": "interest"}),
    ({}, {"retention": "workqueue"}),
    ({"retention": "workqueue"}, {"retention": "limits"}),
    ({}, {"sealed": True}),
    ({"max_age": 60 * S, "allow_rollup_hdrs": True}, {"sealed": True, "max_age": 60 * S}),
    ({"deny_delete": True}, {}),
    ({"deny_purge": True}, {}),
    ({}, {"mirror": SRC}),
    ({"mirror": SRC}, {"mirror": {"name": "P"}}),
    ({"mirror": SRC}, {"subjects": ["q"]}),
    ({}, {"discard_new_per_subject": True}),
    ({"allow_msg_ttl": True}, {}),
    ({}, {"allow_msg_ttl": True}),
    ({}, {"allow_msg_counter": True}),
    ({"allow_msg_schedules": True}, {}),
    ({"persist_mode": "async"}, {}),
    ({}, {"max_msgs": 10, "max_bytes": 100, "max_age": 60 * S, "discard": "new", "description": "x"}),
    ({}, {"max_age": 1}),
    ({}, {"num_replicas": 3}),
    ({"metadata": {"a": "1"}}, {"metadata": {"b": "2"}}),
    ({"first_seq": 10}, {"first_seq": 10, "max_msgs": 5}),
    ({}, {"consumer_limits": {"max_ack_pending": 10}}),
]


def outcome_of_reference(answer: dict[str, Any]) -> str:
    """The error, or the configuration with its field order, as one comparable text."""
    return json.dumps(answer["error"] if "error" in answer else answer["config"], ensure_ascii=False)


def create(body: bytes, name: str) -> StreamConfig:
    request = StreamConfigRequest.from_json(body)
    check_stream_create_request(name, request.config)
    return normalise_stream(request.config, clustered=False, pedantic=request.pedantic)


def update(old: StreamConfig, body: bytes, name: str) -> StreamConfig:
    request = StreamConfigRequest.from_json(body)
    check_stream_update_request(name, request.config)
    return check_stream_update(old, normalise_stream(request.config, clustered=False, pedantic=request.pedantic))


def shown(config: StreamConfig) -> str:
    return json.dumps(shown_stream(config).to_json_dict(), ensure_ascii=False)


@pytest.fixture
def name(reference: Reference) -> Iterator[str]:
    """A name of its own for each test: the reference removes a deleted stream's directory in the background."""
    fresh = f"S{next(NUMBERS)}"
    yield fresh
    reference.api(f"STREAM.DELETE.{fresh}")


@pytest.mark.parametrize("fields", CREATE_CASES, ids=lambda fields: json.dumps(fields)[:100])
def test_a_create_has_the_same_outcome(reference: Reference, name: str, fields: dict[str, Any]) -> None:
    body = json.dumps({"name": name, **fields}).encode()

    answer = reference.api(f"STREAM.CREATE.{name}", body)

    try:
        ours = shown(create(body, name))
    except ApiError as error:
        ours = json.dumps(error.to_json_dict(), ensure_ascii=False)
    assert ours == outcome_of_reference(answer)


@pytest.mark.parametrize("text", NAMES, ids=lambda text: ascii(text[:20]))
def test_a_name_has_the_same_outcome(reference: Reference, text: str) -> None:
    """The subject carries the name where it can; where it cannot, both sides see that the two differ."""
    token = text if text and not set(text) & set(" \t.*>\x00") else "S"
    body = json.dumps({"name": text, "subjects": ["names"]}).encode()

    answer = reference.api(f"STREAM.CREATE.{token}", body)
    reference.api(f"STREAM.DELETE.{token}")

    try:
        ours = shown(create(body, token))
    except ApiError as error:
        ours = json.dumps(error.to_json_dict(), ensure_ascii=False)
    assert ours == outcome_of_reference(answer)


@pytest.mark.parametrize("fields", UPDATE_CASES, ids=lambda fields: json.dumps(fields)[:100])
def test_an_update_has_the_same_outcome(
    reference: Reference, name: str, fields: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    before, after = (json.dumps({"name": name, **part}).encode() for part in fields)

    assert "error" not in reference.api(f"STREAM.CREATE.{name}", before)
    answer = reference.api(f"STREAM.UPDATE.{name}", after)

    try:
        ours = shown(update(create(before, name), after, name))
    except ApiError as error:
        ours = json.dumps(error.to_json_dict(), ensure_ascii=False)
    assert ours == outcome_of_reference(answer)
