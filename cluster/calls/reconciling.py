"""A loop that compares what should be with what is, for as long as the node runs, and does what is missing.

Everything that an event starts is backed by one of these: the event only wakes the loop, or does the same step sooner.
So an event that is lost, or an attempt that fails, costs a pause and no more. The comparison is the loop's `look`; what
it leaves undone is tried again after pauses that grow, and is named in the log (unfinished.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from jetraft.cluster.calls.unfinished import FIRST_PAUSE_NS, PAUSE_MAX_NS, Unfinished
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

log = logging.getLogger(__name__)


class Reconciling:
    """See the module. One task (`run`). `look` returns what is left undone, each with the reason; it raises nothing."""

    def __init__(
        self,
        duty: str,
        look: Callable[[], Awaitable[Mapping[str, str]]],
        *,
        idle_ns: int = PAUSE_MAX_NS,
        patience_ns: int = 0,
        first_pause_ns: int = FIRST_PAUSE_NS,
    ) -> None:
        """The durations and `duty` are those of `Unfinished`."""
        self.duty = duty
        self._look = look
        self._unfinished = Unfinished(duty, idle_ns=idle_ns, patience_ns=patience_ns, first_pause_ns=first_pause_ns)
        self._woken = trio.Event()

    def wake(self) -> None:
        """Look soon."""
        self._woken.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._woken = trio.Event()  # before the look: what comes during it is looked at again
            stuck = await self._look()
            pause_ns, line = self._unfinished.looked(stuck, int(trio.current_time() * NS_PER_S))
            if line is not None:
                log.info("%s", line)
            with trio.move_on_after(pause_ns / NS_PER_S):
                await self._woken.wait()
