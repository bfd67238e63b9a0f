"""A replica that its disk has stopped is opened again when that is worth trying."""

import errno
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from jetraft.cluster.upkeep.restarter import LOOK_S, Restarter
from jetraft.raft.recovery.swap import Swap
from jetraft.store.disk.io import DiskSize
from jetraft.store.disk.space import RESERVE_BYTES, SpaceWatch
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog, StoreCorrupt
from tests.cluster.streams.fake_group import A, B, FakeGroup
from tests.doubles.trio_clock import TrioClock
from tests.harness.log_lines import kinds_in


@attrs.define(eq=False)
class Stage:
    """A restarter over one group, and what it asks for. `heals` says whether an opening ends the failure."""

    group: FakeGroup
    free_bytes: int = 1 << 30
    heals: bool = True
    asked: list[tuple[GroupLog, Sequence[NodeId]]] = attrs.Factory(list)
    times_s: list[float] = attrs.Factory(list)

    async def reopen_log(self, log: GroupLog, others: Sequence[NodeId]) -> GroupLog:
        await trio.lowlevel.checkpoint()
        self.asked.append((log, others))
        return log

    async def reopen(self, swap: Swap) -> None:
        self.times_s.append(trio.current_time())
        assert swap.is_wanted()
        await swap.carry_out()
        if not self.heals:
            raise OSError(errno.EIO, "open")
        self.group.failed = None
        assert not swap.is_wanted()

    async def watch(self, seconds: float) -> None:
        """Let the restarter run for so long."""
        repairs: Any = attrs.make_class("Repairs", [])()
        repairs.__class__.reopen = lambda _self, log, others: self.reopen_log(log, others)
        parts: dict[str, Any] = {"groups": lambda: [self.group], "repairs": repairs, "reopen": self.reopen}
        mender = Restarter(
            node_id=A,
            clock=TrioClock(),
            space=SpaceWatch(lambda: DiskSize(free=self.free_bytes, total=1 << 40)),
            **parts,
        )
        with trio.move_on_after(seconds):
            await mender.run()


def stage(error: Exception | None = None, **changes: Any) -> Stage:
    return Stage(FakeGroup(MemLog(), failed=error), **changes)


async def test_damage_is_repaired_at_once_and_from_the_other_members(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    del autojump_clock
    found = stage(StoreCorrupt("entry 3"))
    await found.watch(LOOK_S / 2)
    assert found.asked == [(found.group.log, [B])]
    assert found.group.failed is None
    assert {"replica_failed", "replica_resumed"} <= kinds_in(caplog)


async def test_a_replica_that_was_stopped_on_purpose_is_left_alone(autojump_clock: MockClock) -> None:
    del autojump_clock
    found = stage(ValueError("a bug"))
    await found.watch(1000)
    assert not found.asked


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_is_tried_again_when_there_is_room_and_not_before(
    number: int, autojump_clock: MockClock
) -> None:
    del autojump_clock
    found = stage(OSError(number, "allocate"), free_bytes=1 << 20)
    await found.watch(3600)
    assert not found.asked
    found.free_bytes = 1 << 30
    await found.watch(2)
    assert found.group.failed is None


async def test_a_log_needs_less_room_than_messages_to_go_on(autojump_clock: MockClock) -> None:
    del autojump_clock
    found = stage(OSError(errno.ENOSPC, "allocate"), free_bytes=RESERVE_BYTES // 2)
    await found.watch(2)
    assert found.group.failed is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_a_lack_of_descriptors_is_tried_for_as_long_as_it_takes(number: int, autojump_clock: MockClock) -> None:
    del autojump_clock
    found = stage(OSError(number, "open"), heals=False)
    await found.watch(3600)
    assert len(found.times_s) > 100


async def test_a_disk_that_goes_on_failing_is_given_up_after_a_few_tries_further_and_further_apart(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    found = stage(OSError(errno.EIO, "fdatasync"), heals=False)
    await found.watch(3600)
    gaps = [later - earlier for earlier, later in zip(found.times_s, found.times_s[1:], strict=False)]
    assert len(found.times_s) == 6
    assert gaps == sorted(gaps)
    assert 20 < sum(gaps) < 60


async def test_one_that_has_run_well_for_long_is_tried_again_from_the_beginning(autojump_clock: MockClock) -> None:
    del autojump_clock
    found = stage()
    for _ in range(20):
        await found.watch(1000)
        found.group.failed = OSError(errno.EIO, "fdatasync")
        await found.watch(1.5)
        assert found.group.failed is None


async def test_a_file_system_that_is_read_only_is_tried_for_as_long_as_it_takes(autojump_clock: MockClock) -> None:
    del autojump_clock
    found = stage(OSError(errno.EROFS, "open"), heals=False)
    await found.watch(3600)
    assert len(found.times_s) > 100
