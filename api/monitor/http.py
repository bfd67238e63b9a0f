"""A small HTTP/1.1 server for monitoring pages, on h11 and trio.

It serves GET and HEAD, and what the paths of a MonitorSite take. It closes a connection that is idle, whose request
takes too long, or that exceeds its places (AddressShare). A bug in a page is answered with status 500 and logged; it
does not stop the server.

Pages are made one at a time, large ones in slices (steps.py), and what was made is followed by a pause as long as it
took: requests in a loop take half of the node's time at most. Pages that are made and not sent have PAGES_BYTES_MAX.
"""

import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

import attrs
import h11
import trio

from jetraft.api.http_gateway.requests import is_framed_twice
from jetraft.api.listeners.address_share import AddressShare
from jetraft.api.listeners.listener import listen
from jetraft.api.logs.start_errors import MONITOR_ERROR
from jetraft.api.monitor.page import TEXT_TYPE, Handler, Page
from jetraft.api.monitor.steps import Pace, Steps, TooLargeError
from jetraft.api.monitor.web_request import BODY_BYTES_MAX, Answerer, Feed, MonitorSite, WebRequest
from jetraft.api.options.interfaces import client_ip

REQUEST_TIMEOUT_S = 10.0  # for each request, with the wait for it
ANSWER_TIMEOUT_S = 30.0  # until there is an answer, and again until it is taken; a MonitorSite bounds its own waits
SEND_TIMEOUT_S = 10.0  # until a part of a feed is taken
HEADER_BYTES_MAX = 16 * 1024  # h11's default
READ_BYTES = 16 * 1024
PAGES_BYTES_MAX = 64 * 1024 * 1024  # 40,000 consumers with their configurations; nats-server has no bound

_log = logging.getLogger(__name__)


NOT_FOUND = Page(body=b"404 page not found\n", status=404, content_type=TEXT_TYPE)
BAD_REQUEST = Page(body=b"400 bad request\n", status=400, content_type=TEXT_TYPE)
FAILED = Page(body=b"500 internal server error\n", status=500, content_type=TEXT_TYPE)
TOO_LARGE = Page(body=b"413 request entity too large\n", status=413, content_type=TEXT_TYPE)
NO_ROOM = Page(
    body=f"this page and those that are being sent have more than {PAGES_BYTES_MAX} bytes: ask for less\n".encode(),
    status=503,
    content_type=TEXT_TYPE,
)
METHOD_NOT_ALLOWED = Page(body=b"405 method not allowed\n", status=405, content_type=TEXT_TYPE)


