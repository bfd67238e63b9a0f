"""The transport of a link: a connected byte stream that never blocks, and where such streams come from.

Above a `Wire` are the handshake, the link, its framing and everything that nodes say to each other; below it are
sockets, plain or inside TLS. The simulator puts streams in memory below, with delays and cuts of its own.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

import trio

from jetraft.raft.mesh.addresses import Address

# What a wire that cannot go on now raises, plain or inside TLS.
WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wire(Protocol):
    """One end of a connected stream. One task reads and one writes at a time; `close` is safe at any time."""

    @property
    def is_tls(self) -> bool:
        """Whether one `send` takes one record only."""
        ...

    @property
    def has_decrypted(self) -> bool:
        """True when TLS has taken something out of the socket, which the socket does not tell."""
        ...

    def fileno(self) -> int:
        """The descriptor, for who watches descriptors."""
        ...

    def send(self, data: bytes | memoryview, /) -> int:
        """Send what fits now, and return how much. Raises WOULD_BLOCK, OSError."""
        ...

    def receive(self, count: int, /) -> bytes:
        """Up to `count` bytes; empty at the end of the stream. Raises WOULD_BLOCK, OSError."""
        ...

    def receive_into(self, space: memoryview, /) -> int:
        """The same into a buffer. Raises WOULD_BLOCK, OSError."""
        ...

    async def wait_readable(self) -> None:
        """Return when something came, or the end. Raises trio.ClosedResourceError when this end is closed."""
        ...

    async def wait_writable(self) -> None:
        """Return when `send` may take something. Raises trio.ClosedResourceError when this end is closed."""
        ...

    def close(self) -> None:
        """End the connection; the other end hears of it."""
        ...


class WireListener(Protocol):
    """Accepts connections at one address."""

    async def accept(self) -> tuple[Wire, str]:
        """The next connection, and the host at its other end. Raises OSError: try again later."""
        ...

    async def aclose(self) -> None:
        """Accept nothing more."""
        ...


class Transport(Protocol):
    """A source of wires."""

    async def listen(self, address: Address) -> tuple[Sequence[WireListener], int]:
        """Listen; the port is the one that was picked when that of `address` is 0. Raises OSError."""
        ...

    async def dial(self, address: Address) -> Wire:
        """Connect. Raises OSError; takes as long as it takes."""
        ...


class SocketWire:
    """A socket, plain or inside TLS. Implements Wire."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self.send = sock.send
        self.receive = sock.recv

    @classmethod
    def of(cls, stream: trio.SocketStream) -> "SocketWire":
        """Take the socket out of a trio stream: non-blocking, and without delay for small frames."""
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)  # noqa: FBT003  (the socket API)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock)

    @property
    def is_tls(self) -> bool:
        """See Wire."""
        return self._tls is not None

    @property
    def has_decrypted(self) -> bool:
        """See Wire."""
        return self._tls is not None and self._tls.pending() > 0

    def fileno(self) -> int:
        """See Wire."""
        return self.sock.fileno()

    def receive_into(self, space: memoryview, /) -> int:
        """See Wire. Of TLS, which hands out one record at a time, as many as are there."""
        count = self.sock.recv_into(space)
        while self._tls is not None and 0 < count < len(space):
            try:
                more = self._tls.recv_into(space[count:])
            except WOULD_BLOCK:
                break
            if not more:
                break  # the next read says it again
            count += more
        return count

    async def wait_readable(self) -> None:
        """See Wire."""
        await trio.lowlevel.wait_readable(self.sock)

    async def wait_writable(self) -> None:
        """See Wire."""
        await trio.lowlevel.wait_writable(self.sock)

    def close(self) -> None:
        """See Wire."""
        if self.sock.fileno() < 0:
            return  # TLS took it and found that it was gone
        # Not connected any more: there is nothing to shut down.
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if trio.lowlevel.in_trio_run():  # outside of it no task can be waiting for the socket
            trio.lowlevel.notify_closing(self.sock)
        self.sock.close()


class _TcpListener:
    """Implements WireListener."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener

    async def accept(self) -> tuple[Wire, str]:
        """See WireListener."""
        stream = await self._listener.accept()
        host = _remote_host(stream)
        return SocketWire.of(stream), host

    async def aclose(self) -> None:
        """See WireListener."""
        await self._listener.aclose()


class TcpTransport:
    """The machine's network. Implements Transport."""

    async def listen(self, address: Address) -> tuple[Sequence[WireListener], int]:
        """See Transport."""
        listeners = await trio.open_tcp_listeners(address.port, host=address.host)
        port = int(listeners[0].socket.getsockname()[1])
        return [_TcpListener(listener) for listener in listeners], port

    async def dial(self, address: Address) -> Wire:
        """See Transport."""
        return SocketWire.of(await trio.open_tcp_stream(address.host, address.port))


def _remote_host(stream: trio.SocketStream) -> str:
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:
        return "unknown"
