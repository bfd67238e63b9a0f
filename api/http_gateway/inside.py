"""Connections to this server from inside it: for requests of HTTP that are those of a client."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import attrs
import trio

from jetraft.api.http_gateway.requests import RefusedRequestError
from jetraft.api.sessions.session import Session

if TYPE_CHECKING:
    from jetraft.api.plane._plane import Plane
    from jetraft.api.sessions.session import Sessions
    from jetraft.api.turns.reactor import Reactor
    from jetraft.store.model.clock import Clock


@attrs.frozen(eq=False)
class InsideDoor:
    """The entry for them. Their outcome is decided where that is decided for all clients."""

    plane: Plane
    reactor: Reactor
    sessions: Sessions
    clock: Clock

    def connect(self, ip: str, port: int) -> tuple[trio.SocketStream, Session]:
        """A connection which the server knows by the address of the HTTP client. Raises RefusedRequestError."""
        if len(self.sessions.by_cid) >= self.sessions.options.max_connections:
            raise RefusedRequestError(503, "maximum connections exceeded")
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)  # noqa: FBT003  the socket module's own signature
        cid = self.plane.open(theirs.detach(), b"", auth_required=self.sessions.auth_required)
        session = Session(cid, ip, port, self.clock.unix_ns())
        self.plane.write(cid, self.sessions.info(session))
        self.sessions.add(session)
        self.reactor.end_turn()
        return trio.SocketStream(trio.socket.from_stdlib_socket(ours)), session
