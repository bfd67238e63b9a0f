"""Timers of streams, consumers and groups: one heap of deadlines per node, served by one task.

A callback runs synchronously inside a turn; `run` ends each round of them with the reactor's `end_turn`.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Final

import attrs
import trio

from jetraft.store.model.clock import NS_PER_S, Clock

FAR_NS: Final = (1 << 63) - 1  # the largest deadline that the compiled loop takes


@attrs.define(eq=False)
class TrioTimerHandle:
    """A timer that can be cancelled."""

    callback: Callable[[], None] | None

    def cancel(self) -> None:
        """Do not call back. No error after the deadline."""
        self.callback = None


@attrs.define
class TrioTimers:
    """A heap of deadlines in monotonic nanoseconds."""

    clock: Clock
    end_turn: Callable[[], None]
    within_turn: Callable[[Callable[[], None]], Callable[[], None]] = lambda function: function
    _heap: list[tuple[int, int, TrioTimerHandle]] = attrs.field(factory=list)
    _order: "itertools.count[int]" = attrs.field(factory=itertools.count)
    _wake: trio.Event = attrs.field(factory=trio.Event)

    def call_at(self, mono_ns: int, callback: Callable[[], None]) -> TrioTimerHandle:
        """Call back once the monotonic clock reaches `mono_ns`; callbacks with one deadline keep their order.

        A deadline above 64 bits, such as now plus a client's longest duration, becomes FAR_NS.
        """
        mono_ns = min(mono_ns, FAR_NS)
        handle = TrioTimerHandle(callback)
        earliest = not self._heap or mono_ns < self._heap[0][0]
        heapq.heappush(self._heap, (mono_ns, next(self._order), handle))
        if earliest:
            self._wake.set()
        return handle

    def run_due(self) -> int:
        """Call back for every deadline that has passed; returns the number of calls."""
        now_ns, called = self.clock.mono_ns(), 0
        while self._heap and self._heap[0][0] <= now_ns:
            callback = heapq.heappop(self._heap)[2].callback
            if callback is not None:
                self.within_turn(callback)()
                called += 1
        return called

    def next_deadline_ns(self) -> int:
        """The earliest deadline, cancelled or not; FAR_NS when there is none."""
        return self._heap[0][0] if self._heap else FAR_NS

    async def run(self) -> None:
        """Serve the heap until cancelled."""
        while True:
            while self._heap and self._heap[0][2].callback is None:
                heapq.heappop(self._heap)
            # One round of callbacks at most between two passes of the scheduler.
            if self.next_deadline_ns() > self.clock.mono_ns():
                await self._wait()
            else:  # a deadline that has passed, such as a consumer's with more to deliver, does not pay for a wait
                await trio.lowlevel.checkpoint()
            self._wake = trio.Event()
            if self.run_due():
                self.end_turn()

    async def _wait(self) -> None:
        """Return at the earliest deadline, or when an earlier one is added."""
        if not self._heap:
            await self._wake.wait()
            return
        wait_s = max(0, self._heap[0][0] - self.clock.mono_ns()) / NS_PER_S
        with trio.move_on_after(wait_s):
            await self._wake.wait()

    def statistics(self) -> dict[str, int]:
        """The number of deadlines in the heap."""
        return {"waiting": len(self._heap)}
