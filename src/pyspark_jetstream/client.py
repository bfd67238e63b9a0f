"""One connection to one server: a small synchronous NATS client that sends requests.

A connection has one outstanding call at a time. If an answer is incomplete (timeout, closed socket, the caller stops in
the middle of a batch), the connection is closed and never used again: so an answer is never taken for that of another
request, and late replies need no bookkeeping. Connections are kept per process in `CONNECTIONS`, because Spark reuses
its Python workers for many tasks.

Times are in seconds, as socket timeouts are.
"""

import contextlib
import json
import secrets
import select
import socket
import ssl
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import attrs

from pyspark_jetstream import wire
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.options import Access

# A megabyte per recv keeps the number of joins low; a batch answer is about 4 MB.
RECEIVE_BYTES = 1 << 20
NAME = "pyspark_jetstream"


@attrs.frozen(kw_only=True, slots=True)
class ServerInfo:
    """The fields of a server's INFO that a reader needs."""

    server_id: str
    server_name: str
    connect_urls: tuple[str, ...]  # host:port of every server of the cluster that it knows
    payload_bytes_max: int
    tls_required: bool
    tls_available: bool
    auth_required: bool
    jetstream: bool


class Connection:
    """A connected and authenticated client. Every method raises ServerError when the server fails."""

    def __init__(self, url: str, access: Access) -> None:
        """Connect and log in."""
        self.url = url
        self.closed = False
        self._data = b""
        self._start = 0
        self._needed = 0  # unread bytes that complete the frame at _start, 0 when not known
        self._replies = 0
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        try:
            self._socket: socket.socket = socket.create_connection(
                (parts.hostname, parts.port), access.connect_timeout_s
            )
        except OSError as error:
            self.closed = True
            raise ServerError(f"{url}: cannot connect: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.info = parse_info(self._expect(b"INFO").argument)
            self._enter(access, wants_tls=parts.scheme == "tls" or access.tls)
        except OSError as error:
            self.close()
            raise ServerError(f"{url}: cannot connect: {error}") from error
        except BaseException:
            self.close()
            raise

    def _enter(self, access: Access, *, wants_tls: bool) -> None:
        if wants_tls or self.info.tls_required:
            if not (self.info.tls_required or self.info.tls_available):
                raise ServerError(f"{self.url}: the server does not offer TLS")
            self._socket = tls_context(access).wrap_socket(
                self._socket, server_hostname=certificate_name(self.url, access)
            )
        self._inbox = f"_INBOX.{secrets.token_hex(11)}".encode()
        hello = wire.connect_line(json.dumps(connect_options(access)).encode())
        self._send(hello + b"SUB %b.* 1\r\nPING\r\n" % self._inbox)
        self._expect(b"PONG")

    def request(self, subject: str, payload: bytes, *, timeout_s: float) -> wire.Frame:
        """Send a request and return its answer."""
        return self.request_many([(subject, payload)], timeout_s=timeout_s)[0]

    def request_many(self, questions: list[tuple[str, bytes]], *, timeout_s: float) -> list[wire.Frame]:
        """Send several requests at once and return their answers in the same order."""
        self._set_timeout(timeout_s)
        first = self._replies
        self._replies += len(questions)
        self._send(
            b"".join(
                wire.publish(subject.encode(), b"%b.%d" % (self._inbox, first + position), payload)
                for position, (subject, payload) in enumerate(questions)
            )
        )
        answers: dict[int, wire.Frame] = {}
        while len(answers) < len(questions):
            frame = self._expect(b"MSG")
            number = frame.subject.rpartition(b".")[2]
            answers[int(number) - first] = frame
        return [answers[position] for position in range(len(questions))]

    def direct_batch(
        self, stream: str, question: dict[str, int], rows: wire.Rows, *, header_lines: bytes, stall_s: float
    ) -> wire.Status:
        """Append the answer to a batch direct get to the rows and return the status that ended it.

        When it raises ServerError, `rows` has the complete rows received before the failure, which may be used.
        `stall_s` is the longest silence of the server.
        """
        self._set_timeout(stall_s)
        reply = b"%b.%d" % (self._inbox, self._replies)
        self._replies += 1
        subject = f"$JS.API.DIRECT.GET.{stream}".encode()
        self._send(wire.publish(subject, reply, json.dumps(question).encode(), header_lines))
        while True:
            self._start = wire.scan_messages(self._data, self._start, rows)
            frame = self._expect(b"MSG")
            if status := wire.status_of(frame.header):
                return status
            try:
                wire.append_message(frame, rows)
            except (ServerError, ValueError) as error:
                self.close()
                raise ServerError(f"{self.url}: {error}") from error

    def _expect(self, verb: bytes) -> wire.Frame:
        """Return the next frame with this verb; answer PING, skip INFO and +OK, raise ServerError for -ERR."""
        while True:
            frame = self._next_frame()
            if frame.verb == b"-ERR":
                self.close()
                raise ServerError(f"{self.url}: the server sent -ERR {frame.argument.decode('utf-8', 'replace')}")
            if frame.verb == b"PING":
                self._send(b"PONG\r\n")
            if frame.verb == verb:
                return frame

    def _next_frame(self) -> wire.Frame:
        while (frame := self._buffered_frame()) is None:
            self._receive(self._needed)
        return frame

    def _buffered_frame(self) -> wire.Frame | None:
        """Take the next complete frame out of the buffer; None when more has to be received."""
        try:
            frame, position = wire.next_frame(self._data, self._start)
        except (ServerError, ValueError, IndexError) as error:
            self.close()
            raise ServerError(f"{self.url}: {error}") from error
        if frame is None:
            self._needed = max(position - self._start, 0)
        else:
            self._start = position
        return frame

    def is_alive(self) -> bool:
        """Whether the connection can be used after a pause; answers PINGs that arrived in the pause."""
        try:
            while not self.closed and select.select([self._socket], [], [], 0)[0]:
                self._receive(0)
                while frame := self._buffered_frame():
                    if frame.verb == b"PING":
                        self._send(b"PONG\r\n")
        except (ServerError, OSError):
            self.close()
        return not self.closed

    def _receive(self, needed: int) -> None:
        """Receive at least once, until `needed` unread bytes are buffered; drops the parsed part of the buffer."""
        chunks = [self._data[self._start :]]
        size = len(chunks[0])
        received = 0
        try:
            while received == 0 or size < needed:
                chunk = self._socket.recv(RECEIVE_BYTES)
                if not chunk:
                    raise ConnectionResetError("the server closed the connection")
                chunks.append(chunk)
                received += len(chunk)
                size += len(chunk)
        except OSError as error:
            self.close()
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise ServerError(f"{self.url}: {reason}") from error
        self._data = b"".join(chunks)
        self._start = 0

    def _set_timeout(self, timeout_s: float) -> None:
        """Set the timeout of every wait of the next call."""
        if self.closed:
            raise ServerError(f"{self.url}: the connection is closed")
        self._socket.settimeout(timeout_s)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise ServerError(f"{self.url}: {error}") from error

    def close(self) -> None:
        """Close the socket; the connection cannot be used again."""
        if not self.closed:
            self.closed = True
            with contextlib.suppress(OSError):
                self._socket.close()


class ConnectionCache:
    """The open connections of this process, one for each server and login. Not for use by several threads at once."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, Access], Connection] = {}

    def get(self, url: str, access: Access) -> Connection:
        """Return an open connection, a new one if the cached one is closed. Raises ServerError."""
        found = self._open.get((url, access))
        if found is None or not found.is_alive():
            found = self._open[url, access] = Connection(url, access)
        return found

    def close(self) -> None:
        """Close all of them."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()


CONNECTIONS = ConnectionCache()


def parse_info(text: bytes) -> ServerInfo:
    """Parse the argument of INFO. Raises ServerError when it is malformed."""
    try:
        info: dict[str, Any] = json.loads(text)
        return ServerInfo(
            server_id=info["server_id"],
            server_name=info.get("server_name", info["server_id"]),
            connect_urls=tuple(info.get("connect_urls") or ()),
            payload_bytes_max=info["max_payload"],
            tls_required=info.get("tls_required", False),
            tls_available=info.get("tls_available", False),
            auth_required=info.get("auth_required", False),
            jetstream=info.get("jetstream", False),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ServerError(f"the server's INFO is malformed: {error!r}") from error


def connect_options(access: Access) -> dict[str, Any]:
    """Return the JSON of CONNECT."""
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": "1",
        "name": NAME,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "echo": True,
    }
    if access.user is not None:
        options |= {"user": access.user, "pass": access.password}
    if access.token is not None:
        options["auth_token"] = access.token
    return options


def certificate_name(url: str, access: Access) -> str:
    """Return the host name that the server's certificate must have.

    The cluster mostly reports IP addresses, which certificates seldom contain: for these it is the first server's name.
    """
    host = urlsplit(url).hostname or ""
    first = urlsplit(access.servers[0]).hostname or ""
    return host if url in access.servers or not is_address(host) else first


def is_address(host: str) -> bool:
    """Whether the host is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def tls_context(access: Access) -> ssl.SSLContext:
    """Return the TLS context: the system's authorities or the configured one, and the client certificate, if any."""
    context = ssl.create_default_context(cafile=access.tls_ca_file)
    if access.tls_cert_file is not None:
        context.load_cert_chain(access.tls_cert_file, access.tls_key_file)
    return context
