"""A node that reaches no majority of its cluster tells its clients to reconnect elsewhere, until it is back.

Such a node leads nothing, and no leader reaches it: publishes to streams have no responders, and requests of the API
are refused at once (cluster/calls/forward.py). Clients have no reason to look for another server, as this one answers
them. So with `cluster { reconnect_when_cut_off: true }` they are told, as in lame duck mode: INFO says `ldm`, and their
connections are closed. Drivers try the other addresses that they know before they come back to this one. Unlike in lame
duck mode the server goes on to accept: where the other servers are down, core messages of its clients still pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from jetraft.api.plane.reasons import Reason
from jetraft.store.model.clock import NS_PER_MS, NS_PER_S
from jetraft.store.model.events import CUT_OFF, CUT_OFF_ENDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.api.logs.logger import Logger
    from jetraft.api.plane._plane import Plane
    from jetraft.api.sessions.session import Sessions
    from jetraft.api.turns.reactor import Reactor
    from jetraft.store.model.clock import Clock

LOOK_S: Final = 0.25
# A silent link ends after 1.25 s (raft/mesh/peers.py); with this a client is told within two seconds. A link that is
# replaced by another one sends no client away.
PATIENCE_NS: Final = 400 * NS_PER_MS


class CutOffView(Protocol):
    """The part of the JetStream node that is asked."""

    @property
    def is_cut_off(self) -> bool:
        """Whether this node reaches no majority of its cluster now."""


@attrs.define(eq=False, kw_only=True)
class CutOffClients:
    """See the module. `is_wanted` reads the key, which may change while the server runs."""

    reach: CutOffView
    is_wanted: Callable[[], bool]
    sessions: Sessions
    plane: Plane
    reactor: Reactor
    clock: Clock
    say: Logger
    is_told: bool = False  # clients were told to leave, and not yet that they may stay
    _since_ns: int | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await trio.sleep(LOOK_S)

    def look(self) -> None:
        """Tell clients when the node was cut off for PATIENCE_NS, and when it is back."""
        now_ns = self.clock.mono_ns()
        if not self.reach.is_cut_off:
            self._since_ns = None
            if self.is_told:
                self.is_told = self.sessions.lame_duck = False
                CUT_OFF_ENDED.log()
            return
        if self._since_ns is None:
            self._since_ns = now_ns
        if not self.is_told and self.is_wanted() and now_ns - self._since_ns >= PATIENCE_NS:
            self._tell()

    def _tell(self) -> None:
        self.is_told = self.sessions.lame_duck = True
        sessions = list(self.sessions.by_cid.items())
        since_s = (self.clock.mono_ns() - (self._since_ns or 0)) / NS_PER_S
        CUT_OFF.log(seconds=round(since_s, 1), clients=len(sessions))
        for cid, session in sessions:
            if session.options.protocol:
                self.plane.write(cid, self.sessions.info(session))
        self.reactor.end_turn()  # what they are told is sent before the end
        for cid, _ in sessions:
            self.plane.close(cid, Reason.SERVER_SHUTDOWN)
        self.reactor.end_turn()
