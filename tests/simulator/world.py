"""A deterministic world: virtual time, one seeded random source, events in order.

Everything that happens in a run follows from its seed. Times are integers in nanoseconds.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable

from jetraft.store.model.clock import NS_PER_S, ManualClock

US = 1_000
MS = 1_000_000


class ViolationError(BaseException):
    """A promise of Raft was broken; the message says which, where and when.

    Not an Exception: one that is raised inside `apply` must not be taken for a bug of the state machine by the group.
    """


class World:
    """Events, time and luck."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(now_ns=100 * NS_PER_S)
        self.counts: Counter[str] = Counter()
        self.history: list[str] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns

    def at(self, when_ns: int, event: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._scheduled += 1
        heapq.heappush(self._heap, (max(when_ns, self.now_ns), self._scheduled, event))

    def after(self, delay_ns: int, event: Callable[[], None]) -> None:
        """Let something happen after a while."""
        self.at(self.now_ns + delay_ns, event)

    def run_until(self, end_ns: int) -> None:
        """Let time pass, and everything in it happen."""
        while self._heap and self._heap[0][0] <= end_ns:
            when_ns, _, event = heapq.heappop(self._heap)
            self.clock.now_ns = when_ns
            event()
        self.clock.now_ns = end_ns

    def between(self, low_ns: float, high_ns: float) -> int:
        """A random duration."""
        return self.rng.randint(int(low_ns), int(high_ns))

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.rng.random() < probability

    def note(self, text: str) -> None:
        """Keep a line of the run's story, printed when a seed fails."""
        self.history.append(f"{self.now_ns / NS_PER_S - 100:9.4f} {text}")
