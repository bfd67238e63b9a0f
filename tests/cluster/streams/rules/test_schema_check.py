"""`jetraft.schema` on one node in memory: every way in which a client's message enters a stream is judged, once."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any

import attrs
import orjson
import pytest
from google.protobuf import descriptor_pb2

from jetraft.cluster.streams.rules.schema_check import SchemaCheck
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model import message
from jetraft.store.model.config import AckPolicy
from jetraft.store.model.schemas import compiled
from tests.cluster.lab import Node, Sent, add_consumer, start_stream, stream_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jetraft.cluster.streams.replica.replica import StreamReplica

S = 10**9
NUMBER = {"jetraft.schema_type": "json", "jetraft.schema": '{"properties":{"n":{"type":"integer"}}}'}
GOOD, BAD = b'{"n":1}', b'{"n":"one"}'
MISMATCH = {"code": 400, "err_code": 19001, "description": "message does not fit the schema: /n: expected integer"}


@pytest.fixture(autouse=True)
def _compiled_anew() -> Iterator[None]:
    yield
    compiled._compiled.cache_clear()


class Stream:
    """A stream with a schema, and a publisher that waits for each answer."""

    def __init__(self, log: MemLog | None = None, metadata: dict[str, str] | None = None, **fields: Any) -> None:
        self.node, self.log = Node(), log or MemLog()
        self.replica: StreamReplica = start_stream(
            self.node, self.log, metadata=NUMBER if metadata is None else metadata, **fields
        )

    def publish(self, payload: bytes, subject: bytes = b"s.a", reply: bytes = b"_INBOX.p", **headers: str) -> Any:
        """`Nats_Msg_Id="1"` is a header. Returns the last answer, None without one."""
        named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        self.node.publish(subject, payload, hdr=message.build(named) if named else b"", reply=reply)
        answers = [sent.payload for sent in self.node.turn() if sent.to == reply]
        return orjson.loads(answers[-1]) if answers and answers[-1] else None

    def update(self, **fields: Any) -> None:
        leadership = self.replica._leadership
        assert leadership is not None
        leadership.config_changed(attrs.evolve(leadership._config, **fields))

    def stored(self, pattern: bytes = b"s.>") -> list[bytes]:
        store = self.replica.machine.store
        return [found.payload for found in store.load_many(store.next_matches((pattern,), 1, 1000))]


def plain(payload: bytes) -> tuple[Any, Stream]:
    stream = Stream()
    return stream.publish(payload), stream


def with_headers(payload: bytes) -> tuple[Any, Stream]:
    stream = Stream()
    return stream.publish(payload, Nats_Msg_Id="1", Nats_Expected_Last_Sequence="0"), stream


def atomic(payload: bytes) -> tuple[Any, Stream]:
    stream = Stream(allow_atomic=True)
    return stream.publish(payload, Nats_Batch_Id="b", Nats_Batch_Sequence="1", Nats_Batch_Commit="1"), stream


def fast(payload: bytes) -> tuple[Any, Stream]:
    stream = Stream(allow_batched=True)
    answer = stream.publish(payload, reply=b"_INBOX.x.b.10.fail.1.2.$FI")
    return answer, stream


def delayed(payload: bytes) -> tuple[Any, Stream]:
    stream = Stream(metadata=NUMBER | {"jetraft.delayed": "true"})
    answer = stream.publish(payload, Jetraft_Delay="1s")
    stream.node.sleep(2 * S)
    return answer, stream


def schedule(payload: bytes) -> tuple[Any, Stream]:
    stream = Stream(allow_msg_schedules=True, allow_rollup_hdrs=True)
    headers: dict[str, Any] = {"Nats_Schedule": "@every 10s", "Nats_Schedule_Target": "s.target"}
    return stream.publish(payload, **headers), stream


def with_ack(payload: bytes) -> tuple[Any, Stream]:
    stream = Stream()
    keys = {"jetraft.strict_acks": "true", "jetraft.ack_publish": "s.done"}
    add_consumer(
        stream.node,
        stream.replica,
        durable_name="c",
        filter_subject="s.todo",
        ack_policy=AckPolicy.EXPLICIT,
        metadata=keys,
    )
    stream.publish(GOOD, b"s.todo")
    stream.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"no_wait":true}', reply=b"_INBOX.r")
    (task,) = [sent for sent in stream.node.turn() if sent.reply.startswith(b"$JS.ACK")]
    answer = stream.publish(payload, task.reply, Jetraft_Publish="s.done")
    stream.replica.machine.store.purge(subject=b"s.todo")
    return answer, stream


PATHS: list[Callable[[bytes], tuple[Any, Stream]]] = [plain, with_headers, atomic, fast, delayed, schedule, with_ack]


@pytest.mark.parametrize("path", PATHS)
def test_each_way_of_publishing_is_judged(path: Callable[[bytes], tuple[Any, Stream]]) -> None:
    answer, stream = path(GOOD)
    assert "error" not in answer
    assert stream.stored() == [GOOD]
    answer, stream = path(BAD)
    assert answer["error"] == MISMATCH
    assert stream.stored() == []
    assert stream.replica.machine.messages == 0 or path is with_ack


@pytest.mark.parametrize("path", PATHS)
def test_without_the_check_each_way_is_open(
    path: Callable[[bytes], tuple[Any, Stream]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the claim above rests on: nothing else refuses these messages."""
    monkeypatch.setattr(SchemaCheck, "check", lambda *_: None)
    answer, stream = path(BAD)
    assert "error" not in answer
    assert stream.stored() == [BAD]


