"""When a store stops taking messages for want of room, when it goes on, and how large a block may be then."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.disk.io import DiskSize, LocalDisk, Writer
from jetraft.store.disk.space import (
    BLOCK_SHARE,
    LOG_NEED_BYTES,
    LOOK_NS,
    RESERVE_BYTES,
    SpaceWatch,
    affordable_block_bytes,
    need_bytes,
    reserve_bytes,
)
from jetraft.store.model.files.block_sizes import BLOCK_BYTES_FIRST, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN

LARGE = 1 << 40
MIB = 1 << 20


def watch_of(free: list[int], *, total: int = 400) -> SpaceWatch:
    """A disk of which a quarter is the reserve."""
    return SpaceWatch(lambda: DiskSize(free=free[0], total=total))


def test_below_the_reserve_it_is_low_and_a_quarter_above_it_is_not() -> None:
    free = [1000]
    watch = watch_of(free)
    seen = []
    for step, left in enumerate([1000, 100, 99, 0, 110, 124, 125, 110, 99]):
        free[0] = left
        seen.append(watch.is_low(step * LOOK_NS))
    assert seen == [False, False, True, True, True, True, False, False, True]
    assert watch.statistics().times_low == 2


def test_it_looks_once_in_a_while() -> None:
    looks: list[int] = []

    def look() -> DiskSize:
        looks.append(1)
        return DiskSize(free=0, total=400)

    watch = SpaceWatch(look)
    for now_ns in (0, 1, LOOK_NS - 1):
        assert watch.is_low(now_ns)
    assert len(looks) == 1
    watch.is_low(LOOK_NS)
    assert len(looks) == 2


def test_a_real_file_system_is_asked(tmp_path: Path) -> None:
    watch = SpaceWatch.of(LocalDisk(Writer(1)), tmp_path)
    watch.is_low(0)
    assert 0 < watch.free_bytes < 1 << 60
    assert 0 < watch.reserve_bytes <= RESERVE_BYTES + 2 * LOG_NEED_BYTES


def test_the_reserve_grows_with_the_number_of_logs() -> None:
    logs = [1]
    watch = SpaceWatch(lambda: DiskSize(free=RESERVE_BYTES + 50 * MIB, total=LARGE), lambda: logs[0])
    assert not watch.is_low(0)
    logs[0] = 1000
    assert watch.is_low(LOOK_NS)
    assert watch.reserve_bytes == reserve_bytes(1000, LARGE)


def test_a_small_disk_is_not_all_reserve() -> None:
    assert reserve_bytes(1000, 300 * MIB) == 75 * MIB
    assert need_bytes(1000, 300 * MIB) == 15 * MIB


@given(logs=st.integers(0, 100_000), total=st.integers(1 << 20, 1 << 50))
def test_what_the_logs_need_is_always_within_the_reserve(logs: int, total: int) -> None:
    assert need_bytes(logs, total) * 2 <= reserve_bytes(logs, total)


def test_less_than_the_logs_need_is_exhausted() -> None:
    free = [LARGE]
    watch = SpaceWatch(lambda: DiskSize(free=free[0], total=LARGE))
    assert not watch.is_exhausted(0)
    free[0] = need_bytes(1, LARGE)
    assert not watch.is_exhausted(LOOK_NS)
    assert watch.is_low(LOOK_NS)
    free[0] -= 1
    assert watch.is_exhausted(2 * LOOK_NS)


@pytest.mark.parametrize(
    ("wanted", "room", "expected"),
    [
        (BLOCK_BYTES_MAX, LARGE, BLOCK_BYTES_MAX),
        (BLOCK_BYTES_MAX, BLOCK_BYTES_MAX * BLOCK_SHARE, BLOCK_BYTES_MAX),
        (BLOCK_BYTES_MAX, 256 * MIB, 4 * MIB),
        (2 * BLOCK_BYTES_MIN, 0, BLOCK_BYTES_MIN),
        (BLOCK_BYTES_FIRST, 0, BLOCK_BYTES_FIRST),  # of a quiet stream: it wants less than the least
    ],
)
def test_a_block_takes_a_share_of_the_room(wanted: int, room: int, expected: int) -> None:
    assert affordable_block_bytes(wanted, room) == expected


@given(wanted=st.integers(1, BLOCK_BYTES_MAX), room=st.integers(0, 1 << 50))
def test_a_block_is_never_larger_than_wanted_nor_small_without_need(wanted: int, room: int) -> None:
    size = affordable_block_bytes(wanted, room)
    assert min(wanted, BLOCK_BYTES_MIN) <= size <= wanted
    assert size == wanted or size <= max(BLOCK_BYTES_MIN, room // BLOCK_SHARE)
