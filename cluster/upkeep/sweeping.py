"""Deletes what was removed while this node was away, or before it could start it, once its table is current.

A stream that is deleted while its replica runs goes at once (meta/backend.py). A replica that does not run leaves its
data where it is: a stream whose row came and went in one piece while this node caught up, or one that a killed process
had just begun. The table of a node that was just started is an old one, and what it lacks may only be unread; so
nothing is looked for before the meta leader has confirmed it. After that, soon after each removal, and now and then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from jetraft.store.model.clock import tick_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.state.assignment import StreamKey

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
SOON_S: Final = 2.0  # after a removal, with all others of that time: looking at 10,000 groups takes some 20 ms
SWEEP_S: Final = 60.0  # in any case: it costs little, and finds what no event announced


class Sweeper:
    """See the module. `is_current` asks the meta leader; `empty_trash` removes what an earlier process threw away."""

    def __init__(
        self,
        machine: MetaMachine,
        *,
        is_current: Callable[[], Awaitable[bool]],
        empty_trash: Callable[[], Awaitable[None]],
        sweep: Callable[[], Awaitable[None]],
    ) -> None:
        self._machine = machine
        self._is_current = is_current
        self._empty_trash = empty_trash
        self._sweep = sweep
        self._due_s = -1.0  # of trio's clock
        machine.on_change.connect(self._note)

    async def run(self) -> None:
        """Sweep until cancelled; what fails is tried again later."""
        is_emptied = False
        while True:
            try:
                if not is_emptied:
                    await self._empty_trash()
                    is_emptied = True
                if trio.current_time() >= self._due_s and await self._is_current():
                    self._due_s = trio.current_time() + SWEEP_S
                    await self._sweep()
            except OSError as error:  # no descriptor is left for a directory now, for instance
                log.warning("the data of deleted streams is looked for again later: %s", error)
                self._due_s = trio.current_time() + SWEEP_S
                await trio.sleep(SWEEP_S)
            await trio.sleep_until(tick_s(trio.current_time(), LOOK_S))

    def _note(self, keys: Sequence[StreamKey]) -> None:
        """Streams have changed: those that are gone may have left something here."""
        if any(self._machine.table.get(key) is None for key in keys):
            self._due_s = min(self._due_s, trio.current_time() + SOON_S)
