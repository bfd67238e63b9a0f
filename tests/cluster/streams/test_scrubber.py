"""A replica that met damage is opened again, repaired, by whoever starts replicas."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from jetraft.cluster.streams.scrubber import LOOK_S, Scrubber
from jetraft.store import _frame
from jetraft.store.block_cache import BlockCache
from jetraft.store.format import BLOCK_HEAD_BYTES, Identity, Kind
from jetraft.store.io import LocalDisk, Writer
from jetraft.store.log import FileLog
from jetraft.store.log_open import open_log
from jetraft.store.model.clock import NS_PER_S, ManualClock
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, GroupLog, StoreCorrupt
from jetraft.store.scrub import Scrub, Target

GROUP_ID = GroupId("S-R3F-abcdefgh")
A, B = NodeId("AAAAAAAA"), NodeId("BBBBBBBB")


@attrs.define(eq=False)
class FakeGroup:
    log: GroupLog
    group_id: GroupId = GROUP_ID
    incarnation: int = 7
    members: tuple[NodeId, ...] = (A, B)
    failed: Exception | None = None

    def fail(self, error: Exception, _now_ns: int) -> None:
        self.failed = error


@attrs.define(eq=False)
class FakeRepairs:
    asked: list[tuple[GroupLog, Sequence[NodeId]]] = attrs.Factory(list)

    async def reopen(self, log: GroupLog, others: Sequence[NodeId]) -> GroupLog:
        await trio.lowlevel.checkpoint()
        self.asked.append((log, others))
        return log


class NotingScrub(Scrub):
    """Says when the first block was read."""

    def __init__(self, *, period_ns: int) -> None:
        super().__init__(period_ns=period_ns)
        self.noted = trio.Event()

    def note(self, target: Target, *, damaged: bool) -> None:
        super().note(target, damaged=damaged)
        self.noted.set()


def sealed_log(path: Path, writer: Writer) -> FileLog:
    """A log with one block that no longer grows."""
    identity = Identity(node_id=A, group_id=GROUP_ID, incarnation=7)
    for index in (1, 2):
        log = open_log(LocalDisk(writer), path / "groups" / "g", identity, BlockCache())
        frame = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=7, body=b"x" * 100)
        log.append([Entry(index=index, term=1, kind=Kind.NOOP, frame=frame)])
        done: list[int] = []
        log.on_durable = lambda done=done: done.append(1)  # type: ignore[misc]  # a default binds the list
        log.submit()
        while not done:
            writer.drain()
        if index == 1:
            log.close()
    return log


async def test_bit_rot_in_a_block_at_rest_ends_in_a_repair(tmp_path: Path, autojump_clock: MockClock) -> None:
    del autojump_clock
    writer = Writer(1)
    log = sealed_log(tmp_path, writer)
    group, repairs = FakeGroup(log), FakeRepairs()
    reopened: list[GroupId] = []
    repaired = trio.Event()
    scrub = NotingScrub(period_ns=NS_PER_S)

    async def reopen(group_id: GroupId, swap: Callable[[], Awaitable[GroupLog]]) -> None:
        await swap()
        reopened.append(group_id)
        group.failed = None
        repaired.set()

    parts: dict[str, Any] = {"groups": lambda: [group], "repairs": repairs, "reopen": reopen}
    scrubber = Scrubber(node_id=A, disk=LocalDisk(writer), clock=ManualClock(), scrub=scrub, **parts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrubber.run)
        await scrub.noted.wait()
        assert (group.failed, reopened) == (None, [])

        (target,) = log.scrub_targets()
        data = bytearray(target.path.read_bytes())
        data[BLOCK_HEAD_BYTES + 60] ^= 1
        target.path.write_bytes(data)
        await repaired.wait()
        nursery.cancel_scope.cancel()

    assert scrubber.statistics().blocks_damaged == 1
    assert reopened == [GROUP_ID]
    assert repairs.asked == [(log, [B])]
    log.close()
    writer.stop()


async def test_a_replica_that_stopped_for_another_reason_is_left_alone(autojump_clock: MockClock) -> None:
    del autojump_clock
    group: Any = FakeGroup(log=None, failed=OSError(5, "write"))  # type: ignore[arg-type]  # it has no log to read
    reopened: list[GroupId] = []

    async def reopen(group_id: GroupId, _swap: Callable[[], Awaitable[GroupLog]]) -> None:
        await trio.lowlevel.checkpoint()
        reopened.append(group_id)

    parts: dict[str, Any] = {"disk": None, "groups": lambda: [group], "repairs": FakeRepairs(), "reopen": reopen}
    scrubber = Scrubber(node_id=A, clock=ManualClock(), **parts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrubber.run)
        await trio.sleep(10 * LOOK_S)
        assert reopened == []
        group.failed = StoreCorrupt("entry 3")
        await trio.sleep(2 * LOOK_S)
        nursery.cancel_scope.cancel()
    assert reopened == [GROUP_ID] * len(reopened)
    assert reopened
