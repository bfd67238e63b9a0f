"""A deterministic world: virtual time, one seeded random source, events in order.

Everything that happens in a run follows from its seed. Times are integers in nanoseconds.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable

import attrs

from jetraft.store.model.clock import NS_PER_S, ManualClock

US = 1_000
MS = 1_000_000


class ViolationError(BaseException):
    """A promise was broken; the message says which, where and when.

    Not an Exception: one that is raised inside `apply` must not be taken for a bug of the state machine by the group.
    """


class World:
    """Events, time and luck."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(now_ns=100 * NS_PER_S)
        self.counts: Counter[str] = Counter()
        self.history: list[str] = []
        self.is_calm = False  # the faults are over
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns

    def at(self, when_ns: int, event: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._scheduled += 1
        heapq.heappush(self._heap, (max(when_ns, self.clock.now_ns), self._scheduled, event))

    def after(self, delay_ns: int, event: Callable[[], None]) -> None:
        """Let something happen after a while."""
        self.at(self.clock.now_ns + delay_ns, event)

    def run_until(self, end_ns: int) -> None:
        """Let time pass, and everything in it happen."""
        heap, clock = self._heap, self.clock
        while heap and heap[0][0] <= end_ns:
            clock.now_ns, _, event = heapq.heappop(heap)
            event()
        clock.now_ns = end_ns

    def between(self, low_ns: float, high_ns: float) -> int:
        """A random duration."""
        low = int(low_ns)
        return low + int(self.rng.random() * (int(high_ns) - low + 1))

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.rng.random() < probability

    def note(self, text: str) -> None:
        """Keep a line of the run's story, printed when a seed fails."""
        self.history.append(f"{self.now_ns / NS_PER_S - 100:9.4f} {text}")


@attrs.define
class HostClock:
    """The clocks of one machine: each begins where its operator set it, and may jump. Implements Clock.

    The monotonic one only jumps forward, as when a virtual machine was frozen and nobody told it.
    """

    world: World
    mono_offset_ns: int = 0
    unix_offset_ns: int = 0

    def mono_ns(self) -> int:
        return self.world.clock.now_ns + self.mono_offset_ns

    def unix_ns(self) -> int:
        return self.world.clock.unix_ns() + self.unix_offset_ns

    def world_ns(self, mono_ns: int) -> int:
        """When, in the world, this clock says `mono_ns`."""
        return mono_ns - self.mono_offset_ns
