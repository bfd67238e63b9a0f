"""`jetraft.key_order` on one node in memory: of each key one message in flight, in order, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.store.log.mem_log import MemLog
from tests.cluster.lab import Node, add_consumer, finish, info_of, start_stream

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

S = 10**9
ACK_WAIT_NS = 60 * S
BY_TOKEN = {"jetraft.key_order": "token 2"}


class Workers:
    """A stream, and workers that share its consumer `c`; a delivery is (stream sequence, count, ack subject)."""

    def __init__(self, metadata: dict[str, str], **consumer: Any) -> None:
        self.log = MemLog()
        self.node = Node()
        self.replica: StreamReplica = start_stream(self.node, self.log)
        add_consumer(self.node, self.replica, durable_name="c", ack_wait=ACK_WAIT_NS, metadata=metadata, **consumer)

    def publish(self, keys: str, hdr: bytes = b"") -> None:
        for key in keys:
            self.node.publish(b"s." + key.encode(), b"x", hdr=hdr)
        self.node.turn()

    def pull(self, batch: int = 10) -> list[tuple[int, int, bytes]]:
        body = b'{"batch":%d,"no_wait":true}' % batch
        self.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply=b"_INBOX.r")
        return deliveries(self.node)

    def answer(self, subject: bytes, body: bytes = b"") -> None:
        self.node.publish(subject, body)
        self.node.turn()

    def change_leader(self) -> None:
        self.replica.stop()
        self.node = Node(self.node.clock)
        self.replica = start_stream(self.node, self.log)


def deliveries(node: Node) -> list[tuple[int, int, bytes]]:
    found = [sent.reply for sent in node.turn() if sent.reply.startswith(b"$JS.ACK.")]
    return [(int(reply.split(b".")[5]), int(reply.split(b".")[4]), reply) for reply in found]


def seqs(found: list[tuple[int, int, bytes]]) -> list[int]:
    return [seq for seq, _, _ in found]


def test_the_next_message_of_a_key_comes_when_the_one_before_is_settled() -> None:
    workers = Workers(BY_TOKEN)
    workers.publish("aabab")
    first = workers.pull()
    assert seqs(first) == [1, 3]
    workers.answer(first[1][2])
    assert seqs(workers.pull()) == [5]
    workers.answer(first[0][2], b"+TERM")
    (second,) = workers.pull()
    assert second[:2] == (2, 1), "a first delivery"
    assert workers.pull() == []


def test_a_header_may_be_the_key_and_messages_without_one_have_no_order() -> None:
    workers = Workers({"jetraft.key_order": "header Customer"})
    workers.publish("a", b"NATS/1.0\r\nCustomer: 7\r\n\r\n")
    workers.publish("b", b"NATS/1.0\r\nCustomer: 7\r\n\r\n")
    workers.publish("c", b"NATS/1.0\r\nCustomer: 8\r\n\r\n")
    workers.publish("dd")
    assert seqs(workers.pull()) == [1, 3, 4, 5]


@pytest.mark.parametrize("body", [b"", b"-NAK"])
def test_a_message_that_is_delivered_again_comes_before_the_next_of_its_key(body: bytes) -> None:
    workers = Workers(BY_TOKEN)
    workers.publish("aa")
    (first,) = workers.pull()
    if body:
        workers.answer(first[2], body)
    else:
        workers.node.sleep(2 * ACK_WAIT_NS)
    (again,) = workers.pull()
    assert again[:2] == (1, 2)
    workers.answer(again[2])
    assert seqs(workers.pull()) == [2]


def test_with_strict_acks_the_ack_of_each_newest_delivery_counts_and_no_other() -> None:
    """The first delivery too: it has another consumer sequence than the taking."""
    workers = Workers({**BY_TOKEN, "jetraft.strict_acks": "true"})
    workers.publish("aab")
    (first, _, ack), (_, _, of_b) = workers.pull()
    workers.answer(of_b)
    assert info_of(workers.replica, "c").num_ack_pending == 2, "it counts at once"
    workers.answer(ack, b"-NAK")
    ((again, count, newest),) = workers.pull()
    assert (again, count) == (first, 2)
    workers.answer(ack)
    assert workers.pull() == [], "the ack of the first delivery does not free the key any more"
    workers.answer(newest)
    assert seqs(workers.pull()) == [2]


def test_a_message_that_is_given_up_frees_its_key() -> None:
    workers = Workers(BY_TOKEN, max_deliver=1)
    workers.publish("aa")
    assert seqs(workers.pull()) == [1]
    workers.node.sleep(2 * ACK_WAIT_NS)
    assert seqs(workers.pull()) == [2]


def test_a_request_that_waits_gets_what_an_ack_makes_ready() -> None:
    workers = Workers(BY_TOKEN)
    workers.publish("aa")
    (first,) = workers.pull(1)
    workers.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"expires":30000000000}', reply=b"_INBOX.r")
    assert deliveries(workers.node) == []
    workers.node.publish(first[2])
    assert seqs(deliveries(workers.node)) == [2]


def test_a_key_with_many_messages_does_not_keep_the_others_waiting() -> None:
    workers = Workers(BY_TOKEN)
    workers.publish("a" * 100 + "bcd")
    assert seqs(workers.pull(4)) == [1, 101, 102, 103]


def test_it_looks_ahead_as_far_as_max_ack_pending() -> None:
    workers = Workers(BY_TOKEN, max_ack_pending=3)
    workers.publish("aaab")
    (first,) = workers.pull(1)
    assert info_of(workers.replica, "c").num_ack_pending == 3
    workers.answer(first[2])
    assert seqs(workers.pull()) == [2, 4]


def test_a_new_leader_holds_what_was_not_sent() -> None:
    workers = Workers(BY_TOKEN, max_ack_pending=100)
    workers.publish("aabaab")
    first = workers.pull()
    assert seqs(first) == [1, 3]
    workers.change_leader()
    workers.answer(first[0][2])
    (second,) = workers.pull()
    assert second[:2] == (2, 1)
    workers.node.sleep(2 * ACK_WAIT_NS)
    assert sorted((seq, count) for seq, count, _ in workers.pull()) == [(2, 2), (3, 2)]


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.text("abc", min_size=1, max_size=6)),
    st.tuples(st.just("pull"), st.integers(1, 5)),
    st.tuples(st.just("ack"), st.integers(0, 9)),
    st.tuples(st.just("nak"), st.integers(0, 9)),
    st.tuples(st.just("expire"), st.none()),
    st.tuples(st.just("change the leader"), st.none()),
    st.tuples(st.just("reset"), st.none()),
)


class Checker:
    """What clients see, against the rule: what is out and not settled has one message of each key."""

    def __init__(self) -> None:
        self.workers = Workers(BY_TOKEN, max_ack_pending=12)
        self.keys = ""
        self.out: dict[int, bytes] = {}  # ack subjects of what was delivered and is not settled
        self.settled: set[int] = set()

    def delivered(self, found: list[tuple[int, int, bytes]]) -> None:
        for seq, _, subject in found:
            key = self.keys[seq - 1]
            others = [other for other in self.out if self.keys[other - 1] == key and other != seq]
            assert not others, f"{seq} and {others} of {key} are out"
            before = {one for one in range(1, seq) if self.keys[one - 1] == key}
            assert before <= self.settled, f"{seq} of {key} overtakes {before - self.settled}"
            self.out[seq] = subject

    def take(self, step: str, value: Any) -> None:
        workers = self.workers
        chosen = sorted(self.out)[value % len(self.out)] if step in ("ack", "nak") and self.out else 0
        if step == "publish":
            self.keys += value
            workers.publish(value)
        elif step == "pull":
            self.delivered(workers.pull(value))
        elif step == "ack" and chosen:
            workers.answer(self.out.pop(chosen))
            self.settled.add(chosen)
        elif step == "nak" and chosen:
            workers.answer(self.out.pop(chosen), b"-NAK")
        elif step == "expire":
            workers.node.sleep(2 * ACK_WAIT_NS)
            self.out.clear()
        elif step == "change the leader":
            workers.change_leader()
        elif step == "reset":
            finish(workers.node, lambda: workers.replica.reset_consumer("c", 1))
            self.out.clear()
            self.settled.clear()


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_whatever_happens_keys_keep_their_order_and_everything_comes(steps: list[tuple[str, Any]]) -> None:
    checker = Checker()
    for step, value in steps:
        checker.take(step, value)
    for _ in range(3 * len(checker.keys) + 3):
        checker.take("pull", 10)
        while checker.out:
            checker.take("ack", 0)
        checker.take("expire", None)
    assert checker.settled == set(range(1, len(checker.keys) + 1))
