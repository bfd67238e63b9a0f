"""A stream that is being restored takes steps, in order and once, and nothing else. One that stops is given up."""

import attrs
import pytest

from jetraft.cluster.backup.archive import ArchiveEntry
from jetraft.cluster.backup.contents import ArchiveEnd, Item
from jetraft.cluster.backup.mark import marked
from jetraft.cluster.backup.restoration import STALE_NS, OutOfStepError
from jetraft.cluster.backup.step_batch import RestoreStep, StepKind
from jetraft.cluster.backup.steps import StepPlanner
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.store.frames._frame import record_at
from jetraft.store.frames.format import FRAME_HEADER_BYTES, RECORD_HAS_SCHEDULE, RECORD_IS_SOURCED
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import StreamConfig, StreamSource
from jetraft.store.model.state import StreamState
from tests.cluster.lab import Node, assignment_of, finish, stream_config

CONFIG = stream_config(name="ORDERS", subjects=("orders.>",), allow_msg_ttl=True, allow_msg_schedules=True)
SECOND = 10**9


def steps_of(
    *messages: ArchiveEntry, first_seq: int = 1, last_seq: int = 9, now_ns: int = 0, config: StreamConfig = CONFIG
) -> list[RestoreStep]:
    planner = StepPlanner(config, now_ns)
    state = StreamState(messages=len(messages), bytes=999, first_seq=first_seq, last_seq=last_seq)
    items: list[Item] = [state, *messages, ArchiveEnd(last_seq, 0)]
    batches = [batch for item in items for batch in planner.take(item)]
    return [step for batch in (*batches, planner.finish()) for step in batch]


def message(seq: int, hdr: bytes = b"") -> ArchiveEntry:
    return ArchiveEntry(b"orders.eu", seq * SECOND, seq, hdr, b"%d" % seq)


def test_gaps_become_skips_and_neighbours_one_entry() -> None:
    steps = steps_of(message(4), message(5), message(8), first_seq=3)
    shape = [(step.kind, step.first_seq, step.count) for step in steps]
    assert shape == [
        (StepKind.SKIP, 1, 2),
        (StepKind.SKIP, 3, 1),
        (StepKind.MESSAGES, 4, 2),
        (StepKind.SKIP, 6, 2),
        (StepKind.MESSAGES, 8, 1),
        (StepKind.SKIP, 9, 1),
    ]


def test_a_message_that_has_outlived_its_ttl_is_passed_over() -> None:
    ttl = b"NATS/1.0\r\nNats-TTL: 5\r\n\r\n"
    steps = steps_of(message(1, ttl), message(2, ttl), last_seq=2, now_ns=6 * SECOND)
    assert [(step.kind, step.first_seq) for step in steps] == [(StepKind.SKIP, 1), (StepKind.MESSAGES, 2)]


@pytest.mark.parametrize(
    ("hdr", "flags"),
    [
        (b"NATS/1.0\r\nNats-Schedule: @daily\r\n\r\n", RECORD_HAS_SCHEDULE),
        (b"NATS/1.0\r\nNats-Scheduler: orders.a\r\nNats-Schedule-Next: purge\r\n\r\n", RECORD_HAS_SCHEDULE),
        (b"NATS/1.0\r\nNats-Scheduler: orders.a\r\n\r\n", 0),
        (b"NATS/1.0\r\nNats-Schedule-Target: orders.a\r\n\r\n", 0),
    ],
)
def test_schedules_and_what_they_have_produced_are_marked(hdr: bytes, flags: int) -> None:
    (step,) = steps_of(message(1, hdr), last_seq=1)
    assert record_at(bytes(FRAME_HEADER_BYTES) + step.body, FRAME_HEADER_BYTES)[1] == flags


@pytest.mark.parametrize(
    ("source", "flags"), [(b"O 7 > > orders.a abcd1234", RECORD_IS_SOURCED), (b"O", 0)], ids=["position", "none"]
)
def test_copies_of_sources_are_marked_so_that_reading_goes_on_behind_them(source: bytes, flags: int) -> None:
    config = attrs.evolve(CONFIG, sources=(StreamSource(name="O"),))
    hdr = b"NATS/1.0\r\nNats-Stream-Source: %s\r\n\r\n" % source
    (step,) = steps_of(message(1, hdr), last_seq=1, config=config)
    assert record_at(bytes(FRAME_HEADER_BYTES) + step.body, FRAME_HEADER_BYTES)[1] == flags


def restoring(node: Node) -> StreamReplica:
    assignment = assignment_of(node, marked(CONFIG, "me"))
    replica = StreamReplica.start(assignment=assignment, log=MemLog(), site=node.site)
    node.sleep(2 * SECOND)
    assert replica.restoration is not None
    return replica


def fill(node: Node, replica: StreamReplica, steps: list[RestoreStep]) -> None:
    restoration = replica.restoration
    assert restoration is not None
    finish(node, lambda: restoration.carry_out(steps))


def test_the_stream_serves_nothing_until_the_mark_is_gone() -> None:
    node = Node()
    replica = restoring(node)
    fill(node, replica, steps_of(message(4), message(8), first_seq=4))
    assert not replica.is_leader
    assert not node.has_interest(b"orders.eu")
    replica.reconfigure(attrs.evolve(replica.assignment, config=CONFIG))
    node.sleep(SECOND)
    assert replica.is_leader
    assert replica.restoration is None
    state = replica.info().state
    assert (state.first_seq, state.last_seq, state.messages, state.num_deleted) == (4, 9, 2, 4)
    assert replica.machine.store.lost() == []
    node.publish(b"orders.eu", b"next", reply=b"_INBOX.1")
    assert [sent.payload for sent in node.turn()] == [b'{"stream":"ORDERS","seq":10}']


def test_steps_that_were_taken_are_passed_over_when_they_come_again() -> None:
    node = Node()
    replica, steps = restoring(node), steps_of(message(1), message(2), message(5))
    fill(node, replica, steps[:2])
    fill(node, replica, steps)
    fill(node, replica, steps)
    assert (replica.machine.last_seq, replica.machine.messages) == (9, 3)


def test_steps_that_do_not_follow_are_refused_and_change_nothing() -> None:
    node = Node()
    replica, steps = restoring(node), steps_of(message(1), message(2), message(5))
    with pytest.raises(ExceptionGroup) as raised:
        fill(node, replica, steps[1:])
    assert raised.group_contains(OutOfStepError)
    assert replica.machine.last_seq == 0


def test_a_restore_that_stops_is_given_up_again_and_again() -> None:
    node = Node()
    abandoned: list[str] = []
    node.site = attrs.evolve(node.site, on_abandoned=lambda row: abandoned.append(row.config.name))
    restoring(node)
    node.sleep(2 * STALE_NS + SECOND)
    assert abandoned == ["ORDERS", "ORDERS"]
