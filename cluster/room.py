"""Watches the room on this node's disk: says when it runs out, and keeps the emergency file (store/disk/emergency.py).

Each part decides what it refuses while there is little (`SpaceWatch.is_low`); what gives space back is
the compactor, which does not wait then.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from jetraft.store.disk.emergency import PLENTY_FACTOR, EmergencyAction
from jetraft.store.disk.io import run_blocking
from jetraft.store.model.clock import tick_s
from jetraft.store.model.events import DISK_HAS_ROOM, DISK_NEARLY_FULL

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.store.disk.emergency import EmergencyFile
    from jetraft.store.disk.space import SpaceWatch
    from jetraft.store.model.clock import Clock

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
REST_S_MAX: Final = 1.0  # for an operator, who looks at the log
FASTEST_BYTES_PER_S: Final = 1 << 30  # nothing fills a disk sooner, as with LOOK_NS of store/disk/space.py


class RoomKeeper:
    """See the module. One task (`run`); `look` once before the first log is opened."""

    def __init__(
        self, *, clock: Clock, space: SpaceWatch, emergency: EmergencyFile, on_low: Callable[[], None]
    ) -> None:
        """`on_low` is called when the disk becomes nearly full."""
        self._clock = clock
        self._space = space
        self._emergency = emergency
        self._was_low = False
        self._on_low = on_low

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await trio.sleep_until(tick_s(trio.current_time(), self.rest_s()))

    def rest_s(self) -> float:
        """How long nothing can happen that `look` has to answer: until the disk may have less than it cares for."""
        left_bytes = self._space.free_bytes - PLENTY_FACTOR * self._space.reserve_bytes
        return min(max(LOOK_S, left_bytes / FASTEST_BYTES_PER_S), REST_S_MAX)

    async def look(self) -> None:
        """Do what is to be done now."""
        space = self._space
        is_low = space.is_low(self._clock.mono_ns())
        if is_low and not self._was_low:
            DISK_NEARLY_FULL.log(free_bytes=space.free_bytes, reserve_bytes=space.reserve_bytes)
            self._on_low()
        elif self._was_low and not is_low:
            DISK_HAS_ROOM.log(free_bytes=space.free_bytes)
        self._was_low = is_low
        verdict = self._emergency.judge(
            free_bytes=space.free_bytes, reserve_bytes=space.reserve_bytes, need_bytes=space.need_bytes
        )
        try:
            if verdict is EmergencyAction.MAKE:
                await run_blocking(partial(self._emergency.make, space.need_bytes))
            elif verdict is EmergencyAction.REMOVE:
                await run_blocking(self._emergency.remove)
        except OSError as error:
            log.warning("the emergency file of the store: %s", error)