def test_an_ack_whose_message_does_not_fit_acknowledges_nothing() -> None:
    _, stream = with_ack(BAD)
    assert len(stream.replica.machine.consumers["c"].pending) == 1


def test_no_run_of_plain_messages_passes_by() -> None:
    stream = Stream()
    for payload in (GOOD, BAD, GOOD, BAD, BAD, GOOD):
        stream.node.publish(b"s.a", payload, reply=b"_INBOX.p")
    errors = [b"19001" in sent.payload for sent in stream.node.turn() if sent.to == b"_INBOX.p"]
    assert sorted(errors) == [False] * 3 + [True] * 3
    assert stream.stored() == [GOOD] * 3


def test_a_batch_is_judged_message_by_message_as_it_comes() -> None:
    stream = Stream(allow_atomic=True)
    assert stream.publish(GOOD, Nats_Batch_Id="b", Nats_Batch_Sequence="1") is None
    answer = stream.publish(BAD, Nats_Batch_Id="b", Nats_Batch_Sequence="2")
    assert answer["error"] == MISMATCH
    assert stream.publish(GOOD, Nats_Batch_Id="b", Nats_Batch_Sequence="2") is None, "in the place of the bad one"
    for number in range(3, 9):  # in one turn, as runs would be staged
        hdr = message.build({b"Nats-Batch-Id": b"b", b"Nats-Batch-Sequence": b"%d" % number})
        stream.node.publish(b"s.a", BAD if number == 8 else GOOD, hdr=hdr)
    stream.node.turn()
    answer = stream.publish(b"", Nats_Batch_Id="b", Nats_Batch_Sequence="8", Nats_Batch_Commit="eob")
    assert (answer["batch"], answer["count"]) == ("b", 7), "what ends the batch is no message"
    assert stream.stored() == [GOOD] * 7


def test_a_batch_ends_when_the_schema_changes_under_it() -> None:
    stream = Stream(allow_atomic=True)
    stream.publish(GOOD, Nats_Batch_Id="b", Nats_Batch_Sequence="1")
    stream.update(description="the schema is the same")
    assert stream.publish(GOOD, Nats_Batch_Id="b", Nats_Batch_Sequence="2") is None
    stream.update(metadata=NUMBER | {"jetraft.schema": '{"type":"string"}'})
    last: dict[str, Any] = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "3", "Nats_Batch_Commit": "1"}
    assert stream.publish(b'"x"', **last)["error"]["err_code"] == 10176
    assert stream.stored() == []


def test_a_client_has_no_schedule_that_looks_like_a_delayed_message() -> None:
    stream = Stream(subjects=("s.>", "$JETRAFT.DELAYED.>"), allow_msg_schedules=True, allow_rollup_hdrs=True)
    headers: dict[str, Any] = {"Nats_Schedule": "@at 2020-01-01T00:00:00Z", "Nats_Schedule_Target": "s.a"}
    answer = stream.publish(GOOD, b"$JETRAFT.DELAYED.1.s.a", **headers)
    assert answer["error"]["err_code"] == 10212
    stream.node.sleep(2 * S)
    assert stream.stored() == []


def test_what_a_schedule_produces_is_judged_under_its_own_subject() -> None:
    rule = NUMBER | {"jetraft.schema_subject": "s.target"}
    stream = Stream(metadata=rule, allow_msg_schedules=True, allow_rollup_hdrs=True)
    headers: dict[str, Any] = {"Nats_Schedule": "@every 10s", "Nats_Schedule_Target": "s.target"}
    stream.publish(BAD, b"s.plan", **headers)
    stream.node.sleep(15 * S)
    assert stream.stored(b"s.target") == []
    stream.publish(GOOD, b"s.plan", **headers)
    stream.node.sleep(15 * S)
    assert stream.stored(b"s.target") == [GOOD]


def test_what_waits_is_not_judged_again() -> None:
    both = NUMBER | {"jetraft.delayed": "true"}
    stream = Stream(metadata=both)
    stream.publish(GOOD, Jetraft_Delay="5s")
    stream.update(metadata=both | {"jetraft.schema": '{"type":"string"}'})
    assert stream.publish(GOOD)["error"]["err_code"] == 19001
    stream.node.sleep(10 * S)
    assert stream.stored() == [GOOD]


