"""The same consumer requests to nats-server and to our checks: equal errors, or equal configurations byte for byte."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from jetraft.store.model import errors
from jetraft.store.model.config import ConsumerAction, ConsumerConfig, CreateConsumerRequest, StreamConfig
from jetraft.store.model.errors import ApiError
from jetraft.store.model.validation.consumer_filters import rivals_in
from jetraft.store.model.validation.validate import (
    CreateForm,
    check_consumer_action,
    check_consumer_create_request,
    check_consumer_fits,
    normalise_consumer,
    normalise_stream,
)
from jetraft.store.model.versioning import shown_consumer
from tests.store.model.reference import Reference

pytestmark = pytest.mark.reference

NUMBERS = itertools.count()
STORE_ATTEMPTS = 20
MS = 1_000_000
S = 1_000_000_000
PULL = {"ack_policy": "explicit"}
PUSH = {"deliver_subject": "to"}

# Against a limits stream on `s.>`, named by the request subject.
CREATE_CASES: list[dict[str, Any]] = [
    {},
    PULL,
    PUSH,
    {"ack_policy": "all"},
    {**PULL, "durable_name": "c"},
    {**PULL, "durable_name": "d"},
    {**PULL, "name": "other"},
    {**PULL, "name": "a.b"},
    {**PULL, "description": "text", "metadata": {"b": "1", "_nats.ver": "x", "_nats.req.level": "7"}},
    {**PULL, "description": "d" * 4097},
    {**PULL, "metadata": {"k": "v" * (128 * 1024)}},
    {**PULL, "ack_wait": 5 * S, "max_deliver": 3, "max_ack_pending": 7, "max_waiting": 3},
    {**PULL, "ack_wait": -1},
    {**PULL, "max_deliver": -7, "max_ack_pending": -7, "max_waiting": -7, "max_batch": -7, "max_expires": -7},
    {**PULL, "max_bytes": -7, "idle_heartbeat": -7, "inactive_threshold": -7, "priority_timeout": -7},
    {**PULL, "max_batch": 10, "max_expires": 5 * S, "max_bytes": 1000},
    {**PULL, "max_expires": MS - 1},
    {**PULL, "max_expires": MS},
    {**PULL, "backoff": [S, 2 * S]},
    {**PULL, "backoff": [S, 2 * S], "max_deliver": 1},
    {**PULL, "backoff": [S, 2 * S], "max_deliver": 2},
    {**PULL, "backoff": [S, -S]},
    {**PULL, "backoff": [S], "ack_wait": 9 * S},
    {**PULL, "rate_limit_bps": 1},
    {**PULL, "flow_control": True},
    {**PULL, "idle_heartbeat": S},
    {**PULL, "direct": True},
    {**PULL, "headers_only": True, "replay_policy": "original", "mem_storage": True, "num_replicas": 1},
    {**PULL, "num_replicas": 3},
    {**PULL, "num_replicas": -1},
    {**PULL, "inactive_threshold": 60 * S},
    {**PULL, "durable_name": "c", "inactive_threshold": 60 * S},
    {**PULL, "filter_subject": "s.a"},
    {**PULL, "filter_subject": "other.subject"},
    {**PULL, "filter_subject": "s..a"},
    {**PULL, "filter_subject": "s.a", "filter_subjects": ["s.b"]},
    {**PULL, "filter_subjects": []},
    {**PULL, "filter_subjects": ["s.a"]},
    {**PULL, "filter_subjects": ["s.a", "s.b.*"]},
    {**PULL, "filter_subjects": ["s.a", "s.*"]},
    {**PULL, "filter_subjects": ["s.*.a", "s.b.*"]},
    {**PULL, "filter_subjects": ["s.a", "s.a"]},
    {**PULL, "filter_subjects": ["s.a", ""]},
    {**PULL, "filter_subjects": ["s.a", "s a"]},
    {**PULL, "deliver_policy": "last"},
    {**PULL, "deliver_policy": "new"},
    {**PULL, "deliver_policy": "undefined"},
    {**PULL, "deliver_policy": "last_per_subject"},
    {**PULL, "deliver_policy": "last_per_subject", "filter_subject": "s.*"},
    {**PULL, "deliver_policy": "last_per_subject", "filter_subjects": ["s.a", "s.b"]},
    {**PULL, "deliver_policy": "by_start_sequence"},
    {**PULL, "deliver_policy": "by_start_sequence", "opt_start_seq": 5},
    {**PULL, "deliver_policy": "by_start_time"},
    {**PULL, "deliver_policy": "by_start_time", "opt_start_time": "2024-01-02T03:04:05.120Z"},
    *[
        {**PULL, "deliver_policy": policy, **start}
        for policy in ("all", "last", "new", "last_per_subject", "by_start_sequence", "by_start_time")
        for start in (
            {"opt_start_seq": 5},
            {"opt_start_time": "2024-01-02T03:04:05Z"},
            {"opt_start_seq": 5, "opt_start_time": "2024-01-02T03:04:05Z"},
        )
        if (policy, len(start)) not in (("by_start_sequence", 1), ("by_start_time", 1))
    ],
    *[
        {**PULL, "sample_freq": text}
        for text in ("100", "30%", "+5", "007", "-1", "abc", "%", "1_0", " 5", "5%%", "9" * 25, '"', "٣")
    ],
    {**PUSH, "ack_policy": "explicit", "deliver_group": "g", "rate_limit_bps": 1000},
    {**PUSH, "deliver_subject": "to.*"},
    {**PUSH, "deliver_subject": "to..x"},
    {**PUSH, "deliver_subject": "s.x"},
    {**PUSH, "max_waiting": 1},
    {**PUSH, "max_ack_pending": 5},
    {**PUSH, "idle_heartbeat": 99 * MS},
    {**PUSH, "idle_heartbeat": 100 * MS},
    {**PUSH, "idle_heartbeat": 5 * S, "flow_control": True},
    {**PUSH, "flow_control": True},
    {**PUSH, "max_expires": 1},
    {**PUSH, "direct": True, "durable_name": "c"},
    {**PUSH, "ack_policy": "flow_control"},
    {**PUSH, "ack_policy": "flow_control", "ack_wait": S},
    {**PUSH, "ack_policy": "flow_control", "max_deliver": 3},
    {**PUSH, "ack_policy": "flow_control", "max_ack_pending": -1},
    {"ack_policy": "flow_control"},
    {**PULL, "pause_until": "2124-01-01T00:00:00Z"},
    {**PULL, "priority_groups": ["g"], "priority_policy": "overflow"},
    {**PULL, "priority_groups": ["g"], "priority_policy": "pinned_client"},
    {**PULL, "priority_groups": ["g"], "priority_policy": "pinned_client", "priority_timeout": 5 * S},
    {**PULL, "priority_groups": ["g"], "priority_policy": "prioritized"},
    {**PULL, "priority_groups": ["g"]},
    {**PULL, "priority_timeout": 5 * S},
    {**PULL, "priority_policy": "overflow"},
    {**PULL, "priority_groups": [""], "priority_policy": "overflow"},
    {**PULL, "priority_groups": ["a b"], "priority_policy": "overflow"},
    {**PULL, "priority_groups": ["g" * 17], "priority_policy": "overflow"},
    {**PUSH, "priority_groups": ["g"], "priority_policy": "overflow"},
]

PEDANTIC_CASES: list[dict[str, Any]] = [
    {**PULL, "max_deliver": -7},
    {**PULL, "max_waiting": -7},
    {**PULL, "max_ack_pending": -7},
    {**PULL, "max_batch": -7},
    {**PULL, "max_expires": -7},
    {**PULL, "max_bytes": -7},
    {**PULL, "idle_heartbeat": -7},
    {**PULL, "inactive_threshold": -7},
    {**PULL, "priority_timeout": -7},
    {**PULL, "backoff": [S]},
    {**PULL, "backoff": [S], "ack_wait": S},
    {**PUSH, "ack_policy": "flow_control"},
    {**PUSH, "ack_policy": "flow_control", "flow_control": True, "idle_heartbeat": 2 * S},
    PULL,
]

# A stream of its own, the consumers that exist, and the one that is asked for.
STREAM_CASES: list[tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = [
    ({"consumer_limits": {"max_ack_pending": 5}}, [], PULL),
    ({"consumer_limits": {"max_ack_pending": 5}}, [], {**PULL, "max_ack_pending": 6}),
    ({"consumer_limits": {"inactive_threshold": 5 * S}}, [], {**PULL, "durable_name": "c"}),
    ({"consumer_limits": {"inactive_threshold": 90 * S}}, [], {**PULL, "inactive_threshold": 91 * S}),
    ({"max_consumers": 1}, [PULL], PULL),
    ({"retention": "workqueue"}, [], PULL),
    ({"retention": "workqueue"}, [], {"ack_policy": "none"}),
    ({"retention": "workqueue"}, [], {"ack_policy": "all"}),
    ({"retention": "workqueue"}, [], {**PUSH, "ack_policy": "none"}),
    ({"retention": "workqueue"}, [], {**PULL, "deliver_policy": "new"}),
    ({"retention": "workqueue"}, [PULL], PULL),
    ({"retention": "workqueue"}, [PULL], {**PULL, "filter_subject": "s.a"}),
    ({"retention": "workqueue"}, [{**PULL, "filter_subject": "s.a"}], PULL),
    ({"retention": "workqueue"}, [{**PULL, "filter_subject": "s.a"}], {**PULL, "filter_subject": "s.b"}),
    ({"retention": "workqueue"}, [{**PULL, "filter_subject": "s.*.c"}], {**PULL, "filter_subject": "s.b.*"}),
    ({"retention": "workqueue"}, [{**PULL, "filter_subject": "s.>"}], {**PULL, "filter_subjects": ["x", "s.b"]}),
    ({"retention": "interest"}, [PULL], PULL),
    ({"retention": "interest"}, [], {**PULL, "num_replicas": 1}),
]

UPDATE_CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (PULL, {**PULL, **change})
    for change in (
        {"deliver_policy": "new"},
        {"mem_storage": True},
        {"ack_policy": "all"},
        {"replay_policy": "original"},
        {"max_waiting": 9},
        {"deliver_subject": "to"},
        {"opt_start_seq": 2, "deliver_policy": "by_start_sequence"},
        {"ack_wait": 9 * S, "max_deliver": 9, "max_ack_pending": 9, "description": "x", "headers_only": True},
        {"filter_subject": "s.a"},
        {"filter_subjects": ["s.a", "s.b"]},
        {"backoff": [S, S], "max_deliver": 1},
        {"backoff": [S, S], "max_deliver": 4},
        {"inactive_threshold": 60 * S, "sample_freq": "5"},
        {"metadata": {"a": "1"}},
    )
] + [
    (PUSH, {"deliver_subject": ""}),
    (PUSH, {"deliver_subject": "elsewhere"}),
    (PUSH, {**PUSH, "idle_heartbeat": 5 * S}),
    ({**PUSH, "idle_heartbeat": S}, {**PUSH, "idle_heartbeat": S, "flow_control": True}),
]


@pytest.fixture
def stream(reference: Reference) -> Iterator[str]:
    """A name of its own for each test's stream."""
    name = f"C{next(NUMBERS)}"
    yield name
    reference.api(f"STREAM.DELETE.{name}")


