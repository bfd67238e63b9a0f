"""A small HTTP/1.1 server for monitoring pages, on h11 and trio.

It serves GET and HEAD. It closes a connection that is idle, whose request takes too long, or that exceeds
its places (AddressShare). A bug in a page is answered with status 500 and logged; it does not stop the server.

A page is made without a pause. So pages are made one at a time, followed by a pause as long as the page took: requests
in a loop take half of the node's time at most.
"""

import logging
import socket
import ssl
from collections import Counter
from urllib.parse import parse_qsl, urlsplit

import attrs
import h11
import trio

from jetraft.api.address_share import AddressShare
from jetraft.api.interfaces import client_ip
from jetraft.api.listener import listen
from jetraft.api.monitor.page import TEXT_TYPE, Handler, Page
from jetraft.api.start_errors import MONITOR_ERROR

REQUEST_TIMEOUT_S = 10.0  # for each request and its answer, with the wait for the request
HEADER_BYTES_MAX = 16 * 1024  # h11's default
READ_BYTES = 16 * 1024

_log = logging.getLogger(__name__)


NOT_FOUND = Page(body=b"404 page not found\n", status=404, content_type=TEXT_TYPE)
BAD_REQUEST = Page(body=b"400 bad request\n", status=400, content_type=TEXT_TYPE)
FAILED = Page(body=b"500 internal server error\n", status=500, content_type=TEXT_TYPE)
METHOD_NOT_ALLOWED = Page(body=b"405 method not allowed\n", status=405, content_type=TEXT_TYPE)


@attrs.define(eq=False)
class MonitorServer:
    """Serves the pages of a table path -> handler on one listening socket."""

    sock: socket.socket
    pages: dict[str, Handler]
    base_path: str = ""
    requests: Counter[str] = attrs.field(factory=Counter)  # by path
    tls: ssl.SSLContext | None = None  # of HTTPS
    _making: trio.Lock = attrs.field(factory=trio.Lock)
    _next_at_s: float = 0.0  # trio's time
    share: AddressShare = attrs.field(factory=AddressShare)

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        return "http" if self.tls is None else "https"

    async def run(self) -> None:
        """Accept and serve until cancelled. Raises ListenError."""
        listen(self.sock, MONITOR_ERROR)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self.sock))
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, transport: trio.SocketStream) -> None:
        stream: trio.abc.Stream = transport
        if self.tls is not None:
            stream = trio.SSLStream(transport, self.tls, server_side=True, https_compatible=True)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)
        ip = _address_of(transport)
        if not self.share.take(ip):
            await trio.aclose_forcefully(stream)
            return
        try:
            async with stream:
                while True:
                    with trio.fail_after(REQUEST_TIMEOUT_S):
                        if not await self._answer_one(stream, connection):
                            return
                    connection.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, h11.ProtocolError):
            return
        finally:
            self.share.give_back(ip)

    async def _answer_one(self, stream: trio.abc.Stream, connection: h11.Connection) -> bool:
        """Read one request and answer it; False when the connection has to be closed."""
        request: h11.Request | None = None
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(READ_BYTES)))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed):
                return False
        assert request is not None
        page = await self._page_in_turn(request)
        headers = [("Content-Type", page.content_type), ("Content-Length", str(len(page.body))), *page.headers]
        await stream.send_all(connection.send(h11.Response(status_code=page.status, headers=headers)) or b"")
        if request.method != b"HEAD":
            await stream.send_all(connection.send(h11.Data(data=page.body)) or b"")
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _page_in_turn(self, request: h11.Request) -> Page:
        async with self._making:
            await trio.sleep_until(self._next_at_s)
            began_s = trio.current_time()
            page = await self._page(request)
            now_s = trio.current_time()
            self._next_at_s = now_s + (now_s - began_s)
            return page

    async def _page(self, request: h11.Request) -> Page:
        if request.method not in (b"GET", b"HEAD"):
            return METHOD_NOT_ALLOWED
        try:
            target = urlsplit(request.target.decode("latin-1"))
            arguments = dict(reversed(parse_qsl(target.query)))  # of several values the first counts, as in Go
        except ValueError:
            return BAD_REQUEST
        base = self.base_path.strip("/")
        base = f"/{base}" if base else ""
        path = target.path.removeprefix(base) or "/"
        handler = self.pages.get(path) if target.path.startswith(base) else None
        if handler is None:
            return NOT_FOUND
        self.requests[path] += 1
        try:
            page = handler(arguments)
            return page if isinstance(page, Page) else await page
        except Exception:  # noqa: BLE001  (a bug in a page must not stop the server)
            _log.exception("monitoring page %s failed", path)
            return FAILED

    def statistics(self) -> dict[str, int]:
        """The number of requests, and of connections."""
        return {"requests": self.requests.total(), **self.share.statistics()}


def _address_of(transport: trio.SocketStream) -> str:
    """Of the peer; empty when it has gone."""
    try:
        return client_ip(transport.socket.getpeername()[0])
    except OSError:
        return ""