def test_the_first_schema_whose_subject_matches_judges() -> None:
    keys = {
        "jetraft.schema_type.2": "json",
        "jetraft.schema.2": '{"type":"string"}',
        "jetraft.schema_subject.2": "s.text.>",
        "jetraft.schema_type.10": "json",
        "jetraft.schema.10": '{"type":"array"}',
        "jetraft.schema_subject.10": "s.*.list",
    }
    stream = Stream(metadata=keys)
    assert "error" not in stream.publish(b'"x"', b"s.text.list")
    assert stream.publish(b"[]", b"s.text.list")["error"]["description"].endswith("schema: expected string")
    assert stream.publish(b'"x"', b"s.other.list")["error"]["description"].endswith("schema: expected array")
    assert "error" not in stream.publish(b"no JSON", b"s.other"), "no schema says anything of it"


def test_a_repeat_is_a_repeat_and_not_judged() -> None:
    stream = Stream()
    stream.publish(GOOD, Nats_Msg_Id="1")
    assert stream.publish(BAD, Nats_Msg_Id="1")["duplicate"]


@pytest.mark.parametrize("operation", ["DEL", "PURGE"])
def test_a_bucket_removes_keys(operation: str) -> None:
    stream = Stream()
    assert "error" not in stream.publish(b"", KV_Operation=operation)
    assert stream.publish(BAD, KV_Operation=operation)["error"] == MISMATCH
    assert stream.publish(b"", KV_Operation="PUT")["error"]["err_code"] == 19001


def test_nothing_is_answered_where_nobody_asks() -> None:
    stream = Stream(no_ack=True)
    assert stream.publish(BAD) is None
    assert stream.publish(GOOD) is None
    assert stream.stored() == [GOOD]


def test_without_the_library_publishes_are_refused_and_reads_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemLog()
    first = Stream(log)
    first.publish(GOOD)
    first.replica.stop()
    compiled._compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    monkeypatch.delitem(sys.modules, "jetraft.store.model.schemas.json_schema", raising=False)
    second = Stream(log)
    assert second.publish(GOOD)["error"] == {
        "code": 503,
        "err_code": 19002,
        "description": "messages of this stream can not be judged: jetraft.schema: this server has no library for "
        "json schemas: pip install 'jetraft[schema]'",
    }
    assert second.stored() == [GOOD]
    add_consumer(second.node, second.replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    second.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"no_wait":true}', reply=b"_INBOX.r")
    delivered: list[Sent] = [sent for sent in second.node.turn() if sent.reply.startswith(b"$JS.ACK")]
    assert [sent.payload for sent in delivered] == [GOOD]


def test_a_stream_without_a_schema_stays_on_the_short_way() -> None:
    assert SchemaCheck.of(stream_config(metadata={"owner": "me"})) is None
    stream = Stream(metadata={})
    leadership = stream.replica._leadership
    assert leadership is not None
    assert leadership.admission._takes_plain
    stream.update(metadata=NUMBER)
    assert not leadership.admission._takes_plain
    assert stream.publish(BAD)["error"] == MISMATCH
    stream.update(metadata={})
    assert leadership.admission._takes_plain
    assert stream.publish(BAD) == {"stream": "S", "seq": 1}


AVRO = {
    "jetraft.schema_type": "avro",
    "jetraft.schema": '{"type":"record","name":"N","fields":[{"name":"n","type":"boolean"}]}',
}
PROTOBUF = {
    "jetraft.schema_type": "protobuf",
    "jetraft.schema": base64.b64encode(
        descriptor_pb2.FileDescriptorSet(
            file=[
                descriptor_pb2.FileDescriptorProto(
                    name="n.proto",
                    message_type=[
                        descriptor_pb2.DescriptorProto(
                            name="N", field=[descriptor_pb2.FieldDescriptorProto(name="n", number=1, type=8, label=1)]
                        )
                    ],
                )
            ]
        ).SerializeToString()
    ).decode(),
    "jetraft.schema_message": "N",
}


@pytest.mark.parametrize(
    ("metadata", "good", "bad", "said"),
    [(AVRO, b"\x01", b"\x02", "/n: expected boolean"), (PROTOBUF, b"\x08\x01", b"\x0d1234", "/n: expected bool")],
)
def test_each_language_judges(metadata: dict[str, str], good: bytes, bad: bytes, said: str) -> None:
    stream = Stream(metadata=metadata)
    assert stream.publish(good) == {"stream": "S", "seq": 1}
    assert stream.publish(bad)["error"]["description"] == f"message does not fit the schema: {said}"
    assert stream.stored() == [good]


@pytest.mark.parametrize(("metadata", "library"), [(AVRO, "fastavro"), (PROTOBUF, "google.protobuf")])
def test_each_library_may_lack(metadata: dict[str, str], library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = metadata["jetraft.schema_type"]
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"jetraft.store.model.schemas.{kind}_schema", raising=False)
    compiled._compiled.cache_clear()
    error = Stream(metadata=metadata).publish(b"")["error"]
    assert error["err_code"] == 19002
    assert f"this server has no library for {kind} schemas: pip install 'jetraft[schema]'" in error["description"]