def make_stream(reference: Reference, name: str, fields: dict[str, Any]) -> StreamConfig:
    """A stream of the reference; on a busy disk it says now and then that it cannot create a store, and then can."""
    body = json.dumps({"name": name, "subjects": ["s.>"], **fields}).encode()
    for _ in range(STORE_ATTEMPTS):
        answer = reference.api(f"STREAM.CREATE.{name}", body)
        if answer.get("error", {}).get("err_code") != errors.STREAM_CREATE_FAILED.err_code:
            break
    assert "error" not in answer
    return normalise_stream(StreamConfig.from_json(body), clustered=False)


def outcome_of_reference(answer: dict[str, Any]) -> str:
    return json.dumps(answer["error"] if "error" in answer else answer["config"], ensure_ascii=False)


def outcome_of_ours(
    body: bytes, stream: StreamConfig, *, name: str = "c", existing: dict[str, ConsumerConfig] | None = None
) -> str:
    """What a server made of our checks would answer to CONSUMER.CREATE.<stream>.<name>."""
    try:
        config = create(body, stream, name=name, existing=existing)
    except ApiError as error:
        return json.dumps(error.to_json_dict(), ensure_ascii=False)
    return json.dumps(shown_consumer(config).to_json_dict(), ensure_ascii=False)


