"""A stream with schedules, on one node in memory: what is due is produced once, whatever happens to the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from jetraft.cluster.streams.schedules.scheduler import OUTDATED_MIN
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model import message
from jetraft.store.model.gotime import format_time
from jetraft.store.model.requests import JSApiStreamPurgeRequest
from tests.cluster.lab import Node, finish, start_stream

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

S = 10**9


def with_schedules(node: Node, log: MemLog | None = None, **fields: Any) -> StreamReplica:
    return start_stream(node, log, allow_msg_schedules=True, allow_rollup_hdrs=True, **fields)


def schedule(node: Node, subject: bytes, pattern: str, payload: bytes = b"x", **headers: str) -> None:
    fields = {b"Nats-Schedule": pattern.encode(), b"Nats-Schedule-Target": b"s.target"}
    fields |= {b"Nats-" + name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    node.publish(subject, payload, hdr=message.build(fields))
    node.turn()


def later(node: Node, seconds: int) -> str:
    return "@at " + format_time(node.clock.unix_ns() + seconds * S)


def produced(replica: StreamReplica, subject: bytes = b"s.target") -> list[int]:
    return list(replica.machine.store.next_matches((subject,), 1, 1000))


def test_a_message_is_produced_when_its_time_has_come_and_not_before() -> None:
    node = Node()
    replica = with_schedules(node)
    schedule(node, b"s.a", later(node, 10), b"later")
    node.sleep(9 * S)
    assert produced(replica) == []
    node.sleep(2 * S)
    assert produced(replica) == [2]
    found = replica.machine.store.load(2)
    assert found is not None
    assert found.payload == b"later"
    assert replica.machine.store.subject_of(1) is None
    node.sleep(60 * S)
    assert produced(replica) == [2]


def test_an_interval_is_due_again_and_again() -> None:
    node = Node()
    replica = with_schedules(node)
    schedule(node, b"s.a", "@every 10s")
    node.sleep(35 * S)
    assert produced(replica) == [2, 3, 4]


def test_a_restart_makes_up_once_for_what_was_missed_and_repeats_nothing() -> None:
    node = Node()
    log = MemLog()
    first = with_schedules(node, log)
    schedule(node, b"s.a", "@every 10s")
    schedule(node, b"s.b", later(node, 15))
    node.sleep(25 * S)
    assert len(produced(first)) == 3
    first.stop()
    node.sleep(60 * S)
    again = with_schedules(node, log)
    assert len(produced(again)) == 4
    node.sleep(10 * S)
    assert len(produced(again)) == 5


def test_what_was_in_flight_when_leadership_was_lost_is_produced_once() -> None:
    node = Node()
    log = MemLog()
    first = with_schedules(node, log)
    schedule(node, b"s.a", later(node, 5))
    log._durable_on_submit = False
    node.sleep(10 * S)
    assert produced(first) == [], "it is proposed and not committed"
    first.stop()
    log.complete()
    log._durable_on_submit = True
    again = with_schedules(node, log)
    node.sleep(10 * S)
    assert len(produced(again)) == 1


def test_a_schedule_that_is_replaced_in_flight_produces_nothing() -> None:
    node = Node()
    log = MemLog()
    replica = with_schedules(node, log)
    schedule(node, b"s.a", later(node, 5))
    log._durable_on_submit = False
    schedule(node, b"s.a", later(node, 60), b"another")
    node.sleep(10 * S)
    log.complete()
    log._durable_on_submit = True
    node.sleep(10 * S)
    assert produced(replica) == []
    node.sleep(60 * S)
    (seq,) = produced(replica)
    found = replica.machine.store.load(seq)
    assert found is not None
    assert found.payload == b"another"


def test_a_schedule_that_is_replaced_again_and_again_takes_the_memory_of_one() -> None:
    node = Node()
    replica = with_schedules(node)
    for _ in range(5 * OUTDATED_MIN):
        schedule(node, b"s.a", later(node, 3600))
        schedule(node, b"s.b", later(node, 1800))
    leadership = replica._leadership
    assert leadership is not None
    assert leadership._scheduler is not None
    assert len(leadership._scheduler._heap) <= OUTDATED_MIN + 2 * 2
    node.sleep(3700 * S)
    assert len(produced(replica)) == 2


@pytest.mark.parametrize("by", ["purge", "message", "another"])
def test_an_ended_schedule_produces_nothing(by: str) -> None:
    node = Node()
    replica = with_schedules(node)
    schedule(node, b"s.a", "@every 10s")
    if by == "purge":
        finish(node, lambda: replica.purge(JSApiStreamPurgeRequest(filter="s.a")))
    elif by == "message":
        node.publish(b"s.a", b"plain")
    else:
        hdr = message.build({b"Nats-Scheduler": b"s.a", b"Nats-Schedule-Next": b"purge"})
        node.publish(b"s.b", hdr=hdr)
    node.sleep(60 * S)
    assert produced(replica) == []


def test_a_source_gives_its_last_message() -> None:
    node = Node()
    replica = with_schedules(node)
    schedule(node, b"s.a", "@every 10s", b"own", Schedule_Source="s.source")
    node.sleep(11 * S)
    node.publish(b"s.source", b"1")
    node.publish(b"s.source", b"2")
    node.sleep(10 * S)
    payloads = [found.payload for found in replica.machine.store.load_many(produced(replica))]
    assert payloads == [b"own", b"2"]


def test_a_message_that_the_stream_refuses_is_tried_once_and_its_schedule_stays() -> None:
    node = Node()
    replica = with_schedules(node, max_msg_size=200)
    schedule(node, b"s.a", later(node, 5), b"y" * 40, Schedule_Source="s.source")
    node.publish(b"s.source", b"z" * 190)
    node.sleep(60 * S)
    assert produced(replica) == []
    assert replica.machine.store.subject_of(1) == b"s.a"


def test_a_stream_gets_schedules_later() -> None:
    node = Node()
    replica = start_stream(node)
    schedule(node, b"s.a", later(node, 5))
    assert replica.info().state.messages == 0
    config = attrs.evolve(replica.config, allow_msg_schedules=True, allow_rollup_hdrs=True)
    replica.reconfigure(attrs.evolve(replica.assignment, config=config))
    node.turn()
    schedule(node, b"s.a", later(node, 5))
    node.sleep(10 * S)
    assert produced(replica) == [2]


@pytest.mark.parametrize("jump_ns", [3600 * S, -3600 * S])
def test_setting_a_wall_clock_makes_nothing_due_and_puts_nothing_off(jump_ns: int) -> None:
    node = Node()
    node.steady.adjust((), nodes=1)
    replica = with_schedules(node)
    schedule(node, b"s.a", later(node, 100))
    node.clock.epoch_ns += jump_ns
    for _ in range(90):
        node.steady.adjust((), nodes=1)
        node.sleep(S)
    assert produced(replica) == []
    for _ in range(20):
        node.steady.adjust((), nodes=1)
        node.sleep(S)
    assert produced(replica) == [2]
