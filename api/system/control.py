"""Requests that change something on this server: KICK and LDM of one connection, RELOAD and DRAIN.

DRAIN is ours: nats-server has no such request, and there nothing answers it.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import attrs

from jetraft.api.monitor.questions import PageError, from_pairs
from jetraft.api.options.options import ReloadError
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.session import Sessions
from jetraft.store.model.encoding.fields import FLAG, UINT64, wire
from jetraft.store.model.encoding.gojson import Object


@attrs.frozen(kw_only=True, slots=True)
class ClientRequest:
    """The connection that is meant."""

    cid: int = wire(UINT64, 0)


@attrs.frozen(kw_only=True, slots=True)
class DrainRequest:
    """What DRAIN should do; without any of these it goes on with a drain."""

    begin: bool = wire(FLAG, default=False)  # forget what was handed back during an earlier drain
    end: bool = wire(FLAG, default=False)  # lead as ever
    lame_duck: bool = wire(FLAG, default=False)  # as SIGUSR2: send clients elsewhere, then end the process


@attrs.frozen(kw_only=True, eq=False)
class Control:
    """Carries them out."""

    sessions: Sessions
    plane: Plane
    reload_configuration: Callable[[], None]  # raises ReloadError
    jetstream: Any  # JetStreamNode, or None where it is not enabled

    def kick(self, pairs: Object) -> None:
        """Close a connection. Raises ArgumentError, PageError."""
        cid = from_pairs(ClientRequest, pairs, "KickClientReq").cid
        if cid not in self.sessions.by_cid:
            raise PageError("no such client or leafnode id")
        self.plane.close(cid, Reason.KICKED)

    def ldm(self, pairs: Object) -> None:
        """Tell a client to connect to another server, as before a stop. Raises ArgumentError, PageError."""
        cid = from_pairs(ClientRequest, pairs, "LDMClientReq").cid
        session = self.sessions.by_cid.get(cid)
        if session is None:
            raise PageError("no such client id")
        self.plane.write(cid, self.sessions.info(session, lame_duck=True))

    def reload(self, _pairs: Object) -> None:
        """Follow the configuration as it is now. Raises PageError; nothing has changed then."""
        try:
            self.reload_configuration()
        except ReloadError as error:
            raise PageError(str(error)) from error

    def drain(self, pairs: Object) -> dict[str, Any]:
        """Let other servers lead what this one leads; returns what is left. Raises ArgumentError, PageError."""
        wanted = from_pairs(DrainRequest, pairs, "DrainReq")
        if wanted.lame_duck:
            os.kill(os.getpid(), signal.SIGUSR2)
        if self.jetstream is None:
            return {"draining": False, "led": 0, "stay": 0, "leaderless": 0, "alone": 0, "drained": []}
        left, drained = self.jetstream.drain(wanted=not wanted.end, anew=wanted.begin)
        return {**attrs.asdict(left), "drained": drained}
