"""Calls at times of one node's monotonic clock. Implements the cluster layer's Timers."""

import heapq
from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class Handle:
    """A pending call."""

    callback: Callable[[], None] | None

    def cancel(self) -> None:
        self.callback = None


class SimTimers:
    """The node's turns call what is due; `on_earlier` hears of a call that comes before all others."""

    def __init__(self, on_earlier: Callable[[], None]) -> None:
        self._heap: list[tuple[int, int, Handle]] = []
        self._count = 0
        self._on_earlier = on_earlier

    def call_at(self, mono_ns: int, callback: Callable[[], None]) -> Handle:
        handle = Handle(callback)
        self._count += 1
        heapq.heappush(self._heap, (mono_ns, self._count, handle))
        if self._heap[0][2] is handle:
            self._on_earlier()
        return handle

    @property
    def next_ns(self) -> int | None:
        """When the next call is due."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_ns: int) -> None:
        """Make the calls that are due."""
        while self._heap and self._heap[0][0] <= now_ns:
            callback = heapq.heappop(self._heap)[2].callback
            if callback is not None:
                callback()