@attrs.define(eq=False)
class MonitorServer:
    """Serves the pages of a table path -> handler on one listening socket."""

    sock: socket.socket
    pages: dict[str, Handler]
    base_path: str = ""
    requests: Counter[str] = attrs.field(factory=Counter)  # by path
    tls: ssl.SSLContext | None = None  # of HTTPS
    _pace: Pace = attrs.field(factory=Pace)
    _unsent_bytes: int = 0  # of pages that are being sent
    share: AddressShare = attrs.field(factory=AddressShare)
    site: MonitorSite | None = attrs.field(default=None, kw_only=True)

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        return "http" if self.tls is None else "https"

    async def run(self) -> None:
        """Accept and serve until cancelled. Raises ListenError."""
        listen(self.sock, MONITOR_ERROR)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self.sock))
        async with trio.open_nursery() as nursery:
            if self.site is not None:
                nursery.start_soon(self.site.run)
            await trio.serve_listeners(self._serve, [listener], handler_nursery=nursery)

    async def _serve(self, transport: trio.SocketStream) -> None:
        stream: trio.abc.Stream = transport
        if self.tls is not None:
            stream = trio.SSLStream(transport, self.tls, server_side=True, https_compatible=True)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)
        ip, port = _address_of(transport)
        if not self.share.take(ip):
            await trio.aclose_forcefully(stream)
            return
        try:
            async with stream:
                while True:
                    with trio.fail_after(REQUEST_TIMEOUT_S):
                        asked = await self._next_request(stream, connection)
                    if asked is None:
                        return
                    if is_framed_twice(asked[0].headers.raw_items()):
                        with trio.fail_after(SEND_TIMEOUT_S):
                            await _send_page(stream, connection, BAD_REQUEST, has_body=True)
                        return
                    with trio.fail_after(ANSWER_TIMEOUT_S):
                        answer = await self._answer_to(asked[0], asked[1], ip, port)
                    if not isinstance(answer, Page):
                        await _send_feed(stream, connection, answer)
                        return
                    with trio.fail_after(ANSWER_TIMEOUT_S), self._being_sent(answer):
                        if not await _send_page(stream, connection, answer, has_body=asked[0].method != b"HEAD"):
                            return
                    connection.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, h11.ProtocolError):
            return
        finally:
            self.share.give_back(ip)

    @contextmanager
    def _being_sent(self, page: Page) -> Iterator[None]:
        self._unsent_bytes += page.size
        try:
            yield
        finally:
            self._unsent_bytes -= page.size

    async def _next_request(
        self, stream: trio.abc.Stream, connection: h11.Connection
    ) -> tuple[h11.Request, bytes | None] | None:
        """The next request with its body, if something takes it and it is not too large; None when there is none."""
        request: h11.Request | None = None
        body: bytearray | None = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    await stream.send_all(
                        connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                    )
                connection.receive_data(bytes(await stream.receive_some(READ_BYTES)))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                await trio.lowlevel.checkpoint()  # what was received may be thousands of chunks
                if body is not None and len(body) + len(event.data) <= BODY_BYTES_MAX:
                    body += event.data
                else:
                    body = None
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                return request, None if body is None else bytes(body)
            elif isinstance(event, h11.ConnectionClosed):
                return None

    async def _answer_to(self, request: h11.Request, body: bytes | None, ip: str, port: int) -> Page | Feed:
        answerer = self._answerer_of(request)
        if answerer is None:
            return await self._page_in_turn(request)
        if body is None:
            return TOO_LARGE
        target = urlsplit(request.target.decode("latin-1"))
        headers: dict[str, str] = {}
        for name, value in request.headers:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        asked = WebRequest(
            method=request.method.decode("latin-1"),
            arguments=dict(reversed(parse_qsl(target.query))),
            headers=headers,
            ip=ip,
            port=port,
            is_secure=self.tls is not None,
            body=body,
        )
        try:
            return await answerer(asked)
        except Exception:  # noqa: BLE001  (as for a page)
            _log.exception("monitoring request %s failed", target.path)
            return FAILED

    def _answerer_of(self, request: h11.Request) -> Answerer | None:
        """The answerer of this request, if its path is one of the site's."""
        if self.site is None:
            return None
        try:
            path = self._path_of(urlsplit(request.target.decode("latin-1")).path)
        except ValueError:
            return None
        answerer = None if path is None else self.site.answerers.get(path)
        if answerer is not None and path is not None:
            self.requests[path] += 1
        return answerer

    def _path_of(self, path: str) -> str | None:
        """A path below the base path; None for another one."""
        base = self.base_path.strip("/")
        base = f"/{base}" if base else ""
        return path.removeprefix(base) or "/" if path.startswith(base) else None

    async def _page_in_turn(self, request: h11.Request) -> Page:
        try:
            made = await self._pace.once(lambda: self._page(request))
            if isinstance(made, Page):
                return made
            if isinstance(made, Generator):
                return await self._pace.finish(made, lambda: PAGES_BYTES_MAX - self._unsent_bytes)
            return await self._pace.wait_for(made)
        except TooLargeError:
            return NO_ROOM
        except Exception:  # noqa: BLE001  (a bug in a page must not stop the server)
            _log.exception("monitoring page %s failed", request.target.decode("latin-1"))
            return FAILED

    def _page(self, request: h11.Request) -> Page | Awaitable[Page] | Steps[Page]:
        if request.method not in (b"GET", b"HEAD"):
            return METHOD_NOT_ALLOWED
        try:
            target = urlsplit(request.target.decode("latin-1"))
            arguments = dict(reversed(parse_qsl(target.query)))  # of several values the first counts, as in Go
        except ValueError:
            return BAD_REQUEST
        path = self._path_of(target.path)
        handler = None if path is None else self.pages.get(path)
        if handler is None or path is None:
            return NOT_FOUND
        self.requests[path] += 1
        return handler(arguments)

    def statistics(self) -> dict[str, int]:
        """The number of requests, and of connections."""
        return {"requests": self.requests.total(), **self.share.statistics()}


async def _send_page(stream: trio.abc.Stream, connection: h11.Connection, page: Page, *, has_body: bool) -> bool:
    """Send a page; False when the connection has to be closed."""
    headers = [("Content-Type", page.content_type), ("Content-Length", str(page.size)), *page.headers]
    await stream.send_all(connection.send(h11.Response(status_code=page.status, headers=headers)) or b"")
    for part in (page.body, *page.rest) if has_body else ():
        await stream.send_all(connection.send(h11.Data(data=part)) or b"")
    await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
    return connection.our_state is h11.DONE and connection.their_state is h11.DONE


async def _send_feed(stream: trio.abc.Stream, connection: h11.Connection, feed: Feed) -> None:
    """Send a feed to its end, for as long as its parts are taken in time."""

    async def send(data: bytes) -> None:
        with trio.fail_after(SEND_TIMEOUT_S):
            await stream.send_all(data)

    try:
        head = feed.head
        response = h11.Response(status_code=head.status, headers=[("Content-Type", head.content_type), *head.headers])
        await send(connection.send(response) or b"")
        await feed.run(lambda data: send(connection.send(h11.Data(data=data)) or b""))
        await send(connection.send(h11.EndOfMessage()) or b"")
    finally:
        feed.close()


def _address_of(transport: trio.SocketStream) -> tuple[str, int]:
    """Of the peer; empty when it has gone."""
    try:
        host, port = transport.socket.getpeername()[:2]
    except OSError:
        return "", 0
    return client_ip(host), int(port)
