"""Watches the memory that is left to the process below its limit: says when it runs out, and gives back what it can.

That is the cache of blocks, messages that are gone but still in logs in memory, and what the C library has kept.

Each part decides what it refuses then (`MemoryBudget`). A node without a limit has none of this.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, cast

import trio

from jetraft.cluster.memory_budget import Shortage
from jetraft.store.disk.cgroup import memory_limit_bytes
from jetraft.store.disk.io import memory_bytes
from jetraft.store.model.events import MEMORY_GIVEN_BACK, MEMORY_HAS_ROOM, MEMORY_NEARLY_FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jetraft.cluster.memory_budget import MemoryBudget
    from jetraft.raft.group import Group
    from jetraft.store.blocks.cache import BlockCache
    from jetraft.store.model.clock import Clock

LOOK_S: Final = 0.25
M_MXFAST, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = 1, -1, -3, -8  # of mallopt(3)
LARGE_BYTES: Final = 1 << 20  # the C library would raise it to 32 MiB when blocks of that size are freed
ARENAS_MAX: Final = 2


def _of_glibc(name: str) -> Callable[..., int] | None:
    """One of its functions; None with another C library."""
    try:
        return cast("Callable[..., int]", getattr(ctypes.CDLL(None), name))
    except (OSError, AttributeError):
        return None


MALLOC_TRIM: Final = _of_glibc("malloc_trim")
MALLOPT: Final = _of_glibc("mallopt")


def process_limit_bytes() -> int | None:
    """The memory limit of this process in bytes; None where nothing holds it below the machine's memory."""
    return memory_limit_bytes(memory_bytes())


def merge_at_once() -> None:
    """Have small blocks merged with their neighbours when they are freed, from now on.

    The C library would put it off to the next large allocation: 55 ms when 500,000 subscriptions had ended.
    """
    if MALLOPT is not None:
        MALLOPT(M_MXFAST, 0)


def keep_little() -> None:
    """Have large blocks returned to the kernel when they are freed, from now on: a burst of them would stay otherwise.

    Buffers of connections that were closed as slow ones would be counted beside those that come after them.
    """
    if MALLOPT is not None:
        for what, value in (
            (M_MMAP_THRESHOLD, LARGE_BYTES),
            (M_TRIM_THRESHOLD, 2 * LARGE_BYTES),
            (M_ARENA_MAX, ARENAS_MAX),
        ):
            MALLOPT(what, value)


def give_back() -> None:
    """Return freed memory to the kernel: the C library keeps it otherwise, and the group counts it as used."""
    if MALLOC_TRIM is not None:
        MALLOC_TRIM(0)


class MemoryKeeper:
    """See the module. One task (`run`)."""

    def __init__(
        self,
        *,
        clock: Clock,
        memory: MemoryBudget,
        cache: BlockCache,
        groups_in_memory: Callable[[], Iterable[Group]],
    ) -> None:
        """`groups_in_memory` gives the groups whose logs are in memory; what no longer lives in them is dropped."""
        self._clock = clock
        self._memory = memory
        self._cache = cache
        self._groups_in_memory = groups_in_memory
        self._was_low = False
        self._gave_way = False

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await trio.sleep(LOOK_S)

    def look(self) -> None:
        """Do what is to be done now."""
        memory = self._memory
        shortage = memory.shortage(self._clock.mono_ns())
        gives_way = shortage >= Shortage.CACHES
        if gives_way:
            if not self._gave_way:
                held_bytes = self._cache.statistics().bytes_held
                MEMORY_GIVEN_BACK.log(cache_bytes=held_bytes, usage=memory.describe())
            self._cache.clear()
            give_back()
        self._gave_way = gives_way
        is_low = shortage >= Shortage.STREAMS
        if is_low:
            for group in self._groups_in_memory():
                group.checkpoint(replaces_older=True)
        if is_low and not self._was_low:
            MEMORY_NEARLY_FULL.log(usage=memory.describe())
        elif self._was_low and not is_low:
            MEMORY_HAS_ROOM.log(free_bytes=memory.free_bytes)
        self._was_low = is_low
