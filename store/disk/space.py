"""Free space of a store's file system: the reserve, and the size of new blocks (decisions 40 and 50).

A full disk is a normal state. Below a reserve no new messages are admitted; the rest is for operations that free space
and those that must not fail: deletes, purges, acknowledgements, checkpoints, votes. Publishing resumes when the free
space is somewhat above the reserve, so that a single trim does not make it stop and resume repeatedly.

Three amounts, each with its formula below:

    reserve    publishing stops below it: what all logs may write before they have freed space
    need       the minimum to continue: one small block and a checkpoint for each log. The emergency file
               (store/disk/emergency.py) has this size; a log that failed for lack of space is reopened when as much is
               free
    available  free space above the reserve: a new block takes a share of it, so that many logs that start blocks at the
               same time do not exhaust it; with little space, blocks are small
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.disk.io import Disk, DiskSize
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.files.block_sizes import BLOCK_BYTES_MAX, BLOCK_BYTES_MIN

RESERVE_BYTES: Final = max(64 << 20, 2 * BLOCK_BYTES_MAX)  # admitted between two checks, and the copy of a compaction
LOG_NEED_BYTES: Final = BLOCK_BYTES_MIN + (32 << 10)  # a small block; a small checkpoint, its predecessor, the trim
LOG_RESERVE_BYTES: Final = 2 * LOG_NEED_BYTES  # a purge starts a block, and so does the entry that completes its trim
NEED_BYTES: Final = 8 << 20  # for the node: the meta group's checkpoint, one of a large stream, small files
RESERVE_PERCENT_MAX: Final = 25  # of the file system, so that a small disk can store messages too
NEED_PERCENT_MAX: Final = 5
RESUME_FACTOR_PERCENT: Final = 125
LOOK_NS: Final = NS_PER_S // 20  # the reserve lasts longer at 1 GB/s; statvfs takes 2 µs
BLOCK_SHARE: Final = 64  # this many logs can start a block at the same time; unused space in blocks is not available


@attrs.frozen(kw_only=True, slots=True)
class SpaceStatistics:
    """A snapshot of a watch's figures."""

    free_bytes: int
    reserve_bytes: int
    is_low: bool
    times_low: int


def reserve_bytes(logs: int, total_bytes: int) -> int:
    """The free space in bytes below which a node with this number of logs refuses messages."""
    return min(RESERVE_BYTES + logs * LOG_RESERVE_BYTES, total_bytes * RESERVE_PERCENT_MAX // 100)


def need_bytes(logs: int, total_bytes: int) -> int:
    """The bytes that this number of logs needs to checkpoint, trim and elect."""
    return min(NEED_BYTES + logs * LOG_NEED_BYTES, total_bytes * NEED_PERCENT_MAX // 100)


def affordable_block_bytes(wanted_bytes: int, available_bytes: int) -> int:
    """The size of a new block: `wanted_bytes`, or its share of the available space, but at least BLOCK_BYTES_MIN."""
    share = available_bytes // BLOCK_SHARE
    return wanted_bytes if share >= wanted_bytes else min(wanted_bytes, max(share, BLOCK_BYTES_MIN))


class SpaceWatch:
    """The free space, checked every LOOK_NS. `logs` returns the number of logs that write to the file system."""

    def __init__(self, look: Callable[[], DiskSize], logs: Callable[[], int] = lambda: 1) -> None:
        self._look = look
        self._logs = logs
        self._size = DiskSize(free=0, total=0)
        self._look_again_ns: int | None = None
        self._is_low = False
        self._times_low = 0

    @classmethod
    def of(cls, disk: Disk, path: Path, logs: Callable[[], int] = lambda: 1) -> "SpaceWatch":
        """The watch of the file system of `path`."""
        return cls(lambda: disk.space(path), logs)

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
        """Whether less is free than the logs need to continue."""
        self.is_low(now_ns)
        return self._size.free < self.need_bytes

    @property
    def reserve_bytes(self) -> int:
        """The reserve for the current number of logs."""
        return reserve_bytes(self._logs(), self._size.total)

    @property
    def need_bytes(self) -> int:
        """The minimum for the current number of logs."""
        return need_bytes(self._logs(), self._size.total)

    @property
    def free_bytes(self) -> int:
        """The free space at the last check."""
        return self._size.free

    def available_bytes(self) -> int:
        """The free space above the reserve. Calls the kernel each time, so not to be called for each message."""
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
