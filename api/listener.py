"""The door for clients: accepts sockets, greets them, forgets them when they have gone."""

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress

import attrs
import trio

from jetraft.api.reactor import Reactor
from jetraft.api.reasons import TEXTS, Reason
from jetraft.api.routing._plane import Plane
from jetraft.api.session import Session, Sessions
from jetraft.store.model.clock import NS_PER_S, Clock

BACKLOG = 1024
ACCEPTS_PER_WAKE = 64  # bounded, so that a flood of connections leaves room for those that are served
ACCEPT_RETRY_S = 0.1  # out of descriptors: try again after a pause, as net/http does
MAXIMUM_CONNECTIONS_EXCEEDED = b"-ERR 'maximum connections exceeded'\r\n"
AUTHENTICATION_TIMEOUT = b"-ERR 'Authentication Timeout'\r\n"


class ListenError(Exception):
    """Nobody can listen on the address that was asked for; the text is one line in nats-server's words."""


def listen(host: str, port: int) -> socket.socket:
    """A listening, non-blocking socket; port -1 lets the system choose. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, max(port, 0)))
        sock.listen(BACKLOG)
    except socket.gaierror as error:
        sock.close()
        raise ListenError(f"listen tcp: lookup {host}: no such host") from error
    except OSError as error:
        sock.close()
        reason = os.strerror(error.errno or 0).lower()
        raise ListenError(f"listen tcp {host}:{port}: bind: {reason}") from error
    sock.setblocking(False)  # noqa: FBT003  the socket module's own signature
    return sock


@attrs.define(eq=False)
class ClientListener:
    """Accepts client connections on one socket and hands them to the plane."""

    sock: socket.socket
    plane: Plane
    reactor: Reactor
    sessions: Sessions
    clock: Clock
    log_debug: Callable[[str], None]

    async def run(self) -> None:
        """Accept until cancelled or closed; the socket is closed then."""
        try:
            with suppress(trio.ClosedResourceError):
                while self.sock.fileno() >= 0:
                    await trio.lowlevel.wait_readable(self.sock)
                    if not self._accept_some():
                        await trio.sleep(ACCEPT_RETRY_S)
        finally:
            self.sock.close()

    def close(self) -> None:
        """Accept nobody any more; those who are connected stay."""
        trio.lowlevel.notify_closing(self.sock)
        self.sock.close()

    def _accept_some(self) -> bool:
        """Take what waits; False when the process has no descriptors left."""
        for _ in range(ACCEPTS_PER_WAKE):
            try:
                sock, address = self.sock.accept()
            except BlockingIOError:
                break
            except ConnectionError:
                continue
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    return False
                raise
            self._welcome(sock, address[0], address[1])
        self.reactor.end_turn()
        return True

    def _welcome(self, sock: socket.socket, ip: str, port: int) -> None:
        sock.setblocking(False)  # noqa: FBT003  the socket module's own signature
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cid = self.plane.open(sock.detach(), b"", auth_required=self.sessions.auth_required)
        session = Session(cid, ip, port, self.clock.unix_ns())
        self.plane.write(cid, self.sessions.info(session))
        if len(self.sessions.by_cid) >= self.sessions.options.max_connections:
            self.plane.close(cid, Reason.CLIENT_CLOSED, MAXIMUM_CONNECTIONS_EXCEEDED)
        else:
            self.sessions.by_cid[cid] = session

    def closed(self, cid: int, reason: int, _counters: object) -> None:
        """Forget a connection that the plane has closed."""
        session = self.sessions.by_cid.pop(cid, None)
        if session is not None:
            text = TEXTS.get(Reason(reason), "Unknown")
            self.log_debug(f"{session.ip}:{session.port} - cid:{cid} - Client connection closed: {text}")

    async def run_auth_timeouts(self) -> None:
        """Close clients that do not name themselves in time; only needed where somebody has to."""
        timeout_ns = self.sessions.options.auth_timeout_ns
        while True:
            await trio.sleep(timeout_ns / NS_PER_S / 4)
            now_ns = self.clock.mono_ns()
            for cid in self.plane.connection_ids():
                counters = self.plane.connection(cid)
                if counters and not counters["connected"] and now_ns - counters["started_ns"] > timeout_ns:
                    self.plane.close(cid, Reason.AUTHENTICATION_TIMEOUT, AUTHENTICATION_TIMEOUT)
            self.reactor.end_turn()
