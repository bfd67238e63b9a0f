"""The listener for clients: accepts connections, greets them, and closes those that do not authenticate in time."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from jetraft.api.options.interfaces import WILDCARDS, client_ip, join_host_port
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.session import Session, Sessions
from jetraft.store.model.events import CONNECTION_REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.api.plane._plane import Plane
    from jetraft.api.tls.clients import Handle, Log, TlsClients
    from jetraft.api.turns.reactor import Reactor
    from jetraft.store.model.clock import Clock

BACKLOG = 1024
ACCEPTS_PER_WAKE = 64  # bounded, so that many new connections do not delay the others
TLS_ACCEPTS_PER_WAKE = 16  # each makes OpenSSL's objects for a connection
ACCEPT_RETRY_S = 0.1  # the pause when the process is out of descriptors, as in Go's net/http
TOO_MANY = "maximum connections exceeded"
MAXIMUM_CONNECTIONS_EXCEEDED = b"-ERR 'maximum connections exceeded'\r\n"


class ListenError(Exception):
    """The server cannot listen on the configured address; the text is one line in nats-server's words."""


@attrs.frozen
class ListenerParts:
    """The parts that exist when the listener is made."""

    plane: Plane
    sessions: Sessions
    reactor: Reactor
    clock: Clock
    call_at: Callable[[int, Callable[[], None]], Handle]
    say: Log


def bind(host: str, port: int, says: str = "{}") -> socket.socket:
    """Return a non-blocking socket that is bound; with port -1 the system chooses one. Raises ListenError.

    Connections are refused until `listen`: a server takes its addresses first, so that one which another program has
    ends the start, and is reached when it serves. `says` is what the error says of which socket, with the reason in the
    place of the braces.

    On any address it takes IPv4 and IPv6, as in Go, or IPv4 alone where the machine has no IPv6.
    """
    is_both = host in WILDCARDS and socket.has_dualstack_ipv6()
    sock = socket.socket(socket.AF_INET6 if is_both or ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    if port > 0:  # two sockets may have it, as long as none listens: a port that is chosen here is this socket's alone
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_both:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        sock.bind(("::" if is_both else host, max(port, 0)))
    except socket.gaierror as error:
        sock.close()
        raise ListenError(says.format(f"listen tcp: lookup {host}: no such host")) from error
    except OSError as error:
        sock.close()
        raise _refused(host, port, error, says) from error
    sock.setblocking(False)  # noqa: FBT003  the socket module's own signature
    return sock


def listen(sock: socket.socket, says: str = "{}") -> None:
    """Let clients connect to a socket of `bind`. Raises ListenError: another program was bound too, and came first."""
    try:
        sock.listen(BACKLOG)
    except OSError as error:
        host, port = sock.getsockname()[:2]
        raise _refused(host, port, error, says) from error


def _refused(host: str, port: int, error: OSError, says: str) -> ListenError:
    reason = os.strerror(error.errno or 0).lower()
    return ListenError(says.format(f"listen tcp {join_host_port(host, max(port, 0))}: bind: {reason}"))


@attrs.define(eq=False)
class ClientListener:
    """Accepts client connections on one socket and hands them to the plane."""

    sock: socket.socket
    plane: Plane
    reactor: Reactor
    sessions: Sessions
    clock: Clock
    tls: TlsClients | None = None

    @property
    def has_login(self) -> bool:
        """Whether a connection is on its way to a login, or to the end of a handshake, when it is accepted."""
        return self.tls is not None or self.sessions.auth_required

    async def run(self) -> None:
        """Accept until cancelled or closed, then close the socket."""
        try:
            with suppress(trio.ClosedResourceError):
                while self.sock.fileno() >= 0:
                    await trio.lowlevel.wait_readable(self.sock)
                    if not self._accept_some():
                        await trio.sleep(ACCEPT_RETRY_S)
        finally:
            self.sock.close()

    def close(self) -> None:
        """Stop accepting. Open connections stay."""
        trio.lowlevel.notify_closing(self.sock)
        self.sock.close()

    def _accept_some(self) -> bool:
        """Accept waiting connections, ACCEPTS_PER_WAKE at most; False when the process is out of descriptors."""
        for _ in range(ACCEPTS_PER_WAKE if self.tls is None else TLS_ACCEPTS_PER_WAKE):
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
            ip = client_ip(address[0])
            if not self.has_login or self.sessions.arrivals.has_place(ip):
                self._welcome(sock, ip, address[1])
            else:
                self.sessions.arrivals.wait(ip, partial(self._welcome, sock, ip, address[1]), sock.close)
        self.reactor.end_turn()
        return True

    def _open(self, sock: socket.socket, *, auth_required: bool) -> int:
        sock.setblocking(False)  # noqa: FBT003  the socket module's own signature
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.plane.open(sock.detach(), b"", auth_required=auth_required)

    def _welcome(self, sock: socket.socket, ip: str, port: int) -> None:
        cid = self._open(sock, auth_required=self.sessions.auth_required)
        session = Session(cid, ip, port, self.clock.unix_ns())
        is_full = self.sessions.is_full
        if self.tls is not None:
            self.sessions.add(session)
            self.tls.welcome(session, is_full=is_full)
            return
        self.plane.write(cid, self.sessions.info(session))
        if is_full:
            CONNECTION_REFUSED.log(client=session.title, reason=TOO_MANY)
            self.plane.close(cid, Reason.CLIENT_CLOSED, MAXIMUM_CONNECTIONS_EXCEEDED)
        else:
            self.sessions.add(session)
