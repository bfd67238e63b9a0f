"""A client of this server over a pair of sockets: it logs in, asks, and waits for answers.

Its rights and its counts are decided where that is decided for all clients.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import orjson
import trio

from jetraft.api.http_gateway.requests import JWT_HINT, RefusedRequestError

if TYPE_CHECKING:
    from jetraft.api.http_gateway.requests import Login

READ_BYTES: Final = 64 * 1024
LINE_BYTES_MAX: Final = 64 * 1024  # of what a server says, INFO above all
LOGIN_S: Final = 5.0
CONNECT_BYTES: Final = len(b"CONNECT \r\n")
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
INBOX: Final = b"_INBOX.http"
INBOX_BYTES: Final = 11  # other nodes have clients too


class GatewayAnswer(NamedTuple):
    """The headers and the payload of an answer."""

    hdr: bytes
    payload: bytes


class GatewayClient:
    """See the module. It asks one question at a time; after a RefusedRequestError that `is_over` it is of no use."""

    def __init__(self, stream: trio.SocketStream, inbox: bytes) -> None:
        self._stream = stream
        self._inbox = inbox
        self._buffer = bytearray()
        self._number = 0
        self.is_over = False

    @classmethod
    async def connect(
        cls, stream: trio.SocketStream, login: Login, line_bytes_max: int, name: str = "http gateway"
    ) -> Self:
        """Log in, with a line that the server reads. Raises RefusedRequestError."""
        client = cls(stream, b"%b.%b" % (INBOX, secrets.token_hex(INBOX_BYTES).encode()))
        options = {
            "verbose": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "http",
            "version": "1",
        }
        hello = orjson.dumps({**options, "name": name, **dict(login.fields)})
        if len(hello) + CONNECT_BYTES > line_bytes_max:
            raise RefusedRequestError(UNAUTHORIZED, f"a login has {line_bytes_max} bytes at most (max_control_line)")
        with trio.move_on_after(LOGIN_S) as scope:
            await client._send(b"CONNECT %b\r\nSUB %b.* 1\r\nPING\r\n" % (hello, client._inbox))
            try:
                await client._until_pong()
            except RefusedRequestError as refused:
                if login.has_bearer and refused.status == UNAUTHORIZED:
                    raise RefusedRequestError(UNAUTHORIZED, refused.reason + JWT_HINT) from refused
                raise
        if scope.cancelled_caught:
            raise RefusedRequestError(503, "the login takes too long")
        return client

    async def ask(self, subject: bytes, hdr: bytes, payload: bytes | bytearray, timeout_s: float) -> GatewayAnswer:
        """The answer to a message. Raises RefusedRequestError: also when it is not allowed, or none comes in time."""
        self._number += 1
        reply = b"%b.%d" % (self._inbox, self._number)
        if hdr:
            head = b"HPUB %b %b %d %d\r\n" % (subject, reply, len(hdr), len(hdr) + len(payload))
        else:
            head = b"PUB %b %b %d\r\n" % (subject, reply, len(payload))
        with trio.move_on_after(timeout_s):
            await self._send(b"".join((head, hdr, payload, b"\r\n")))
            while True:
                found = await self._next_message()
                if found[0] == reply:
                    return GatewayAnswer(found[1], found[2])
        self.is_over = True  # half of a message may have been sent, or received
        raise RefusedRequestError(504, "there is no answer in time")

    async def close(self) -> None:
        """End it."""
        self.is_over = True
        await trio.aclose_forcefully(self._stream)

    async def _send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.is_over = True  # why, the server has said before

    async def _until_pong(self) -> None:
        while (line := await self._next_line()) != b"PONG":
            await self._heed(line)

    async def _next_message(self) -> tuple[bytes, bytes, bytes]:
        """Subject, headers and payload of the next message."""
        while True:
            line = await self._next_line()
            words = line.split(b" ")
            if words[0] not in (b"MSG", b"HMSG"):
                await self._heed(line)
                continue
            hdr_len = int(words[-2]) if words[0] == b"HMSG" else 0
            body = await self._next_bytes(int(words[-1]) + 2)
            return words[1], body[:hdr_len], body[hdr_len:-2]

    async def _heed(self, line: bytes) -> None:
        """GatewayAnswer a PING, and raise what the server objects to."""
        if line == b"PING":
            await self._send(b"PONG\r\n")
        if line.startswith(b"-ERR"):
            reason = line[4:].strip().strip(b"'").decode("utf-8", "replace")
            status = status_of(reason)
            self.is_over = status != FORBIDDEN  # the server closes the connection after all other errors
            raise RefusedRequestError(status, reason)

    async def _next_line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > LINE_BYTES_MAX:
                raise RefusedRequestError(500, "the server says too much")
            await self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    async def _next_bytes(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._receive()
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    async def _receive(self) -> None:
        try:
            data = await self._stream.receive_some(READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            self.is_over = True
            raise RefusedRequestError(503, "the server has closed the connection")
        self._buffer += data


def status_of(reason: str) -> int:
    """The status of what the server objects to."""
    lowered = reason.lower()
    if lowered.startswith("permissions violation"):
        return FORBIDDEN
    if "maximum payload" in lowered:
        return 413
    if "authorization" in lowered or "authentication" in lowered:
        return UNAUTHORIZED
    if "maximum" in lowered:
        return 503
    return 400
