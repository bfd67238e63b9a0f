"""Acks that publish, on one node in memory: the message and the ack are one entry, stored once or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from jetraft.store.log.mem_log import MemLog
from jetraft.store.model import message
from jetraft.store.model.config import AckPolicy, DiscardPolicy, RetentionPolicy
from tests.cluster.lab import Node, Sent, add_consumer, finish, info_of, start_stream

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

S = 10**9
KEYS = {"jetraft.strict_acks": "true", "jetraft.ack_publish": "s.done.>"}


class Worker:
    """A stream with messages `s.todo`, and one who pulls them and publishes `s.done.x` with the acks."""

    def __init__(self, *, log: MemLog | None = None, keys: dict[str, str] | None = None, **stream: Any) -> None:
        self.node, self.log = Node(), log or MemLog()
        self.keys = KEYS if keys is None else keys
        self.replica: StreamReplica = start_stream(self.node, self.log, **stream)

    def begin(self, *payloads: bytes, **consumer: Any) -> None:
        metadata = self.keys
        fields = {"filter_subject": "s.todo", "ack_policy": AckPolicy.EXPLICIT, "ack_wait": S, **consumer}
        add_consumer(self.node, self.replica, durable_name="c", metadata=metadata, **fields)
        for payload in payloads:
            self.node.publish(b"s.todo", payload)
        self.node.turn()

    def pull(self, batch: int = 1) -> list[Sent]:
        self.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":%d,"no_wait":true}' % batch, reply=b"_INBOX.r")
        return [sent for sent in self.node.turn() if sent.reply.startswith(b"$JS.ACK")]

    def send(self, reply: bytes, payload: bytes, to: bytes = b"s.done.x", **headers: str) -> None:
        named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        hdr = message.build({b"Jetraft-Publish": to, **named})
        self.node.publish(reply, payload, hdr=hdr, reply=b"_INBOX.a")

    def ask(self, *args: Any, **headers: Any) -> Sent:
        self.send(*args, **headers)
        (answer,) = [sent for sent in self.node.turn() if sent.to == b"_INBOX.a"]
        return answer

    def done(self) -> list[bytes]:
        store = self.replica.machine.store
        return [found.payload for found in store.load_many(store.next_matches((b"s.done.>",), 1, 1000))]

    @property
    def num_ack_pending(self) -> int:
        return info_of(self.replica, "c").num_ack_pending


def description(answer: Sent) -> str:
    found: str = orjson.loads(answer.payload)["error"]["description"]
    return found


def test_the_message_and_the_ack_are_one_entry() -> None:
    worker = Worker(retention=RetentionPolicy.WORK_QUEUE)
    worker.begin(b"task")
    (found,) = worker.pull()
    before = worker.log.last_index
    answer = worker.ask(found.reply, b"result", Colour="red")
    assert orjson.loads(answer.payload) == {"stream": "S", "seq": 2}
    assert worker.log.last_index == before + 1
    assert worker.done() == [b"result"]
    stored = worker.replica.machine.store.load(2)
    assert stored is not None
    assert dict(message.items(stored.hdr)) == {b"Colour": b"red", b"Jetraft-Acked": b"c 1 1"}
    assert worker.replica.machine.store.subject_of(1) is None, "the queue is done with it"
    assert worker.num_ack_pending == 0
    assert worker.node.sleep(10 * S) == []


def test_nothing_is_acknowledged_before_the_entry_is_committed() -> None:
    worker = Worker()
    worker.begin(b"task")
    (found,) = worker.pull()
    worker.log._durable_on_submit = False
    worker.send(found.reply, b"result")
    assert [sent for sent in worker.node.turn() if sent.to == b"_INBOX.a"] == []
    assert len(worker.replica.machine.consumers["c"].pending) == 1
    worker.send(found.reply, b"again")
    (answer,) = [sent for sent in worker.node.turn() if sent.to == b"_INBOX.a"]
    assert message.get(answer.hdr, b"Status") is None
    assert answer.hdr.startswith(b"NATS/1.0 409 Stale Ack"), "one is on its way already"
    worker.log.complete()
    worker.node.turn()
    assert worker.done() == [b"result"]
    assert len(worker.replica.machine.consumers["c"].pending) == 0


@pytest.mark.parametrize("survives", [True, False])
def test_a_restart_in_between_leaves_both_or_neither(*, survives: bool) -> None:
    worker = Worker()
    worker.begin(b"task")
    (found,) = worker.pull()
    before = worker.log.last_index
    worker.log._durable_on_submit = False
    worker.send(found.reply, b"result")
    worker.node.turn()
    worker.replica.stop()
    worker.log.complete()
    if not survives:
        worker.log.cut_from(before + 1)
    worker.log._durable_on_submit = True
    worker.replica = start_stream(worker.node, worker.log)
    worker.node.turn()
    assert worker.done() == [b"result"] * survives
    assert worker.num_ack_pending == 1 - survives
    again = worker.ask(found.reply, b"result")
    assert again.hdr.startswith(b"NATS/1.0 409") == survives
    assert worker.done() == [b"result"], "once, whichever of them it was"


def test_a_stale_ack_publishes_nothing() -> None:
    worker = Worker()
    worker.begin(b"task")
    (stale,) = worker.pull()
    worker.node.sleep(2 * S)
    (newest,) = worker.pull()
    answer = worker.ask(stale.reply, b"late")
    assert answer.hdr.startswith(b"NATS/1.0 409 Stale Ack")
    assert worker.done() == []
    worker.ask(newest.reply, b"result")
    assert worker.done() == [b"result"]


def test_an_id_tells_a_repeat_from_another_worker() -> None:
    worker = Worker()
    worker.begin(b"task", b"task")
    one, two = worker.pull(2)
    first = orjson.loads(worker.ask(one.reply, b"result", Nats_Msg_Id="m").payload)
    again = orjson.loads(worker.ask(one.reply, b"result", Nats_Msg_Id="m").payload)
    assert again == {**first, "duplicate": True}
    known = orjson.loads(worker.ask(two.reply, b"result", Nats_Msg_Id="m").payload)
    assert known["duplicate"] is True
    assert worker.num_ack_pending == 0, "an ack is all that was left to do"
    assert worker.done() == [b"result"]


def test_a_message_that_the_stream_refuses_acknowledges_nothing() -> None:
    worker = Worker(discard=DiscardPolicy.NEW, max_msgs=1)
    worker.begin(b"task")
    (found,) = worker.pull()
    assert description(worker.ask(found.reply, b"result")) == "maximum messages exceeded"
    assert worker.num_ack_pending == 1


@pytest.mark.parametrize(
    ("to", "headers", "text"),
    [
        (b"other.done", {}, "Jetraft-Publish: other.done is not within jetraft.ack_publish of the consumer, s.done.>"),
        (b"s.todo", {}, "Jetraft-Publish: s.todo is not within jetraft.ack_publish of the consumer, s.done.>"),
        (b"s.*", {}, "Jetraft-Publish is a subject without wildcards, not 's.*'"),
        (b"", {}, "Jetraft-Publish is a subject without wildcards, not ''"),
        (
            b"s.done.x",
            {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1"},
            "Jetraft-Publish is not for messages of batches, schedules, and messages that wait",
        ),
        (
            b"s.done.x",
            {"Jetraft_Delay": "5s"},
            "Jetraft-Publish is not for messages of batches, schedules, and messages that wait",
        ),
    ],
)
def test_what_can_not_be_one_step_is_refused_by_name(to: bytes, headers: dict[str, str], text: str) -> None:
    worker = Worker()
    worker.begin(b"task")
    (found,) = worker.pull()
    assert description(worker.ask(found.reply, b"result", to, **headers)) == text
    assert worker.num_ack_pending == 1
    assert worker.replica.machine.messages == 1


def test_a_subject_of_another_stream_is_refused_by_name() -> None:
    worker = Worker(keys={**KEYS, "jetraft.ack_publish": "*.done.>"})
    worker.begin(b"task")
    (found,) = worker.pull()
    text = "Jetraft-Publish: stream S does not capture t.done.x, and two streams are not one step"
    assert description(worker.ask(found.reply, b"result", b"t.done.x")) == text


def test_without_the_key_an_ack_that_would_publish_is_no_ack() -> None:
    worker = Worker(keys={"jetraft.strict_acks": "true"})
    worker.begin(b"task")
    (found,) = worker.pull()
    assert description(worker.ask(found.reply, b"")) == "Jetraft-Publish needs jetraft.ack_publish of the consumer"
    worker.node.publish(found.reply, b"", hdr=message.build({b"Jetraft-Publish": b"s.done.x"}))
    worker.node.turn()
    assert worker.num_ack_pending == 1, "nor without a reply"
    worker.node.publish(found.reply, b"+ACK", hdr=message.build({b"Colour": b"red"}))
    worker.node.turn()
    assert worker.num_ack_pending == 0, "other headers mean nothing"


def test_room_that_an_ack_makes_is_used_at_once() -> None:
    worker = Worker()
    worker.begin(b"1", b"2", max_ack_pending=1)
    (found,) = worker.pull()
    worker.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"expires":%d}' % (9 * S), reply=b"_INBOX.r")
    worker.node.turn()
    worker.send(found.reply, b"result")
    assert [sent.payload for sent in worker.node.turn() if sent.to == b"_INBOX.r"] == [b"2"]


def test_a_consumer_that_is_deleted_meanwhile_takes_nothing_with_it() -> None:
    worker = Worker()
    worker.begin(b"task")
    (found,) = worker.pull()
    leadership = worker.replica._leadership
    assert leadership is not None
    finish(worker.node, lambda: leadership.consumers.delete("c"))
    worker.send(found.reply, b"result")
    (answer,) = [sent for sent in worker.node.turn() if sent.to == b"_INBOX.a"]
    assert answer.hdr.startswith(b"NATS/1.0 503")
    assert worker.done() == []
