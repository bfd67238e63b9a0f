"""The consumer that is asked for, and the answers of its server."""

from typing import Any

import orjson
import pytest

from jetraft.cluster.origins.asking import (
    UNREADABLE,
    consumer_name,
    create_body,
    create_subject,
    deliver_subject,
    read_answer,
)
from jetraft.store.model import message
from jetraft.store.model.config import ExternalStream, StreamSource, SubjectTransform

PLAIN = StreamSource(name="O")
FILTERED = StreamSource(name="O", filter_subject="a.*")
MAPPED = StreamSource(
    name="O", subject_transforms=(SubjectTransform(src="a", dest="b"), SubjectTransform(src="c", dest=""))
)
FROM_SEQ = StreamSource(name="O", opt_start_seq=7)
FROM_TIME = StreamSource(name="O", opt_start_time=0)
ELSEWHERE = StreamSource(name="O", external=ExternalStream(api="$JS.hub.API", deliver="in"))


def config(source: StreamSource, last_seq: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(create_body(source, "c", b"d", last_seq=last_seq, metadata={}))
    found: dict[str, Any] = body["config"]
    return found


def test_a_first_request_starts_where_the_configuration_says_and_a_later_one_behind_the_position() -> None:
    assert config(PLAIN)["deliver_policy"] == "all"
    assert config(FROM_SEQ)["opt_start_seq"] == 7
    assert config(FROM_TIME)["opt_start_time"] == "1970-01-01T00:00:00Z"
    for source in (PLAIN, FROM_SEQ, FROM_TIME):
        later = config(source, 12)
        assert (later["deliver_policy"], later["opt_start_seq"]) == ("by_start_sequence", 13)
        assert "opt_start_time" not in later


def test_filters_of_the_source_are_those_of_the_consumer() -> None:
    assert config(FILTERED)["filter_subject"] == "a.*"
    assert config(MAPPED)["filter_subjects"] == ["a", "c"]
    assert create_subject(FILTERED, "c") == b"$JS.API.CONSUMER.CREATE.O.c.a.*"


def test_an_origin_elsewhere_is_asked_and_delivers_under_its_prefixes() -> None:
    assert create_subject(ELSEWHERE, "c") == b"$JS.hub.API.CONSUMER.CREATE.O.c"
    assert deliver_subject(ELSEWHERE, "S", "t", letter="S") == b"in.S.t"
    assert deliver_subject(PLAIN, "S", "t", letter="M") == b"$JS.M.t"


def test_an_answer_says_where_the_consumer_starts_and_which_origin_it_is() -> None:
    body = orjson.dumps({"name": "c-x", "delivered": {"consumer_seq": 0, "stream_seq": 3}, "num_pending": 2})
    answer = read_answer(message.build({b"Nats-Stream-Identity": b"abc"}), body)
    assert (answer.consumer, answer.delivered_seq, answer.num_pending, answer.identity) == ("c-x", 3, 2, b"abc")
    assert answer.error is None


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"{}", b'{"name":"c"}', b'{"error":{}}', b'"x"'])
def test_an_answer_that_makes_no_sense_is_an_error(payload: bytes) -> None:
    error = read_answer(b"", payload).error
    assert error is not None
    assert error.description == UNREADABLE


def test_an_error_is_kept_as_the_server_said_it() -> None:
    error = read_answer(b"", b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}').error
    assert error is not None
    assert error.to_json_dict() == {"code": 404, "err_code": 10059, "description": "stream not found"}


@pytest.mark.parametrize(
    "change",
    [
        {"delivered": {"stream_seq": "3"}},
        {"delivered": {"stream_seq": -1}},
        {"delivered": {"stream_seq": 1 << 63}},
        {"delivered": {"stream_seq": True}},
        {"num_pending": None},
        {"num_pending": 1.5},
        {"name": 7},
        {"name": ""},
        {"name": "a b"},
        {"name": "a\r\nPING"},
        {"name": "a.>"},
        {"error": {"code": "x"}},
        {"error": {"code": 500, "err_code": []}},
        {"error": {"code": 500, "description": {}}},
    ],
)
def test_an_answer_that_no_server_gives_is_an_error_and_not_believed(change: dict[str, Any]) -> None:
    body = {"name": "c", "delivered": {"stream_seq": 3}, "num_pending": 2} | change
    error = read_answer(b"", orjson.dumps(body)).error
    assert error is not None
    assert error.description == UNREADABLE


def test_an_identity_that_is_no_word_is_an_error() -> None:
    body = orjson.dumps({"name": "c", "delivered": {"stream_seq": 3}, "num_pending": 2})
    error = read_answer(message.build({b"Nats-Stream-Identity": b"a b"}), body).error
    assert error is not None
    assert error.description == UNREADABLE


def test_the_name_of_a_consumer_is_the_same_for_each_leader_and_another_for_each_source() -> None:
    names = {
        consumer_name(account, stream, source, letter=letter)
        for account in ("A", "B")
        for stream in ("S", "T")
        for source in (PLAIN, FILTERED, ELSEWHERE)
        for letter in "MS"
    }
    assert len(names) == 24
    assert consumer_name("A", "S", PLAIN, letter="S") in names


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"ack_policy": "flow_control"}, True), ({"ack_policy": "none"}, False), ({}, False), (None, False)],
)
def test_an_answer_says_how_the_consumer_is_acknowledged(config: object, *, expected: bool) -> None:
    body = {"name": "c", "delivered": {"stream_seq": 0}, "num_pending": 0, "config": config}
    assert read_answer(b"", orjson.dumps(body)).acks_by_flow is expected


def test_a_configuration_that_is_none_is_no_answer() -> None:
    body = {"name": "c", "delivered": {"stream_seq": 0}, "num_pending": 0, "config": 7}
    error = read_answer(b"", orjson.dumps(body)).error
    assert error is not None
    assert error.description == UNREADABLE
