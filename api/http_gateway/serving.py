"""The listener of the gateway: HTTP/1.1 over h11 and trio, each connection with a client of its own behind it.

Bounded: connections, the size of headers and of all bodies, the time for a request and for its answer. A connection
keeps its client as long as its requests name the same user.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import h11
import trio

from jetraft.api.http_gateway.client import GatewayClient
from jetraft.api.http_gateway.inside import InsideDoor
from jetraft.api.http_gateway.requests import (
    Login,
    RefusedRequestError,
    Reply,
    asked_by,
    is_framed_twice,
    login_of,
    problem,
    reply_of,
)
from jetraft.api.listeners.address_share import AddressShare
from jetraft.api.listeners.listener import ClientListener

if TYPE_CHECKING:
    import socket
    import ssl

    from jetraft.api.http_gateway.requests import AskedMessage

HEADER_BYTES_MAX: Final = 16 * 1024
READ_BYTES: Final = 64 * 1024
BODY_BYTES_MAX: Final = 64 << 20  # of all requests at a time, beside one of the largest messages
REQUEST_S: Final = 10.0  # until a request is complete, with the wait for it
ANSWER_S: Final = 5.0  # as long as clients wait for an ack
SEND_S: Final = 10.0  # for a response to be taken

_log = logging.getLogger(__name__)


@attrs.define
class HttpClient:
    """One connection: the peer's address, and the client behind it once there is one."""

    ip: str
    port: int
    client: GatewayClient | None = None
    login: Login | None = None


