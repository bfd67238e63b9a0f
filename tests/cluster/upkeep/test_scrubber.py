"""Bit rot in a block at rest stops its group."""

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from jetraft.cluster.upkeep.scrubber import Scrubber
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames.format import BLOCK_HEAD_BYTES
from jetraft.store.log.scrub import Scrub, Target
from jetraft.store.model.clock import NS_PER_S, ManualClock
from jetraft.store.port import StoreCorrupt
from tests.cluster.streams.fake_group import FakeGroup, sealed_log


class NotingScrub(Scrub):
    """Says when a block was read."""

    def __init__(self, *, period_ns: int) -> None:
        super().__init__(period_ns=period_ns)
        self.noted = trio.Event()

    def note(self, target: Target, *, damaged: bool) -> None:
        super().note(target, damaged=damaged)
        self.noted.set()
        self.noted = trio.Event()


async def test_bit_rot_in_a_block_at_rest_stops_the_group(tmp_path: Path, autojump_clock: MockClock) -> None:
    del autojump_clock
    writer = Writer(1)
    log = sealed_log(tmp_path, writer)
    group = FakeGroup(log)
    scrub = NotingScrub(period_ns=NS_PER_S)
    groups: Any = lambda: [group]  # noqa: E731  (typed for what a real group is)
    scrubber = Scrubber(disk=LocalDisk(writer), clock=ManualClock(), scrub=scrub, groups=groups)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrubber.run)
        await scrub.noted.wait()
        assert group.failed is None

        target, _ = log.upkeep.scrub_targets()
        data = bytearray(target.path.read_bytes())
        data[BLOCK_HEAD_BYTES + 60] ^= 1
        target.path.write_bytes(data)
        while group.failed is None:
            await scrub.noted.wait()
        nursery.cancel_scope.cancel()

    assert isinstance(group.failed, StoreCorrupt)
    assert scrubber.statistics().blocks_damaged == 1
    log.close()
    writer.stop()


async def test_a_damaged_checkpoint_is_replaced_and_the_group_goes_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    del autojump_clock
    writer = Writer(1)
    log = sealed_log(tmp_path, writer)
    log.save_checkpoint(2, 1, b"members", b"state")
    log.submit()
    while log.durable_token < log.token():
        writer.drain()
    group = FakeGroup(log)
    scrub = NotingScrub(period_ns=NS_PER_S)
    groups: Any = lambda: [group]  # noqa: E731  (typed for what a real group is)
    scrubber = Scrubber(disk=LocalDisk(writer), clock=ManualClock(), scrub=scrub, groups=groups)
    (path,) = (target.path for target in log.upkeep.scrub_targets() if target.is_checkpoint)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrubber.run)
        while not group.checkpoints_renewed:
            await scrub.noted.wait()
        nursery.cancel_scope.cancel()
    assert group.failed is None
    log.close()
    writer.stop()