def create(
    body: bytes, stream: StreamConfig, *, name: str = "c", existing: dict[str, ConsumerConfig] | None = None
) -> ConsumerConfig:
    known = existing or {}
    request = CreateConsumerRequest.from_json(body)
    named = check_consumer_create_request(request, form=CreateForm.NAMED, stream=stream.name, consumer=name)
    config = normalise_consumer(named, stream, clustered=False, pedantic=request.pedantic)
    check_consumer_fits(name, config, stream, known, filters=rivals_in(known))
    check_consumer_action(known.get(name), config, request.action)
    return config


def request_of(stream: str, config: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"stream_name": stream, "config": config, **more}).encode()


@pytest.mark.parametrize("fields", CREATE_CASES, ids=lambda fields: json.dumps(fields)[:100])
def test_a_create_has_the_same_outcome(reference: Reference, stream: str, fields: dict[str, Any]) -> None:
    config = make_stream(reference, stream, {})
    body = request_of(stream, fields)

    answer = reference.api(f"CONSUMER.CREATE.{stream}.c", body)

    assert outcome_of_ours(body, config) == outcome_of_reference(answer)


@pytest.mark.parametrize("fields", PEDANTIC_CASES, ids=lambda fields: json.dumps(fields)[:100])
def test_a_pedantic_create_has_the_same_outcome(reference: Reference, stream: str, fields: dict[str, Any]) -> None:
    config = make_stream(reference, stream, {})
    body = request_of(stream, fields, pedantic=True)

    answer = reference.api(f"CONSUMER.CREATE.{stream}.c", body)

    assert outcome_of_ours(body, config) == outcome_of_reference(answer)