@attrs.define(eq=False)
class GatewayListener(ClientListener):
    """See the module. `secure` is the context of HTTPS."""

    secure: ssl.SSLContext | None = attrs.field(default=None, kw_only=True)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    share: AddressShare = attrs.field(factory=AddressShare, init=False)
    _body_bytes: int = attrs.field(default=0, init=False)

    @property
    def has_login(self) -> bool:
        """Requests have; what a connection may cost is bounded here."""
        return False

    async def run(self) -> None:
        """Accept and serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await ClientListener.run(self)

    def _welcome(self, sock: socket.socket, ip: str, port: int) -> None:
        assert self._nursery is not None
        if not self.share.take(ip):
            sock.close()
            return
        self._nursery.start_soon(self._serve, sock, ip, port)

    async def _serve(self, sock: socket.socket, ip: str, port: int) -> None:
        transport = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        stream: trio.abc.Stream = transport
        if self.secure is not None:
            stream = trio.SSLStream(transport, self.secure, server_side=True, https_compatible=True)
        peer = HttpClient(ip, port)
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)
        try:
            while await self._answer_one(stream, http, peer):
                http.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, h11.ProtocolError):
            pass  # the peer has gone, is too slow, or speaks no HTTP
        except Exception:  # noqa: BLE001  a bug in one connection must not stop the server
            _log.exception("http gateway: a connection of %s failed", ip)
        finally:
            self.share.give_back(ip)
            with trio.CancelScope(shield=True):
                if peer.client is not None:
                    await peer.client.close()
                await trio.aclose_forcefully(stream)

    async def _answer_one(self, stream: trio.abc.Stream, http: h11.Connection, peer: HttpClient) -> bool:
        """Read a request and answer it; False when the connection has to be closed."""
        body = bytearray()
        try:
            with trio.fail_after(REQUEST_S):
                request = await self._next_request(stream, http)
                if request is None:
                    return False
                if is_framed_twice(request.headers.raw_items()):
                    reply = problem(400, "a request has Content-Length or Transfer-Encoding, not both")
                    await self._send(stream, http, reply, has_body=True)
                    return False
                try:
                    asking = _asked_by(request)
                    client = await self._client_for(peer, request)  # before its body is kept
                    refused = None
                except RefusedRequestError as error:
                    refused = error
                refused = await self._read_body(stream, http, body, refused)
            reply = await _answer(client, asking, body) if refused is None else problem(refused.status, refused.reason)
        finally:
            self._body_bytes -= len(body)
        with trio.fail_after(SEND_S):
            await self._send(stream, http, reply, has_body=request.method != b"HEAD")
        return http.our_state is h11.DONE and http.their_state is h11.DONE

    @staticmethod
    async def _next_request(stream: trio.abc.Stream, http: h11.Connection) -> h11.Request | None:
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(READ_BYTES)))
            elif isinstance(event, h11.Request):
                return event
            elif isinstance(event, h11.ConnectionClosed):
                return None

    async def _read_body(
        self, stream: trio.abc.Stream, http: h11.Connection, body: bytearray, refused: RefusedRequestError | None
    ) -> RefusedRequestError | None:
        """Read to the end of a request, and keep its body unless it is refused. Returns why it is, if it is."""
        if http.they_are_waiting_for_100_continue:
            if refused is not None:
                return refused  # and its body is not sent
            await stream.send_all(http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(READ_BYTES)))
            elif isinstance(event, h11.Data):
                if refused is None:
                    refused = self._keep(body, bytes(event.data))
                await trio.lowlevel.checkpoint()  # what was received may be thousands of chunks
            elif isinstance(event, h11.EndOfMessage):
                return refused
            else:
                raise h11.RemoteProtocolError("the request was broken off")

    def _keep(self, body: bytearray, data: bytes) -> RefusedRequestError | None:
        """Add to a body; returns why not, and what was kept is dropped then."""
        bytes_max = self.sessions.options.max_payload_bytes
        if len(body) + len(data) > bytes_max:
            refused = RefusedRequestError(413, f"a message has {bytes_max} bytes at most")
        elif self._body_bytes + len(data) > max(BODY_BYTES_MAX, bytes_max):
            refused = RefusedRequestError(503, "too many requests have large bodies")
        else:
            self._body_bytes += len(data)
            body += data
            return None
        self._body_bytes -= len(body)
        body.clear()
        return refused

    async def _client_for(self, peer: HttpClient, request: h11.Request) -> GatewayClient:
        """The client of this connection, logged in as the request says. Raises RefusedRequestError."""
        said = b"".join(value for name, value in request.headers if name == b"authorization")
        login = login_of(said.decode("latin-1"), has_operators=self.sessions.options.trust is not None)
        if peer.client is not None and (peer.client.is_over or peer.login != login):
            await peer.client.close()
            peer.client = None
        if peer.client is None:
            door = InsideDoor(self.plane, self.reactor, self.sessions, self.clock)
            opened, _ = door.connect(peer.ip, peer.port)
            try:
                peer.client = await GatewayClient.connect(opened, login, self.sessions.options.max_control_line_bytes)
            except RefusedRequestError:
                await trio.aclose_forcefully(opened)
                raise
            peer.login = login
        return peer.client

    @staticmethod
    async def _send(stream: trio.abc.Stream, http: h11.Connection, reply: Reply, *, has_body: bool) -> None:
        headers = [
            ("Content-Type", reply.content_type),
            ("Content-Length", str(len(reply.body))),
            ("X-Content-Type-Options", "nosniff"),
            *reply.headers,
        ]
        events = (
            h11.Response(status_code=reply.status, headers=headers),
            h11.Data(data=reply.body if has_body else b""),
            h11.EndOfMessage(),
        )
        await stream.send_all(b"".join(http.send(event) or b"" for event in events))


def _asked_by(request: h11.Request) -> AskedMessage:
    """The message that a request is, without its body. Raises RefusedRequestError."""
    headers = [(bytes(name), bytes(value)) for name, value in request.headers.raw_items()]
    return asked_by(request.method.decode(), request.target.decode("latin-1"), headers)


async def _answer(client: GatewayClient, asking: AskedMessage, body: bytearray) -> Reply:
    """Ask what a request asks."""
    try:
        answer = await client.ask(asking.subject, asking.hdr, body if asking.takes_body else asking.payload, ANSWER_S)
    except RefusedRequestError as refused:
        return problem(refused.status, refused.reason)
    return reply_of(asking, answer.hdr, answer.payload)
