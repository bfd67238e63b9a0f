"""The clients' share of the memory budget, where there is one: the plane's bound of what waits follows what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

if TYPE_CHECKING:
    from jetraft.api.plane._plane import Plane
    from jetraft.api.sessions.session import Sessions
    from jetraft.cluster.memory_budget import MemoryBudget
    from jetraft.store.model.clock import Clock

LOOK_S = 0.05  # a turn may receive a quarter of the bound, and is rarely as long
CONNECTION_BYTES = 7 << 10  # measured with 10,000 that are idle: 5 KiB in the process, 1.6 KiB of the kernel's


async def follow_memory(plane: Plane, sessions: Sessions, clock: Clock) -> None:
    """Follow what is left until cancelled; nothing without a limit."""
    if sessions.memory is not None:
        await ClientMemory(sessions.memory, plane, sessions, clock).run()


@attrs.frozen
class ClientMemory:
    """See the module. One task (`run`)."""

    budget: MemoryBudget
    plane: Plane
    sessions: Sessions
    clock: Clock

    def __attrs_post_init__(self) -> None:
        self.budget.register("clients' buffers", self.plane.unread_bytes)
        self.budget.register("connections", lambda: len(self.sessions.by_cid) * CONNECTION_BYTES)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await trio.sleep(LOOK_S)

    def look(self) -> None:
        """Let so much wait as may now; who has the most of what is more loses its connection."""
        self.plane.limit_unread(self.budget.for_clients_bytes(self.plane.unread_bytes(), self.clock.mono_ns()))
