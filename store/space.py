"""How much room the file system of a store has left, what is kept back of it, and how large the next block may be.

A full disk is a normal state. Below a reserve no new messages are admitted; what remains is for what makes room again
and for what must not fail: deletes, purges, acknowledgements, checkpoints, votes. Publishing goes on by itself when
there is room; a little more than the reserve, so that one trim does not make it start and stop in turns.

Three amounts, each with its formula below:

    reserve    publishing stops below it: what all logs may still write before they have given space back
    need       what the logs cannot do without: one small block and a checkpoint each. The emergency file
               (store/emergency.py) holds as much; a log that found no room is not opened again before there is as much
    room       what is free above the reserve: a new block takes a share of it, so that many logs that begin one at the
               same time do not take it all, and is small when there is hardly any
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.block import BLOCK_BYTES_MIN
from jetraft.store.io import Disk, DiskSize
from jetraft.store.log_start import BLOCK_BYTES_MAX
from jetraft.store.model.clock import NS_PER_S

RESERVE_BYTES: Final = max(64 << 20, 2 * BLOCK_BYTES_MAX)  # what is admitted between two looks, and a compaction's copy
LOG_NEED_BYTES: Final = BLOCK_BYTES_MIN + (32 << 10)  # a small block; a small checkpoint, its predecessor, the trim
LOG_RESERVE_BYTES: Final = 2 * LOG_NEED_BYTES  # a purge begins a block, and so does the entry that completes its trim
NEED_BYTES: Final = 8 << 20  # for the node: the meta group's checkpoint, one of a large stream, small files
RESERVE_PERCENT_MAX: Final = 25  # of the file system: a small disk is for messages too
NEED_PERCENT_MAX: Final = 5
RESUME_FACTOR_PERCENT: Final = 125
LOOK_NS: Final = NS_PER_S // 20  # at 1 GB/s the reserve outlasts that; asking the kernel takes 2 µs
ROOM_SHARE: Final = 64  # so many logs may begin a block each: what they leave unused is lost to the others for a while


@attrs.frozen(kw_only=True, slots=True)
class SpaceStatistics:
    """A snapshot of a watch's figures."""

    free_bytes: int
    reserve_bytes: int
    is_low: bool
    times_low: int


def reserve_bytes(logs: int, total_bytes: int) -> int:
    """Below how much free space a node with so many logs takes no messages."""
    return min(RESERVE_BYTES + logs * LOG_RESERVE_BYTES, total_bytes * RESERVE_PERCENT_MAX // 100)


def need_bytes(logs: int, total_bytes: int) -> int:
    """What so many logs need to checkpoint, trim and elect."""
    return min(NEED_BYTES + logs * LOG_NEED_BYTES, total_bytes * NEED_PERCENT_MAX // 100)


def affordable_block_bytes(wanted_bytes: int, room_bytes: int) -> int:
    """The size of a block that was to be so large: its share of the room, and BLOCK_BYTES_MIN when that is less."""
    share = room_bytes // ROOM_SHARE
    return wanted_bytes if share >= wanted_bytes else min(wanted_bytes, max(share, BLOCK_BYTES_MIN))


class SpaceWatch:
    """Answers from one look at the file system for a while. `logs` counts those that write to it."""

    def __init__(self, look: Callable[[], DiskSize], logs: Callable[[], int] = lambda: 1) -> None:
        self._look = look
        self._logs = logs
        self._size = DiskSize(free=0, total=0)
        self._look_again_ns: int | None = None
        self._is_low = False
        self._times_low = 0

    @classmethod
    def of(cls, disk: Disk, path: Path, logs: Callable[[], int] = lambda: 1) -> "SpaceWatch":
        """The watch of the file system that holds `path`."""
        return cls(lambda: disk.room(path), logs)

    def is_low(self, now_ns: int) -> bool:
        """Whether new messages must be refused. `now_ns` is monotonic."""
        if self._look_again_ns is None or now_ns >= self._look_again_ns:
            self._look_again_ns = now_ns + LOOK_NS
            self._size = self._look()
            was_low, reserve = self._is_low, self.reserve_bytes
            enough = reserve * RESUME_FACTOR_PERCENT // 100 if was_low else reserve
            self._is_low = self._size.free < enough
            self._times_low += self._is_low and not was_low
        return self._is_low

    def is_exhausted(self, now_ns: int) -> bool:
        """Whether less is free than the logs need to go on."""
        self.is_low(now_ns)
        return self._size.free < self.need_bytes

    @property
    def reserve_bytes(self) -> int:
        """For as many logs as there are now, on the disk as it was at the last look."""
        return reserve_bytes(self._logs(), self._size.total)

    @property
    def need_bytes(self) -> int:
        """The same."""
        return need_bytes(self._logs(), self._size.total)

    @property
    def free_bytes(self) -> int:
        """As of the last look."""
        return self._size.free

    def room_bytes(self) -> int:
        """What may be written above the reserve. Looks: to be asked now and then, not for each message."""
        self._size = self._look()
        return max(0, self._size.free - self.reserve_bytes)

    def statistics(self) -> SpaceStatistics:
        """Figures for monitoring and tests."""
        return SpaceStatistics(
            free_bytes=self._size.free,
            reserve_bytes=self.reserve_bytes,
            is_low=self._is_low,
            times_low=self._times_low,
        )