@pytest.mark.parametrize("case", STREAM_CASES, ids=lambda case: json.dumps(case)[:100])
def test_a_create_beside_others_has_the_same_outcome(
    reference: Reference, stream: str, case: tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]
) -> None:
    stream_fields, others, fields = case
    config = make_stream(reference, stream, stream_fields)
    existing: dict[str, ConsumerConfig] = {}
    for index, other in enumerate(others):
        name = f"other{index}"
        body = request_of(stream, other)
        assert "error" not in reference.api(f"CONSUMER.CREATE.{stream}.{name}", body)
        existing[name] = create(body, config, name=name, existing=existing)
    body = request_of(stream, fields)

    answer = reference.api(f"CONSUMER.CREATE.{stream}.c", body)

    assert outcome_of_ours(body, config, existing=existing) == outcome_of_reference(answer)


@pytest.mark.parametrize("fields", UPDATE_CASES, ids=lambda fields: json.dumps(fields)[:100])
@pytest.mark.parametrize("action", ["", "update", "create"])
def test_an_update_has_the_same_outcome(
    reference: Reference, stream: str, fields: tuple[dict[str, Any], dict[str, Any]], action: str
) -> None:
    config = make_stream(reference, stream, {})
    before = request_of(stream, fields[0])
    after = request_of(stream, fields[1], action=action)
    assert "error" not in reference.api(f"CONSUMER.CREATE.{stream}.c", before)
    existing = {"c": create(before, config)}

    answer = reference.api(f"CONSUMER.CREATE.{stream}.c", after)

    assert outcome_of_ours(after, config, existing=existing) == outcome_of_reference(answer)


