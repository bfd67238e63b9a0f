"""A replica over a long log: its state is rebuilt in a thread, and the node goes on."""

import threading
from collections.abc import Awaitable, Callable, Iterator
from unittest import mock

import attrs
import pytest
import trio

from jetraft.cluster.streams.replica import replica as replica_module
from jetraft.cluster.streams.replica.replica import ENTRIES_AT_ONCE, StreamReplica
from jetraft.raft.engine.membership import Configuration
from jetraft.store.disk.io import check_wanted
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.port import Entry, HardState
from tests.cluster.lab import NODE, Node, assignment_of, stream_config

WAIT_S = 60
MEMBERS = Configuration(voters=(NODE,)).encode()


def message(index: int) -> Entry:
    record = make_record(b"s.a", b"", b"%d" % index, ts_ns=index)
    frame = seal(Kind.MESSAGES, index=index, term=1, incarnation=7, body=[record], first_seq=index, count=1)
    return Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)


def log_of(count: int, *, has_checkpoint: bool) -> MemLog:
    """A log of `count` messages; with a checkpoint at its end the index is rebuilt from it, else they are replayed."""
    log, node = MemLog(), Node()
    log.set_hard_state(HardState(term=1, vote=NODE))
    log.save_checkpoint(0, 0, MEMBERS, b"")
    log.append([message(index) for index in range(1, count + 1)])
    log.submit()
    if has_checkpoint:
        assignment = assignment_of(node, stream_config())
        replica = StreamReplica(assignment=assignment, log=log, site=node.site)
        replica.machine.apply([message(index) for index in range(1, count + 1)])
        log.save_checkpoint(count, 1, MEMBERS, replica.machine.snapshot())
        log.submit()
    return log


@attrs.define
class Gate:
    """Holds the thread of an opening between two pieces."""

    entered: threading.Event = attrs.field(factory=threading.Event)
    open: threading.Event = attrs.field(factory=threading.Event)
    thread: int = 0

    def pass_through(self) -> None:
        self.thread = threading.get_ident()
        self.entered.set()
        assert self.open.wait(WAIT_S), "the node did not go on beside the opening"
        check_wanted()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    with mock.patch.object(replica_module, "check_wanted", gate.pass_through):
        yield gate
    gate.open.set()


def opening(node: Node, log: MemLog, into: list[StreamReplica]) -> Callable[[], Awaitable[None]]:
    async def opened() -> None:
        assignment = assignment_of(node, stream_config())
        into.append(await StreamReplica.open(assignment=assignment, log=log, site=node.site))

    return opened


@pytest.mark.parametrize("has_checkpoint", [True, False])
async def test_the_node_goes_on_while_a_long_log_is_read(gate: Gate, *, has_checkpoint: bool) -> None:
    log, node, found = log_of(ENTRIES_AT_ONCE + 1, has_checkpoint=has_checkpoint), Node(), list[StreamReplica]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(opening(node, log, found))
        assert await trio.to_thread.run_sync(gate.entered.wait, WAIT_S)
        # This task runs, and the group is not known to anyone while the thread has its log.
        assert gate.thread != threading.get_ident()
        assert not found
        assert not node.site.manager.groups
        gate.open.set()
    assert found[0].group.group_id in node.site.manager.groups
    if has_checkpoint:
        assert found[0].machine.store.messages == ENTRIES_AT_ONCE + 1


@pytest.mark.parametrize("has_checkpoint", [True, False])
async def test_an_opening_that_is_cancelled_ends_before_the_next_piece(gate: Gate, *, has_checkpoint: bool) -> None:
    log, node, found = log_of(ENTRIES_AT_ONCE + 1, has_checkpoint=has_checkpoint), Node(), list[StreamReplica]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(opening(node, log, found))
        assert await trio.to_thread.run_sync(gate.entered.wait, WAIT_S)
        nursery.cancel_scope.cancel()
        gate.open.set()
    assert not found
    assert not node.site.manager.groups


async def test_a_short_log_needs_no_thread(gate: Gate) -> None:
    log, node, found = log_of(3, has_checkpoint=True), Node(), list[StreamReplica]()
    await opening(node, log, found)()
    assert found[0].machine.store.messages == 3
    assert not gate.entered.is_set()
