"""Malformed and unusual request bodies: nats-server's words against ours, and its answers against our views."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from jetraft.store.model.config import CreateConsumerRequest, StreamConfigRequest
from jetraft.store.model.encoding.jsoncodec import WireObject, encode
from jetraft.store.model.errors import ApiError
from jetraft.store.model.requests import (
    JSApiConsumersRequest,
    JSApiMsgDeleteRequest,
    JSApiMsgGetRequest,
    JSApiStreamInfoRequest,
    JSApiStreamListRequest,
    JSApiStreamNamesRequest,
    JSApiStreamPurgeRequest,
)
from jetraft.store.model.responses import ResponseType, error_answer
from jetraft.store.model.state import AccountInfo, ConsumerInfo, StoredMessageView, StreamInfo
from tests.store.model.reference import Reference

pytestmark = pytest.mark.reference

NUMBERS = itertools.count()
GO_DEPTH_MAX = 10_000

BROKEN_BODIES: list[bytes] = [
    b"[]",
    b'"x"',
    b"1",
    b"-0.5e+3",
    b"true",
    b"01",
    b'{"name":"A"',
    b'{"name":"A","x"',
    b'{"name":"A",',
    b'{"name":',
    b'{"name"',
    b"{",
    b"[",
    b'"',
    b'"\\',
    b'"\\u00',
    b"tru",
    b"-",
    b"1.",
    b"1e",
    b'{"name":A}',
    b'{"name":"A"} x',
    b'{"name":"A"},',
    b'{"name":"A",}',
    b'{"name":"A" "x":1}',
    b'{"name" "A"}',
    b'{"subjects":["a" "b"]}',
    b'{"subjects":["a",]}',
    b'{"subjects":[,]}',
    b"{name:1}",
    b"{1:1}",
    b"trux",
    b"falsy",
    b"nul!",
    b"-a",
    b"1.a",
    b"1ea",
    b"+1",
    b".5",
    b"NaN",
    b"Infinity",
    b'"\\x"',
    b'{"name":"\\x"}',
    b'{"name":"\\u12g4"}',
    b'{"name":"A\n"}',
    b'{"name":"A\x01"}',
    b"\x00",
    b"\x7f",
    b"'",
    b"\\",
    b"{'name':1}",
    "é".encode(),
    '{"name":"é",é}'.encode(),
    b"[" * (GO_DEPTH_MAX + 1),
    b'{"a":' * (GO_DEPTH_MAX + 1),
    b'{"name":' + b"[" * 250 + b"]" * 250 + b"}",
    b'{"x":' * 200 + b"1" + b"}" * 200,
    b'{"foo":1}',
    b'{"":1}',
    b'{"foo":1,"max_msgs":"x"}',
    b'{"max_msgs":"x","foo":1}',
    b'{"max_msgs":"x","retention":"foo"}',
    b'{"foo":1',
    '{"é\\"<":1}'.encode(),
    b'{"a\\u0000b\\u2028":1}',
    b'{"name":1}',
    b'{"name":true}',
    b'{"name":{}}',
    b'{"max_msgs":"x"}',
    b'{"max_msgs":1.5}',
    b'{"max_msgs":1e3}',
    b'{"max_msgs":1.0}',
    b'{"max_msgs":[]}',
    b'{"max_msgs":9223372036854775808}',
    b'{"max_msgs":-9223372036854775809}',
    b'{"max_msgs":' + b"9" * 400 + b"}",
    b'{"max_msg_size":2147483648}',
    b'{"max_consumers":"x"}',
    b'{"max_age":"1s"}',
    b'{"first_seq":-1}',
    b'{"first_seq":18446744073709551616}',
    b'{"sealed":"x"}',
    b'{"sealed":1}',
    b'{"pedantic":"x"}',
    b'{"subjects":"x"}',
    b'{"subjects":{}}',
    b'{"subjects":[1]}',
    b'{"subjects":["a",[]]}',
    b'{"metadata":[]}',
    b'{"metadata":{"a":1}}',
    b'{"placement":[]}',
    b'{"placement":{"cluster":1}}',
    b'{"placement":{"foo":1}}',
    b'{"placement":{"tags":[1]}}',
    b'{"retention":"foo"}',
    b'{"retention":""}',
    b'{"retention":null}',
    b'{"retention":1}',
    b'{"retention":{"a":[1,true,null]}}',
    b'{"discard":"older"}',
    b'{"persist_mode":"Async"}',
    b'{"storage":"disk"}',
    b'{"compression":"zip"}',
    b'{"compression":null}',
    b'{"persist_mode":"x"}',
    b'{"consumer_limits":{"max_ack_pending":"x"}}',
    b'{"consumer_limits":[]}',
    b'{"sources":{}}',
    b'{"sources":[1]}',
    b'{"sources":[{"name":1}]}',
    b'{"sources":[{"subject_transforms":[{"src":1}]}]}',
    b'{"mirror":"x"}',
    b'{"mirror":{"opt_start_time":1}}',
    b'{"mirror":{"external":{"api":1}}}',
    b'{"mirror":{"consumer":{"x":1}}}',
]

BAD_TIMES = [
    "",
    "x",
    "2020",
    "20200101",
    "2020-13-01T00:00:00Z",
    "2020-00-01T00:00:00Z",
    "2020-01-32T00:00:00Z",
    "2020-02-30T00:00:00Z",
    "2020-01-01 00:00:00Z",
    "2020-01-01t00:00:00z",
    "2020-01-01T24:00:00Z",
    "2020-01-01T00:60:00Z",
    "2020-01-01T00:00:60Z",
    "2020-01-01T00:00:00",
    "2020-01-01T00:00:00.Z",
    "2020-01-01T00:00:00+25:00",
    "2020-01-01T00:00:00+01:61",
    "2020-01-01T00:00:00Zx",
    "2020-01-01T00:00:00+0100",
    "+020-01-01T00:00:00Z",
]

# Bodies that decode although they look odd, and the fields they give.
ODD_BODIES: list[bytes] = [
    b'{"NAME":"%s","Subjects":["odd"]}',
    b'{"name":"X","name":"%s","subjects":["odd"]}',
    b'{"name":"%s"}{"subjects":["odd"]}',
    b'  {"name":"%s","subjects":["odd"]}\r\n\t ',
    b'{"name":"%s","subjects":["odd"],"max_msgs":null,"metadata":null,"placement":null}',
    b'{"name":"%s","subjects":["gone"],"subjects":["odd"]}',
    b'{"name":"%s","subjects":["odd"],"metadata":{"a":"1"},"metadata":{"b":"2"}}',
    b'{"name":"%s","subjects":["odd"],"consumer_limits":{"max_ack_pending":1},"consumer_limits":{}}',
    b'{"name":"%s","subjects":["odd"],"description":"\\ud83d\\ude00 \\ud800 \\u00e9"}',
    b'{"name":"%s","subjects":["odd"],"description":"\xff\xc3"}',
    b'{"name":"%s","subjects":["odd"],"discard":"NEW","persist_mode":""}',
    b'null{"name":"%s","subjects":["odd"]}',
]


@pytest.fixture
def name(reference: Reference) -> Iterator[str]:
    fresh = f"J{next(NUMBERS)}"
    yield fresh
    reference.api(f"STREAM.DELETE.{fresh}")


def error_of(cls: type[WireObject], body: bytes) -> dict[str, object] | None:
    try:
        cls.from_json(body)
    except ApiError as error:
        return error.to_json_dict()
    return None


@pytest.mark.parametrize("body", BROKEN_BODIES, ids=lambda body: ascii(body[:50].decode(errors="replace")))
def test_a_broken_body_has_the_same_error(reference: Reference, body: bytes) -> None:
    answer = reference.api("STREAM.CREATE.none", body)

    assert error_of(StreamConfigRequest, body) == answer["error"]


@pytest.mark.parametrize("text", BAD_TIMES)
def test_a_bad_time_has_the_same_error(reference: Reference, text: str) -> None:
    body = json.dumps({"config": {"opt_start_time": text}}).encode()

    answer = reference.api("CONSUMER.CREATE.none.none", body)

    assert error_of(CreateConsumerRequest, body) == answer["error"]


@pytest.mark.parametrize("template", ODD_BODIES, ids=lambda template: ascii(template[:50].decode(errors="replace")))
def test_an_odd_body_gives_the_same_fields(reference: Reference, name: str, template: bytes) -> None:
    body = template.replace(b"%s", name.encode())

    answer = reference.api(f"STREAM.CREATE.{name}", body)

    config = StreamConfigRequest.from_json(body).config
    theirs = {key: answer["config"].get(key, "") for key in ("name", "description")}
    assert theirs == {"name": config.name, "description": config.description}
    assert answer["config"]["subjects"] == list(config.subjects)
    assert {key: text for key, text in answer["config"]["metadata"].items() if key[0] != "_"} == config.metadata
    assert answer["config"]["consumer_limits"] == config.consumer_limits.to_json_dict()


@pytest.mark.parametrize(
    ("subject", "kind", "cls"),
    [
        ("STREAM.INFO.{}", ResponseType.STREAM_INFO, JSApiStreamInfoRequest),
        ("STREAM.NAMES", ResponseType.STREAM_NAMES, JSApiStreamNamesRequest),
        ("STREAM.LIST", ResponseType.STREAM_LIST, JSApiStreamListRequest),
        ("STREAM.PURGE.{}", ResponseType.STREAM_PURGE, JSApiStreamPurgeRequest),
        ("STREAM.MSG.GET.{}", ResponseType.STREAM_MSG_GET, JSApiMsgGetRequest),
        ("STREAM.MSG.DELETE.{}", ResponseType.STREAM_MSG_DELETE, JSApiMsgDeleteRequest),
        ("CONSUMER.NAMES.{}", ResponseType.CONSUMER_NAMES, JSApiConsumersRequest),
        ("CONSUMER.LIST.{}", ResponseType.CONSUMER_LIST, JSApiConsumersRequest),
    ],
)
def test_an_error_answer_has_the_same_bytes(
    reference: Reference, name: str, subject: str, kind: ResponseType, cls: type[WireObject]
) -> None:
    reference.api(f"STREAM.CREATE.{name}", {"name": name})
    body = b'{"seq":"x","offset":"x"}' if "MSG" in subject or "PURGE" in subject else b'{"offset":"x"}'

    answer = reference.ask("$JS.API." + subject.format(name), body)

    with pytest.raises(ApiError) as caught:
        cls.from_json(body)
    assert error_answer(kind, caught.value) == answer


def test_views_reproduce_real_answers_byte_by_byte(reference: Reference, name: str) -> None:
    """Each answer is read into its view and written again: nothing may be lost, renamed or reordered."""
    reference.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "metadata": {"z": "1", "a": "2"}})
    for number in range(4):
        reference.ask(f"{name}.{number}", b"x")
    reference.api(f"STREAM.MSG.DELETE.{name}", {"seq": 2})
    consumer = {"durable_name": "c", "ack_policy": "explicit", "opt_start_time": "2024-01-02T03:04:05.1Z"}
    consumer["deliver_policy"] = "by_start_time"
    reference.api(f"CONSUMER.CREATE.{name}.c", {"stream_name": name, "config": consumer})
    reference.ask(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", b"1")
    info_request = {"deleted_details": True, "subjects_filter": ">"}

    answers: list[tuple[type[WireObject], dict[str, Any]]] = [
        (AccountInfo, reference.api("INFO")),
        (StreamInfo, reference.api(f"STREAM.INFO.{name}", info_request)),
        (ConsumerInfo, reference.api(f"CONSUMER.INFO.{name}.c")),
        (StoredMessageView, reference.api(f"STREAM.MSG.GET.{name}", {"seq": 1})["message"]),
    ]

    for cls, answer in answers:
        fields = {key: value for key, value in answer.items() if key not in {"type", "total", "offset", "limit"}}
        plain = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        assert encode(cls.from_json(plain)) == plain
