"""Ends batches that wait too long for their next message: one timer for all of a stream's, during one term."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.cluster.streams.batches.batching import Batching
    from jetraft.cluster.streams.publishing.publish import Abandoned
    from jetraft.cluster.streams.stamps import StampClock


class BatchTimer:
    """Set while there are batches; `arm` after one has begun."""

    def __init__(
        self, site: Site, stamps: StampClock, batching: Batching, *, abandon: Callable[[Abandoned], None]
    ) -> None:
        """`stamps` is the clock that the batches are staged by."""
        self._site = site
        self._stamps = stamps
        self._batching = batching
        self._abandon = abandon
        self._timer: TimerHandle | None = None

    def arm(self) -> None:
        """Wake at the first deadline. A timer that is set stays: deadlines only move away, and it looks again."""
        deadline_ns = self._batching.deadline_ns
        if self._timer is None and deadline_ns is not None:
            wait_ns = max(0, deadline_ns - self._stamps.now_ns())
            self._timer = self._site.timers.call_at(self._site.clock.mono_ns() + wait_ns, self._look)

    def end(self) -> None:
        """The term is over: what is staged is dropped, and no publisher hears of it."""
        self._batching.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        for abandoned in self._batching.expire(self._stamps.now_ns()):
            self._abandon(abandoned)
        self.arm()
