"""The watch of the disk's room looks often where there is little, and rarely where nothing can fill the disk soon."""

from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from jetraft.cluster.room import FASTEST_BYTES_PER_S, LOOK_S, REST_S_MAX, RoomKeeper
from jetraft.store.disk.emergency import PLENTY_FACTOR, EmergencyFile
from jetraft.store.disk.io import DiskSize
from jetraft.store.disk.space import SpaceWatch, reserve_bytes
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.trio_clock import TrioClock

TOTAL = 1 << 40
PLENTY = PLENTY_FACTOR * reserve_bytes(1, TOTAL)
SECONDS = 20


@pytest.mark.parametrize(
    ("free", "pause_s"),
    [
        (TOTAL, REST_S_MAX),
        (PLENTY + FASTEST_BYTES_PER_S, REST_S_MAX),
        (PLENTY + FASTEST_BYTES_PER_S // 2, REST_S_MAX / 2),
        (PLENTY, LOOK_S),
        (0, LOOK_S),
    ],
)
async def test_the_disk_is_looked_at_before_it_can_be_full(
    free: int, pause_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    looks: list[float] = []

    def look() -> DiskSize:
        looks.append(trio.current_time())
        return DiskSize(free=free, total=TOTAL)

    clock = TrioClock()
    space = SpaceWatch(look)
    file = EmergencyFile(LossyDisk(), Path("/emergency"), allocated_bytes=0)
    keeper = RoomKeeper(clock=clock, space=space, emergency=file, on_low=lambda: None)
    with trio.move_on_after(SECONDS):
        await keeper.run()
    pauses = [later - sooner for sooner, later in pairwise(looks[1:])]
    assert pauses == [pytest.approx(pause_s)] * len(pauses)
    assert len(pauses) >= SECONDS / REST_S_MAX - 3
