"""How much room the file system of a store has left, and when publishing must stop so that everything else can go on.

A full disk is a normal state. Below a reserve no new messages are admitted; what remains is for what makes room again
and for what must not fail: deletes, purges, acknowledgements, checkpoints, votes. Publishing goes on by itself when
there is room; a little more than the reserve, so that one trim does not make it start and stop in turns.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.io import free_bytes
from jetraft.store.log_start import BLOCK_BYTES_MAX
from jetraft.store.model.clock import NS_PER_S

RESERVE_BYTES: Final = max(64 << 20, 2 * BLOCK_BYTES_MAX)  # the blocks that a log may start while it removes others
RESUME_FACTOR_PERCENT: Final = 125
LOOK_NS: Final = NS_PER_S // 20  # at 1 GB/s the reserve outlasts that; asking the kernel takes 2 µs


@attrs.frozen(kw_only=True, slots=True)
class SpaceStatistics:
    """A snapshot of a watch's figures."""

    free_bytes: int
    reserve_bytes: int
    is_low: bool
    times_low: int


class SpaceWatch:
    """Answers from one look at the file system for a while; `free` is what a process may still write, in bytes."""

    def __init__(self, free: Callable[[], int], reserve_bytes: int = RESERVE_BYTES) -> None:
        self._free = free
        self._reserve_bytes = reserve_bytes
        self._free_bytes = 0
        self._look_again_ns: int | None = None
        self._is_low = False
        self._times_low = 0

    @classmethod
    def of(cls, path: Path, reserve_bytes: int = RESERVE_BYTES) -> "SpaceWatch":
        """The watch of the file system that holds `path`."""
        return cls(partial(free_bytes, path), reserve_bytes)

    def is_low(self, now_ns: int) -> bool:
        """Whether new messages must be refused. `now_ns` is monotonic."""
        if self._look_again_ns is None or now_ns >= self._look_again_ns:
            self._look_again_ns = now_ns + LOOK_NS
            self._free_bytes = self._free()
            was_low = self._is_low
            enough = self._reserve_bytes * RESUME_FACTOR_PERCENT // 100 if was_low else self._reserve_bytes
            self._is_low = self._free_bytes < enough
            self._times_low += self._is_low and not was_low
        return self._is_low

    def room_bytes(self) -> int:
        """What may be written above the reserve."""
        return max(0, self._free() - self._reserve_bytes)

    def statistics(self) -> SpaceStatistics:
        """Figures for monitoring and tests."""
        return SpaceStatistics(
            free_bytes=self._free_bytes,
            reserve_bytes=self._reserve_bytes,
            is_low=self._is_low,
            times_low=self._times_low,
        )
