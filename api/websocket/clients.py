"""Connections of the WebSocket listener, from the accepted socket until they exchange frames or are refused.

A client has `handshake_timeout` for it, its TLS handshake included, and may send BYTES_MAX until then. Its requests are
read by h11. A refusal leaves the connection open for another one, as with nats-server.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Protocol

import attrs
import h11

from jetraft.api.options.interfaces import join_host_port
from jetraft.api.options.websocket import WebSocketOptions
from jetraft.api.plane._web import WebPlane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.session import Session, Sessions
from jetraft.api.sessions.web_facts import WebSocketFacts
from jetraft.api.tls.clients import Handle, Log
from jetraft.api.tls.facts import TlsState
from jetraft.api.websocket._common import WebSocketCommon
from jetraft.api.websocket.upgrade import Upgraded, UpgradeRefused, UpgradeRequest, judge_upgrade
from jetraft.store.model.clock import Clock
from jetraft.store.model.events import CONNECTION_REFUSED
from jetraft.store.model.gotime import http_date

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 16 * 1024  # of one; nats-server takes a megabyte
BYTES_MAX = 4 * REQUEST_BYTES_MAX  # of all that a connection sends before it is upgraded
REFUSALS_MAX = 64  # of one connection: each costs a tenth of a millisecond, and a request may have 30 bytes
NO_LEAFNODES = "Not configured to accept leaf node connections"
FULL = b"-ERR 'maximum connections exceeded'\r\n"
VERSIONS = (b"1.0", b"1.1")
BAD_VERSION, BAD_VERSION_STATUS = "unsupported protocol version", 505
# What Go's server adds to the status, by the words of h11 or our own.
DETAILS = {
    "Missing mandatory Host: header": ": missing required Host header",
    BAD_VERSION: f": {BAD_VERSION}",
}


class LeafDoor(Protocol):
    """The entry of leaf nodes."""

    def upgraded(self, cid: int, ip: str, port: int, tls: TlsState | None, *, deflates: bool) -> None:
        """A server has connected as a leaf node, over this connection."""


@attrs.define(eq=False)
class WebSocketApplicant:
    """A connection that has not been upgraded."""

    cid: int
    ip: str
    port: int
    deadline: Handle
    http: h11.Connection
    tls: TlsState | None = None
    request: h11.Request | None = None
    received: int = 0
    refusals: int = 0

    def cancel(self) -> None:
        """It has ended, or is a session now."""
        self.deadline.cancel()

    @property
    def remote(self) -> str:
        """Its address, as log lines have it."""
        return join_host_port(self.ip, self.port)


def checked(request: h11.Request) -> h11.Request:
    """A request of HTTP 1. Raises RemoteProtocolError for another version."""
    if request.http_version not in VERSIONS:
        raise h11.RemoteProtocolError(BAD_VERSION, error_status_hint=BAD_VERSION_STATUS)
    return request


@attrs.define(eq=False)
class WebSocketClients:
    """All connections of the listener that have not been upgraded. TlsClients knows them as its sessions."""

    options: WebSocketOptions
    plane: WebPlane
    sessions: Sessions
    clock: Clock
    call_at: Callable[[int, Callable[[], None]], Handle]
    say: Log
    share: Callable[[Callable[[int, bytes], None]], WebSocketCommon] = attrs.field(repr=False)
    leafs: LeafDoor | None = None
    common: WebSocketCommon = attrs.field(init=False)
    upgraded: int = 0
    refused: int = 0
    timed_out: int = 0

    def __attrs_post_init__(self) -> None:
        self.common = self.share(self.on_bytes)
        self.plane.serve_websocket(self.common)

    def welcome(self, cid: int, ip: str, port: int) -> WebSocketApplicant:
        """Begin with a connection that was accepted just now."""
        deadline_ns = self.clock.mono_ns() + self.options.handshake_timeout_ns
        handle = self.call_at(deadline_ns, partial(self._expire, cid))
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        applicant = WebSocketApplicant(cid=cid, ip=ip, port=port, deadline=handle, http=http)
        self.sessions.applicants[cid] = applicant
        self.plane.expect_upgrade(cid, self.common)
        return applicant

    @property
    def by_cid(self) -> Mapping[int, WebSocketApplicant]:
        """Those that are there."""
        return self.sessions.applicants

    @property
    def tls_not_after(self) -> str:
        """When the listener's certificate ends."""
        return self.sessions.web_tls_not_after

    @tls_not_after.setter
    def tls_not_after(self, text: str) -> None:
        self.sessions.web_tls_not_after = text

    @property
    def port(self) -> int:
        """The entry at which they have come."""
        return self.sessions.web_port

    def info(self, _applicant: object) -> bytes:
        """Nothing is said before the upgrade."""
        return b""

    def is_secure(self, applicant: WebSocketApplicant, state: TlsState) -> None:
        """Its TLS handshake is complete."""
        applicant.tls = attrs.evolve(state, first=False)

    def _expire(self, cid: int) -> None:
        if cid in self.by_cid:
            self.timed_out += 1
            self.plane.close(cid, Reason.CLIENT_CLOSED)

    def on_bytes(self, cid: int, data: bytes) -> None:
        """Read what a connection has sent."""
        applicant = self.by_cid.get(cid)
        if applicant is None:
            return
        applicant.received += len(data)
        try:
            applicant.http.receive_data(data[:BYTES_MAX])  # a receive may bring more
            while (event := applicant.http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Request):
                    applicant.request = checked(event)
                elif isinstance(event, h11.ConnectionClosed) or (
                    isinstance(event, h11.EndOfMessage) and not self._answer(applicant)
                ):
                    return
        except h11.RemoteProtocolError as error:
            self._malformed(applicant, error)
        else:
            if applicant.received > BYTES_MAX:
                self._end(applicant)

    def _answer(self, applicant: WebSocketApplicant) -> bool:
        """Act on a whole request; True when another one may follow."""
        given = applicant.request
        assert given is not None
        request = UpgradeRequest(
            method=given.method.decode("latin-1"),
            target=given.target.decode("latin-1"),
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in given.headers],
            is_tls=applicant.tls is not None,
        )
        verdict = judge_upgrade(request, self.options)
        if isinstance(verdict, Upgraded):
            self._upgrade(applicant, verdict)
            return False
        return self._refuse(applicant, verdict)

    def _refuse(self, applicant: WebSocketApplicant, refusal: UpgradeRefused) -> bool:
        self._log_refusal(applicant, refusal.why)
        phrase, http = HTTPStatus(refusal.status).phrase, applicant.http
        body = f"{phrase}\n".encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Sec-Websocket-Version", "13"),
            ("X-Content-Type-Options", "nosniff"),
            ("Date", http_date(self.clock.unix_ns())),
            ("Content-Length", str(len(body))),
        ]
        response = h11.Response(status_code=refusal.status, reason=phrase, headers=headers)
        parts = [http.send(event) for event in (response, h11.Data(data=body), h11.EndOfMessage())]
        self.plane.write(applicant.cid, b"".join(part for part in parts if part is not None))
        applicant.refusals += 1
        if applicant.refusals >= REFUSALS_MAX or http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            self._end(applicant)
            return False
        http.start_next_cycle()
        return True

    def _log_refusal(self, applicant: WebSocketApplicant, why: str) -> None:
        self.refused += 1
        printed = why.encode("ascii", "backslashreplace").decode()  # it may quote a header
        CONNECTION_REFUSED.log(client=applicant.remote, reason=f"websocket handshake error: {printed}")

    def _malformed(self, applicant: WebSocketApplicant, error: h11.RemoteProtocolError) -> None:
        """Answer what is no request as Go's server does, and end the connection."""
        status = HTTPStatus(error.error_status_hint)
        title = f"{status.value} {status.phrase}"
        title += DETAILS.get(str(error), "")
        head = f"HTTP/1.1 {title}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{title}"
        self.plane.write(applicant.cid, head.encode())
        self._end(applicant)

    def _end(self, applicant: WebSocketApplicant) -> None:
        self.plane.close(applicant.cid, Reason.CLIENT_CLOSED)

    def _upgrade(self, applicant: WebSocketApplicant, verdict: Upgraded) -> None:
        """Let a connection exchange frames, and greet it."""
        cid, sessions = applicant.cid, self.sessions
        if applicant.http.trailing_data[0] or applicant.received > BYTES_MAX:
            self._log_refusal(applicant, "client sent data before handshake is complete")
            self._end(applicant)
            return
        masked, deflates, browser = verdict.masked, verdict.deflates, verdict.browser
        self.plane.upgrade(cid, verdict.answer, masked=masked, deflates=deflates, browser=browser)
        self.sessions.applicants.pop(cid).cancel()
        self.upgraded += 1
        if verdict.is_leaf:
            self._hand_over(applicant, deflates=deflates)
            return
        session = Session(
            cid,
            applicant.ip,
            applicant.port,
            self.clock.unix_ns(),
            web=WebSocketFacts(forwarded_ip=verdict.forwarded_ip, cookies=verdict.cookies),
            tls=applicant.tls,
        )
        self.plane.write(cid, sessions.info(session))
        if sessions.is_full:
            CONNECTION_REFUSED.log(client=session.title, reason="maximum connections exceeded")
            self.plane.close(cid, Reason.MAXIMUM_CONNECTIONS_EXCEEDED, FULL)
            return
        sessions.add(session)

    def _hand_over(self, applicant: WebSocketApplicant, *, deflates: bool) -> None:
        """A server has connected as a leaf node."""
        if self.leafs is None:
            log.error(NO_LEAFNODES)
            self.plane.close(applicant.cid, Reason.READ_ERROR)
        else:
            self.leafs.upgraded(applicant.cid, applicant.ip, applicant.port, applicant.tls, deflates=deflates)

    def statistics(self) -> dict[str, int]:
        """How upgrades went."""
        return {
            "waiting": len(self.by_cid),
            "upgraded": self.upgraded,
            "refused": self.refused,
            "timed_out": self.timed_out,
        }
