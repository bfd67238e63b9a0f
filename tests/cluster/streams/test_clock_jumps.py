"""Somebody sets the leader's wall clock by an hour, and back: no age is wrong for it.

The node follows its machine's wall clock all the while, as a server that stands alone does; a leader that begins again
(the same log, another replica) finds what the one before has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import AckPolicy
from tests.cluster.lab import Node, Sent, add_consumer, info_of, start_stream

if TYPE_CHECKING:
    from jetraft.store.model.clock import ManualClock

S = 10**9
HOUR_NS = 3600 * S
JUMPS = pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS])
MSG_ID = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"


def publish(node: Node, *, hdr: bytes = b"") -> list[Sent]:
    node.publish(b"s.a", b"x", hdr=hdr, reply=b"_INBOX.p")
    return node.turn()


def pull(node: Node, body: bytes = b'{"batch":1,"expires":30000000000}') -> list[Sent]:
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply=b"_INBOX.r")
    return [message for message in node.turn() if message.reply]


def live(node: Node, seconds: int) -> list[Sent]:
    """Let time pass, with a look at the wall clock each second."""
    sent: list[Sent] = []
    for _ in range(seconds):
        node.steady.adjust((), nodes=1)
        sent += node.sleep(S)
    return [message for message in sent if message.reply]


def set_wall(node: Node, jump_ns: int) -> None:
    node.clock.epoch_ns += jump_ns
    node.steady.adjust((), nodes=1)


def node_with_time(clock: ManualClock | None = None) -> Node:
    node = Node(clock)
    node.steady.adjust((), nodes=1)
    return node


@JUMPS
def test_messages_leave_at_their_age(jump_ns: int) -> None:
    node = node_with_time()
    replica = start_stream(node, max_age=100 * S)
    publish(node)
    set_wall(node, jump_ns)
    publish(node)
    live(node, 95)
    assert replica.info().state.messages == 2
    set_wall(node, -jump_ns)
    live(node, 10)
    assert replica.info().state.messages == 0


@JUMPS
def test_messages_leave_after_their_time_to_live(jump_ns: int) -> None:
    node = node_with_time()
    replica = start_stream(node, allow_msg_ttl=True)
    set_wall(node, jump_ns)
    publish(node, hdr=b"NATS/1.0\r\nNats-TTL: 5s\r\n\r\n")
    live(node, 2)
    set_wall(node, -jump_ns)
    live(node, 2)
    assert replica.info().state.messages == 1
    live(node, 3)
    assert replica.info().state.messages == 0


@JUMPS
def test_message_ids_are_remembered_for_their_window(jump_ns: int) -> None:
    node = node_with_time()
    start_stream(node, duplicate_window=100 * S)
    publish(node, hdr=MSG_ID)
    set_wall(node, jump_ns)
    live(node, 90)
    [again] = publish(node, hdr=MSG_ID)
    assert b'"seq":1,"duplicate": true' in again.payload
    live(node, 20)
    [new] = publish(node, hdr=MSG_ID)
    assert b'"seq":2}' in new.payload


@JUMPS
def test_acknowledgements_are_waited_for_by_the_next_leader_too(jump_ns: int) -> None:
    node, log = node_with_time(), MemLog()
    replica = start_stream(node, log)
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=60 * S)
    publish(node)
    assert len(pull(node)) == 1
    set_wall(node, jump_ns)
    live(node, 20)
    replica.stop()
    start_stream(node, log)  # 2 s
    assert pull(node) == []
    assert live(node, 20) == []
    set_wall(node, -jump_ns)
    assert len(pull(node)) == 0
    assert len(live(node, 20)) == 1


@JUMPS
def test_a_consumer_that_nobody_uses_leaves_in_its_time(jump_ns: int) -> None:
    node, log = node_with_time(), MemLog()
    replica = start_stream(node, log)
    add_consumer(node, replica, name="c", ack_policy=AckPolicy.EXPLICIT, inactive_threshold=60 * S)
    set_wall(node, jump_ns)
    live(node, 50)
    assert replica.consumer_info("c") is not None
    set_wall(node, -jump_ns)
    live(node, 20)
    assert replica.consumer_info("c") is None


@JUMPS
def test_a_pause_lasts_as_long_as_it_was_meant_to(jump_ns: int) -> None:
    node = node_with_time()
    replica = start_stream(node)
    publish(node)
    until_ns = node.clock.unix_ns() + 60 * S
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT, pause_until=until_ns)
    set_wall(node, jump_ns)
    assert pull(node, b'{"batch":1,"expires":90000000000}') == []
    assert live(node, 50) == []
    assert 5 * S < info_of(replica, "c").pause_remaining_ns < 15 * S
    set_wall(node, -jump_ns)
    assert len(live(node, 20)) == 1


def test_times_of_messages_follow_the_clocks_that_are_set_by_little() -> None:
    node = node_with_time()
    replica = start_stream(node)
    for step_ns in (S // 2, -S // 2):
        set_wall(node, step_ns)
        live(node, 60)
        publish(node)
        assert abs(replica.machine.last_ts_ns - node.clock.unix_ns()) <= S // 1000


@JUMPS
def test_a_server_that_starts_while_the_clock_is_wrong_keeps_ages_from_then_on(jump_ns: int) -> None:
    node, log = node_with_time(), MemLog()
    first = start_stream(node, log)
    node.clock.epoch_ns += jump_ns
    publish(node)
    first.stop()
    other = node_with_time(node.clock)  # the process begins again: the wall is all it has
    second = start_stream(other, log, max_age=100 * S)
    before_ns = second.machine.last_ts_ns
    other.clock.epoch_ns -= jump_ns
    publish(other)
    assert second.machine.last_ts_ns >= before_ns
    live(other, 95)
    assert second.machine.store.last_seq == 2
    assert second.machine.store.messages >= 1
    live(other, 10)
    assert second.machine.store.messages == 0
