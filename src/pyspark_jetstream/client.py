"""One connection to one server: a small synchronous NATS client that sends requests.

A connection has one outstanding call at a time. If an answer is incomplete (timeout, closed socket, the caller stops in
the middle of a batch), the connection is closed and never used again: so an answer is never taken for that of another
request, and late replies need no bookkeeping. Connections are kept per process in `CONNECTIONS`, because Spark reuses
its Python workers for many tasks.

Times are in seconds, as socket timeouts are.
"""

import json
import secrets
import socket
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import urlsplit

import attrs

from pyspark_jetstream import wire
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.login import connect_options, secured
from pyspark_jetstream.options import Access
from pyspark_jetstream.transport import Transport

Part = wire.Rows | memoryview  # of an answer: messages in rows, or one in columns
Parts = Callable[[Transport], Generator[Part, None, wire.Status]]


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
    nonce: str = ""  # to be signed by a login with keys


class Connection(Transport):
    """A connected and authenticated client. Every method raises ServerError when the server fails."""

    def __init__(self, url: str, access: Access) -> None:
        """Connect and log in."""
        self.api_prefix = access.api_prefix
        self.is_answering = False  # in the middle of an answer: no other request may be sent
        self._replies = 0
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        try:
            connected = socket.create_connection((parts.hostname, parts.port), access.connect_timeout_s)
        except OSError as error:
            raise ServerError(f"{url}: cannot connect: {error}") from error
        super().__init__(url, connected)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._enter(access, wants_tls=parts.scheme == "tls" or access.tls)
        except OSError as error:
            self.close()
            raise ServerError(f"{url}: cannot connect: {error}") from error
        except BaseException:
            self.close()
            raise

    def _enter(self, access: Access, *, wants_tls: bool) -> None:
        if access.tls_first:
            self._socket = secured(self._socket, self.url, access)
        self.info = parse_info(self.expect(b"INFO").argument)
        if (wants_tls or self.info.tls_required) and not access.tls_first:
            if not (self.info.tls_required or self.info.tls_available):
                raise ServerError(f"{self.url}: the server does not offer TLS")
            self._socket = secured(self._socket, self.url, access)
        self._inbox = f"{access.inbox_prefix}.{secrets.token_hex(11)}".encode()
        hello = wire.connect_line(json.dumps(connect_options(access, self.info.nonce)).encode())
        self.send(hello + b"SUB %b.* 1\r\nPING\r\n" % self._inbox)
        self.expect(b"PONG")

    def request(self, subject: str, payload: bytes, *, timeout_s: float) -> wire.Frame:
        """Send a request and return its answer."""
        return self.request_many([(subject, payload)], timeout_s=timeout_s)[0]

    def request_many(self, questions: list[tuple[str, bytes]], *, timeout_s: float) -> list[wire.Frame]:
        """Send several requests at once and return their answers in the same order."""
        self.set_timeout(timeout_s)
        first = self._replies
        self._replies += len(questions)
        self.send(
            b"".join(
                wire.publish(subject.encode(), b"%b.%d" % (self._inbox, first + position), payload)
                for position, (subject, payload) in enumerate(questions)
            )
        )
        answers: dict[int, wire.Frame] = {}
        while len(answers) < len(questions):
            frame = self.expect(b"MSG")
            if not frame.subject.startswith(self._inbox):
                continue  # of a pull that waits: it has the subject of the message
            number = int(frame.subject.rpartition(b".")[2])
            if number >= first:  # below it is what a server says after the last message of a pull
                answers[number - first] = frame
        return [answers[position] for position in range(len(questions))]

    def direct_batch(
        self, stream: str, question: dict[str, Any], *, header_lines: bytes, stall_s: float
    ) -> Generator[Part, None, wire.Status]:
        """Yield the parts of the answer to a batch direct get; return the status that ended it.

        Consecutive messages in rows are one part, each message in columns is another. Before it raises ServerError, it
        yields the rows that are complete. `stall_s` is the longest silence of the server.
        """
        subject = f"{self.api_prefix}.DIRECT.GET.{stream}"
        return self.answer(subject, json.dumps(question).encode(), direct_parts, header_lines, stall_s=stall_s)

    def answer(
        self, subject: str, payload: bytes, parts: Parts, header_lines: bytes = b"", *, stall_s: float
    ) -> Generator[Part, None, wire.Status]:
        """Send a request and yield what `parts` makes of its answer, which has many messages.

        If the caller stops in the middle, the connection is closed.
        """
        self.set_timeout(stall_s)
        reply = b"%b.%d" % (self._inbox, self._replies)
        self._replies += 1
        self.is_answering = True
        try:
            self.send(wire.publish(subject.encode(), reply, payload, header_lines))
            status = yield from parts(self)
        except BaseException:
            self.close()
            raise
        finally:
            self.is_answering = False
        return status


def direct_parts(transport: Transport) -> Generator[Part, None, wire.Status]:
    """Read the answer to a batch direct get."""
    rows, in_columns = wire.Rows(), False
    try:
        while True:
            transport.scan(wire.scan_messages, rows)
            columns = transport.large_payload() if in_columns else None
            if columns is None:
                frame = transport.expect(b"MSG")
                status = wire.status_of(frame.header)
                if status is not None:
                    if rows:
                        yield rows
                    return status
                if frame.header:
                    wire.append_message(frame, rows)
                    continue
                columns = memoryview(frame.payload)
            if rows:
                yield rows
                rows = wire.Rows()
            in_columns = True
            yield columns
    except (ServerError, ValueError) as error:
        if rows:
            yield rows
        raise error if isinstance(error, ServerError) else ServerError(f"{transport.url}: {error}") from error


class ConnectionCache:
    """The open connections of this process, by server and login. Not for use by several threads at once."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, Access], list[Connection]] = {}

    def get(self, url: str, access: Access) -> Connection:
        """Return an open connection that is not in the middle of an answer, a new one if there is none.

        Raises ServerError.
        """
        known = self._open.get((url, access), [])
        usable = [found for found in known if found.is_answering or found.is_alive()]
        self._open[url, access] = usable
        for found in usable:
            if not found.is_answering:
                return found
        usable.append(Connection(url, access))
        return usable[-1]

    def close(self) -> None:
        """Close all of them."""
        for connections in self._open.values():
            for connection in connections:
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
            nonce=str(info.get("nonce", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ServerError(f"the server's INFO is malformed: {error!r}") from error