@pytest.mark.parametrize(
    ("subject", "form", "consumer", "filter_subject", "fields"),
    [
        ("CONSUMER.CREATE.{}", CreateForm.EPHEMERAL, "", "", PULL),
        ("CONSUMER.CREATE.{}", CreateForm.EPHEMERAL, "", "", {**PULL, "name": "n"}),
        ("CONSUMER.CREATE.{}", CreateForm.EPHEMERAL, "", "", {**PULL, "name": "a.b"}),
        ("CONSUMER.CREATE.{}", CreateForm.EPHEMERAL, "", "", {**PULL, "durable_name": "d"}),
        ("CONSUMER.CREATE.{}.c.s.a", CreateForm.NAMED, "c", "s.a", PULL),
        ("CONSUMER.CREATE.{}.c.s.a", CreateForm.NAMED, "c", "s.a", {**PULL, "filter_subject": "s.a"}),
        ("CONSUMER.CREATE.{}.c.s.a", CreateForm.NAMED, "c", "s.a", {**PULL, "filter_subject": "s.b"}),
        ("CONSUMER.CREATE.{}.c.s.a", CreateForm.NAMED, "c", "s.a", {**PULL, "filter_subjects": ["s.a"]}),
        ("CONSUMER.CREATE.{}.a/b", CreateForm.NAMED, "a/b", "", PULL),
        ("CONSUMER.CREATE.{}.a\\b", CreateForm.NAMED, "a\\b", "", PULL),
        ("CONSUMER.DURABLE.CREATE.{}.d", CreateForm.DURABLE, "d", "", PULL),
        ("CONSUMER.DURABLE.CREATE.{}.d", CreateForm.DURABLE, "d", "", {**PULL, "name": "d"}),
        ("CONSUMER.DURABLE.CREATE.{}.d", CreateForm.DURABLE, "d", "", {**PULL, "durable_name": "d"}),
        ("CONSUMER.DURABLE.CREATE.{}.d", CreateForm.DURABLE, "d", "", {**PULL, "durable_name": "e"}),
        ("CONSUMER.DURABLE.CREATE.{}.d", CreateForm.DURABLE, "d", "", {**PULL, "durable_name": "d", "name": "e"}),
        ("CONSUMER.DURABLE.CREATE.{}." + "d" * 256, CreateForm.DURABLE, "d" * 256, "", {"durable_name": "d" * 256}),
    ],
)
def test_a_create_subject_has_the_same_outcome(  # noqa: PLR0913, PLR0917  (the columns of a table)
    reference: Reference,
    stream: str,
    subject: str,
    form: CreateForm,
    consumer: str,
    filter_subject: str,
    fields: dict[str, Any],
) -> None:
    config = make_stream(reference, stream, {})
    body = request_of(stream, fields)

    answer = reference.api(subject.format(stream), body)

    try:
        named = check_consumer_create_request(
            CreateConsumerRequest.from_json(body),
            form=form,
            stream=stream,
            consumer=consumer,
            filter_subject=filter_subject,
        )
        shown = shown_consumer(normalise_consumer(named, config)).to_json_dict()
        ours = json.dumps(shown, ensure_ascii=False)
    except ApiError as error:
        ours = json.dumps(error.to_json_dict(), ensure_ascii=False)
    assert ours == outcome_of_reference(answer)


@pytest.mark.parametrize("action", list(ConsumerAction))
def test_an_action_on_an_absent_consumer_has_the_same_outcome(
    reference: Reference, stream: str, action: ConsumerAction
) -> None:
    config = make_stream(reference, stream, {})
    body = request_of(stream, PULL, action=action.value)

    answer = reference.api(f"CONSUMER.CREATE.{stream}.c", body)

    assert outcome_of_ours(body, config) == outcome_of_reference(answer)
