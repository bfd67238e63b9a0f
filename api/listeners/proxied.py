"""Clients behind a proxy that says who they are: `proxy_protocol`.

INFO is sent first, as by nats-server, but with `handshake_first`. The plane holds a connection until its header was
read here, on a second descriptor; with TLS the handshake begins behind it. A connection without a header is one of the
proxy's own.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.listeners.listener import MAXIMUM_CONNECTIONS_EXCEEDED, ClientListener
from jetraft.api.listeners.proxy_header import BYTES_MAX, ProxyHeaderError, missing, parse_header
from jetraft.api.options.interfaces import join_host_port
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.session import Session
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.events import CONNECTION_REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.api.listeners.listener import ListenerParts
    from jetraft.api.tls.clients import Handle, TlsClients

TIMEOUT_NS: Final = 5 * NS_PER_S


@attrs.define(eq=False)
class Applicant:
    """A connection whose header is read. `cancel` ends that, whatever came of it."""

    session: Session
    sock: socket.socket  # a second descriptor of the connection
    stop: Callable[[], None]
    data: bytes = b""

    def cancel(self) -> None:
        """The connection is closed, or its header was read."""
        self.stop()
        self.sock.close()


@attrs.define(eq=False)
class ProxiedListener(ClientListener):
    """Accepts connections that may begin with a header of the PROXY protocol."""

    call_at: Callable[[int, Callable[[], None]], Handle] = attrs.field(kw_only=True)

    def _welcome(self, sock: socket.socket, ip: str, port: int) -> None:
        try:
            own = sock.dup()
        except OSError:  # it has taken the last descriptor
            sock.close()
            return
        cid = self._open(sock, auth_required=self.sessions.auth_required)
        session = Session(cid, ip, port, self.clock.unix_ns(), is_awaited=True)
        is_full = self.sessions.is_full
        if self.tls is None or not self.tls.options.handshake_first:
            self.plane.write(cid, self.sessions.info(session))
        if is_full:
            own.close()
            self.plane.close(cid, Reason.CLIENT_CLOSED, MAXIMUM_CONNECTIONS_EXCEEDED)
            return
        self.plane.hold(cid)
        self.sessions.by_cid[cid] = session
        self.sessions.arrivals.enter(cid, ip)
        timer = self.call_at(self.clock.mono_ns() + TIMEOUT_NS, partial(self._expire, cid))
        fd = own.fileno()

        def stop() -> None:
            timer.cancel()
            self.reactor.unwatch(fd)

        self.sessions.applicants[cid] = Applicant(session, own, stop)
        self.reactor.watch(fd, partial(self._on_readable, cid))

    def _on_readable(self, cid: int) -> None:
        """Take what belongs to the header, and nothing behind it."""
        applicant = self.sessions.applicants.get(cid)
        if applicant is None:
            return
        try:
            come = applicant.sock.recv(BYTES_MAX - len(applicant.data), socket.MSG_PEEK)
            data = applicant.data + come
            header = parse_header(data)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(applicant, f"failed to read {missing(applicant.data)}: {(error.strerror or '').lower()}")
            return
        except ProxyHeaderError as error:
            self._fail(applicant, str(error))
            return
        if not come:
            end = "unexpected EOF" if data else "EOF"
            self._fail(applicant, f"failed to read {missing(data)}: {end}")
        elif header is None:
            applicant.data += applicant.sock.recv(len(come))
        else:
            applicant.sock.recv(max(0, header.size - len(applicant.data)))
            self._go_on(applicant, header.ip, header.port, b"" if header.size else applicant.data)

    def _go_on(self, applicant: Applicant, ip: str, port: int, taken: bytes) -> None:
        """The header was read: the connection is one as any other, with this address. `taken` was none of it."""
        session = applicant.session
        self._forget(applicant)
        session.is_awaited = False
        if ip:
            session.ip, session.port = ip, port
        arrivals, cid = self.sessions.arrivals, session.cid
        if not self.has_login or arrivals.has_place(session.ip):
            self._admit(session, taken)
            return
        arrivals.leave(cid)  # it waits among those of its own address, and not in the way of others behind the proxy
        arrivals.wait(
            session.ip, partial(self._admit, session, taken), partial(self.plane.close, cid, Reason.CLIENT_CLOSED)
        )

    def _admit(self, session: Session, taken: bytes) -> None:
        """Read what the client sends, if it is still there."""
        if session.cid not in self.sessions.by_cid:
            return
        self.sessions.add(session)
        self.plane.read_on(session.cid)
        if self.tls is not None:
            if taken:
                self.plane.close(session.cid, Reason.TLS_HANDSHAKE_FAILURE)
                return
            self.tls.welcome(session, is_full=False, is_told=True)
        elif taken:
            self.plane.feed(session.cid, taken)

    def _expire(self, cid: int) -> None:
        applicant = self.sessions.applicants.get(cid)
        if applicant is not None:
            self._fail(applicant, f"failed to read {missing(applicant.data)}: i/o timeout")

    def _fail(self, applicant: Applicant, why: str) -> None:
        session = applicant.session
        self._forget(applicant)
        address = join_host_port(session.ip, session.port)
        CONNECTION_REFUSED.log(client=address, reason=f"Error reading PROXY protocol header from {address}: {why}")
        self.plane.close(session.cid, Reason.PROTOCOL_VIOLATION)

    def _forget(self, applicant: Applicant) -> None:
        self.sessions.applicants.pop(applicant.session.cid, None)
        applicant.cancel()


def proxied_listener(sock: socket.socket, parts: ListenerParts, tls: TlsClients | None) -> ProxiedListener:
    """The listener for clients."""
    return ProxiedListener(sock, parts.plane, parts.reactor, parts.sessions, parts.clock, tls, call_at=parts.call_at)
