"""Dead letters on one node in memory: what is given up reaches the other stream, once, whatever happens between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack
import orjson
import pytest

from jetraft.store.log.mem_log import MemLog
from jetraft.store.model import message
from jetraft.store.model.config import AckPolicy, RetentionPolicy
from jetraft.store.stream.consumer_state import ConsumerState
from tests.cluster.lab import Node, Sent, add_consumer, finish, info_of, start_stream

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.stream.dead_letter import DeadLetter

S = 10**9
DEAD = "dlq"
LETTER = b"dlq.S.c"


class Case:
    """A stream with a message `s.a`, a consumer `c` with dead letters, and a subscriber in place of their stream."""

    def __init__(self, *, listens: bool = True, log: MemLog | None = None, **stream: Any) -> None:
        self.node, self.log = Node(), log or MemLog()
        self.listens = listens
        if listens:
            self.node.subscriptions.add(b"dlq.>")
        self.replica: StreamReplica = start_stream(self.node, self.log, **stream)

    def begin(self, **consumer: Any) -> None:
        fields = {"metadata": {"jetraft.dead_letter": DEAD}, "ack_wait": S, "max_deliver": 2, **consumer}
        self.node.publish(b"s.a", b"payload", hdr=b"NATS/1.0\r\nColour: red\r\nNats-Msg-Id: m1\r\n\r\n")
        self.node.turn()
        add_consumer(self.node, self.replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT, **fields)

    def pull(self) -> list[Sent]:
        self.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"no_wait":true}', reply=b"_INBOX.r")
        return [sent for sent in self.node.turn() if sent.reply.startswith(b"$JS.ACK")]

    def term(self) -> list[Sent]:
        """Deliver the message and terminate it; returns the letters."""
        (found,) = self.pull()
        self.node.publish(found.reply, b"+TERM no use")
        return letters(self.node.turn())

    def confirm(self, letter: Sent, seq: int = 1) -> list[Sent]:
        self.node.publish(letter.reply, orjson.dumps({"stream": "DLQ", "seq": seq}))
        return self.node.turn()

    @property
    def dead(self) -> dict[int, DeadLetter]:
        return self.replica.machine.consumers["c"].dead


def letters(sent: list[Sent]) -> list[Sent]:
    return [one for one in sent if one.to == LETTER]


def header(sent: Sent, name: str) -> bytes | None:
    return message.get(sent.hdr, name.encode())


def test_a_terminated_message_is_handed_on_with_all_that_says_where_it_is_from() -> None:
    case = Case()
    case.begin()
    (letter,) = case.term()
    assert letter.payload == b"payload"
    found = {name.decode(): value for name, value in message.items(letter.hdr)}
    assert found.pop("Nats-Msg-Id").startswith(b"jetraft.dead.S.c.")
    assert found.pop("Jetraft-Dead-Letter-Time").endswith(b"Z")
    assert found == {
        "Colour": b"red",
        "Jetraft-Dead-Letter-Subject": b"s.a",
        "Jetraft-Dead-Letter-Stream": b"S",
        "Jetraft-Dead-Letter-Consumer": b"c",
        "Jetraft-Dead-Letter-Sequence": b"1",
        "Jetraft-Dead-Letter-Deliveries": b"1",
        "Jetraft-Dead-Letter-Cause": b"term",
        "Jetraft-Dead-Letter-Reason": b"no use",
        "Jetraft-Dead-Letter-Msg-Id": b"m1",
    }
    assert list(case.dead) == [1], "until the other stream has confirmed it"
    case.confirm(letter)
    assert not case.dead
    assert letters(case.node.sleep(100 * S)) == []


def test_a_message_delivered_as_often_as_allowed_is_handed_on() -> None:
    case = Case()
    case.begin()
    found: list[Sent] = []
    for _ in range(3):
        case.pull()
        found += letters(case.node.sleep(2 * S))
    assert header(found[0], "Jetraft-Dead-Letter-Cause") == b"max_deliver"
    assert header(found[0], "Jetraft-Dead-Letter-Deliveries") == b"2"


def test_a_letter_that_is_not_confirmed_is_published_again_with_the_same_id() -> None:
    case = Case()
    case.begin()
    (first,) = case.term()
    again = letters(case.node.sleep(7 * S))
    assert header(again[0], "Nats-Msg-Id") == header(first, "Nats-Msg-Id")
    case.confirm(again[-1])
    assert not case.dead


def test_a_refused_letter_rests_longer_and_longer_and_is_not_lost() -> None:
    case = Case()
    case.begin()
    (letter,) = case.term()
    published = 0
    for _ in range(100):
        case.node.publish(letter.reply, b'{"error":{"code":400,"err_code":10054,"description":"too large"}}')
        found = letters(case.node.sleep(S))
        published += len(found)
        letter = found[-1] if found else letter
    assert 4 <= published <= 8, "after 1, 2, 4, ... 30 s"
    assert list(case.dead) == [1]


def test_two_confirmations_in_one_turn_are_one() -> None:
    """A letter that was published again is answered twice; an entry that names it twice stopped every replica."""
    case = Case()
    case.begin()
    (letter,) = case.term()
    for _ in range(2):
        case.node.publish(letter.reply, b'{"stream":"DLQ","seq":1}')
    case.node.turn()
    assert not case.dead
    assert case.replica.is_leader


def test_a_letter_that_finds_no_stream_waits_for_one() -> None:
    case = Case(listens=False)
    case.begin()
    assert case.term() == []
    case.node.sleep(10 * S)
    case.node.subscriptions.add(b"dlq.>")
    (letter,) = letters(case.node.sleep(31 * S))[:1]
    case.confirm(letter)
    assert not case.dead


def test_the_next_leader_publishes_what_is_not_confirmed_with_the_same_id() -> None:
    case = Case()
    case.begin()
    (first,) = case.term()
    case.replica.stop()
    again = Case(log=case.log)
    (letter,) = letters(again.node.sleep(7 * S))[:1] or letters(again.node.kept)[:1]
    assert header(letter, "Nats-Msg-Id") == header(first, "Nats-Msg-Id")
    again.confirm(letter)
    assert not again.dead


def test_a_confirmation_that_was_written_down_outlives_the_leader() -> None:
    case = Case()
    case.begin()
    (letter,) = case.term()
    case.confirm(letter)
    case.replica.stop()
    again = Case(log=case.log)
    assert not again.dead
    assert letters(again.node.sleep(60 * S)) == []


def test_what_is_not_handed_on_counts_as_unacknowledged() -> None:
    case = Case(listens=False)
    case.begin(max_ack_pending=1)
    case.term()
    case.node.publish(b"s.b", b"2")
    case.node.turn()
    assert info_of(case.replica, "c").num_ack_pending == 1
    assert case.pull() == [], "a consumer whose dead letters go nowhere stops"
    case.node.subscriptions.add(b"dlq.>")
    (letter,) = letters(case.node.sleep(31 * S))[:1]
    (delivered,) = [sent for sent in case.confirm(letter) if sent.reply.startswith(b"$JS.ACK.S.c.1.2.")]
    assert delivered.to == b"_INBOX.r", "the request that had to wait is served"


@pytest.mark.parametrize("retention", [RetentionPolicy.WORK_QUEUE, RetentionPolicy.INTEREST])
def test_the_stream_keeps_the_message_until_it_is_handed_on(retention: RetentionPolicy) -> None:
    case = Case(retention=retention)
    if retention is RetentionPolicy.INTEREST:
        add_consumer(case.node, case.replica, durable_name="d", ack_policy=AckPolicy.EXPLICIT, filter_subject="s.z")
        fields = {"metadata": {"jetraft.dead_letter": DEAD}, "durable_name": "c"}
        add_consumer(case.node, case.replica, ack_policy=AckPolicy.EXPLICIT, **fields)
    case.begin(**({"max_deliver": -1, "ack_wait": 30 * S} if retention is RetentionPolicy.INTEREST else {}))
    (letter,) = case.term()
    case.node.publish(b"$JS.ACK.S.c.1.1.1.1.0")  # a late ack of what is given up
    case.node.sleep(S)
    assert case.replica.machine.messages == 1
    case.confirm(letter)
    assert case.replica.machine.messages == 0


def test_a_message_that_its_stream_has_removed_is_not_waited_for() -> None:
    case = Case(listens=False)
    case.begin()
    case.term()
    case.replica.machine.store.remove((1,))
    case.node.sleep(31 * S)
    assert not case.dead


def test_without_the_key_nothing_is_handed_on_any_more() -> None:
    case = Case(listens=False, retention=RetentionPolicy.WORK_QUEUE)
    case.begin()
    case.term()
    add_consumer(case.node, case.replica, durable_name="c", ack_wait=S, max_deliver=2)
    assert not case.dead
    assert case.replica.machine.messages == 0
    assert info_of(case.replica, "c").num_ack_pending == 0


@pytest.mark.parametrize("subject", [b"", b"x.y", b"1", b"1.", b"1.2.3", b"-1.4", b"1." + b"9" * 40])
@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"stream":1,"seq":1}', b'{"stream":"D","seq":-1}', b"\xff"])
def test_an_answer_that_is_none_confirms_nothing(subject: bytes, payload: bytes) -> None:
    case = Case()
    case.begin()
    (letter,) = case.term()
    prefix = b".".join(letter.reply.split(b".")[:3])
    case.node.publish(b"%s.%s" % (prefix, subject), b'{"stream":"D","seq":1}')
    case.node.publish(letter.reply, payload)
    case.node.turn()
    assert list(case.dead) == [1]


def test_a_snapshot_keeps_what_is_not_handed_on() -> None:
    case = Case(listens=False)
    case.begin()
    case.term()
    state = case.replica.machine.consumers["c"]
    assert ConsumerState.from_tuple(state.config, msgpack.unpackb(msgpack.packb(state.to_tuple()))) == state
    before = state.to_tuple()
    assert (before[0], len(before)) == (3, 12)
    state.dead.clear()
    assert (state.to_tuple()[0], len(state.to_tuple())) == (2, 11), "as earlier servers write and read it"


def test_a_message_that_is_given_up_again_is_another_letter() -> None:
    case = Case()
    case.begin()
    (first,) = case.term()
    case.confirm(first)
    case.node.sleep(S)
    finish(case.node, lambda: case.replica.reset_consumer("c", 1))
    (second,) = case.term()
    assert header(second, "Nats-Msg-Id") != header(first, "Nats-Msg-Id")
    case.confirm(first, 2)
    assert list(case.dead) == [1], "a late confirmation of the first one says nothing of the second"
