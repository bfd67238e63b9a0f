"""Makes what serves WebSocket clients where the options ask for it."""

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import attrs

from jetraft.api.listeners.assembly import serve_handshakes
from jetraft.api.listeners.listener import ClientListener, ListenerParts, ListenError, bind
from jetraft.api.options.interfaces import advertised, join_host_port
from jetraft.api.options.options import Options
from jetraft.api.options.websocket import WebSocketOptions
from jetraft.api.tls.clients import Log, TlsClients, TlsSession
from jetraft.api.websocket._common import WebSocketCommon
from jetraft.api.websocket.clients import LeafDoor, WebSocketClients
from jetraft.api.websocket.closing import close_frames

if TYPE_CHECKING:
    from jetraft.api.plane._web import WebPlane

PACKED_MULTIPLE = 8  # of max_payload, in a compressed message as it arrives, as nats-server has it
PACKED_BYTES_MAX = 64 * 1024 * 1024
APPLICANTS_MIN = 1024  # may wait for their upgrade, however few clients there may be
LINE_SLACK_BYTES = 64  # as in the receive buffer


@attrs.define(eq=False)
class WebSocketListener(ClientListener):
    """Accepts connections for WebSocket. As many may wait for their upgrade as there may be clients."""

    clients: WebSocketClients = attrs.field(kw_only=True)

    @property
    def has_login(self) -> bool:
        """Each has to ask for its upgrade."""
        return True

    def _welcome(self, sock: socket.socket, ip: str, port: int) -> None:
        if len(self.sessions.applicants) >= max(self.sessions.options.max_connections, APPLICANTS_MIN):
            sock.close()
            return
        web = self.clients.options
        cid = self._open(sock, auth_required=self.sessions.auth_required or web.overrides_auth)
        applicant = self.clients.welcome(cid, ip, port)
        self.sessions.arrivals.enter(cid, ip)
        if self.tls is not None:
            self.tls.welcome(applicant, is_full=False)


class WebSocketTls(TlsClients):
    """TLS handshakes of the listener, whose failures nats-server logs in other words."""

    def _failure(self, session: TlsSession, text: str) -> str:
        return f"websocket: TLS handshake error from {join_host_port(session.ip, session.port)}: {text}"


def common_of(options: Options, ping_interval_ns: int, on_http: Callable[[int, bytes], None]) -> WebSocketCommon:
    """The limits and close frames of connections; 0: pings are as often as those of others."""
    payload = options.max_payload_bytes
    return WebSocketCommon(
        ping_interval_ns=ping_interval_ns,
        packed_max=min(PACKED_MULTIPLE * payload, PACKED_BYTES_MAX),
        plain_max=payload + options.max_control_line_bytes + LINE_SLACK_BYTES,
        closes=close_frames(),
        on_http=on_http,
    )


def listen_for_websocket(
    options: Options, web: WebSocketOptions, parts: ListenerParts, leafs: LeafDoor | None
) -> WebSocketListener:
    """Bind the socket and make what serves it. Raises ListenError or TlsError with one line."""
    try:
        sock = bind(web.host, web.port)
    except ListenError as error:
        raise ListenError(f"Unable to listen for websocket connections: {error}") from error
    plane, sessions = cast("WebPlane", parts.plane), parts.sessions
    sessions.web_port = int(sock.getsockname()[1])
    sessions.web_urls = advertised(web.host, sessions.web_port, web.advertise)
    share = partial(common_of, options, web.ping_interval_ns)
    clients = WebSocketClients(web, plane, sessions, parts.clock, parts.call_at, parts.say, share, leafs)
    tls = None
    if web.tls is not None:
        assert web.at_once is not None
        tls, sessions.web_tls_not_after = serve_handshakes(web.at_once, parts, clients, WebSocketTls)
    return WebSocketListener(sock, plane, parts.reactor, sessions, parts.clock, tls, clients=clients)


def log_start(web: WebSocketOptions, port: int, say: Log) -> None:
    """Say where WebSocket is served."""
    say.info(f"Listening for websocket clients on {web.scheme}://{join_host_port(web.host, port)}")
    if web.tls is None:
        say.warning("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")
