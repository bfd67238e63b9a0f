"""The socket of a connection and what was received from it: whole frames out, bytes in.

Whatever goes wrong closes the socket and raises ServerError, so that a frame is never read from the middle of another.
"""

import contextlib
import select
import socket

from pyspark_jetstream import wire
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.login import refused

# A megabyte per recv keeps the number of joins low; a batch answer in rows is about 4 MB.
RECEIVE_BYTES = 1 << 20
# A message of this size is received into memory of its own, and the line before it alone, so nothing is copied.
LARGE_BYTES = 64 << 10
LINE_BYTES = 512


class Transport:
    """A connected socket. Every method raises ServerError when the server fails."""

    def __init__(self, url: str, connected: socket.socket) -> None:
        self.url = url
        self.closed = False
        self._socket = connected
        self._data: bytes = b""
        self._start = 0
        self._frame_start = 0  # of the last frame taken
        self._needed = 0  # unread bytes that complete the frame at _start, 0 when not known

    def set_timeout(self, timeout_s: float) -> None:
        """Set the timeout of every wait of the next call."""
        if self.closed:
            raise ServerError(f"{self.url}: the connection is closed")
        self._socket.settimeout(timeout_s)

    def send(self, data: bytes | memoryview) -> None:
        """Send everything."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise ServerError(f"{self.url}: {error}") from error

    def expect(self, verb: bytes) -> wire.Frame:
        """Return the next frame with this verb; answer PING, skip INFO and +OK, raise ServerError for -ERR."""
        while True:
            frame = self._next_frame()
            if frame.verb == b"-ERR":
                self.close()
                raise refused(self.url, frame.argument.decode("utf-8", "replace"))
            if frame.verb == b"PING":
                self.send(b"PONG\r\n")
            if frame.verb == verb:
                return frame

    def peek(self) -> wire.Frame:
        """Return the next message and leave it where it is."""
        frame = self.expect(b"MSG")
        self._start = self._frame_start
        return frame

    def scan(self, scanner: wire.Scanner, rows: wire.Rows) -> None:
        """Append the messages to the rows that are received completely and that the scanner knows."""
        self._start = scanner(self._data, self._start, rows)

    def large_payload(self) -> memoryview | None:
        """Return the payload of the next message if it is large and has no headers; None when something else is next.

        It waits for the next bytes. Only for a connection on which such messages are expected.
        """
        if self._start == len(self._data):
            self._receive(0, bytes_max=LINE_BYTES)
        found = wire.plain_message(self._data, self._start)
        if found is None or found[1] < LARGE_BYTES:
            return None
        start, size = found
        message = bytearray(size + 2)
        view = memoryview(message)
        have = min(size + 2, len(self._data) - start)
        view[:have] = memoryview(self._data)[start : start + have]
        self._start = start + have
        while have < size + 2:
            have += self._receive_into(view[have:])
        if message[size:] != b"\r\n":
            self.close()
            raise ServerError(f"{self.url}: a message does not end where its line says")
        return view[:size]

    def is_alive(self) -> bool:
        """Whether the connection can be used after a pause; answers PINGs that arrived in the pause."""
        try:
            while not self.closed and select.select([self._socket], [], [], 0)[0]:
                self._receive(0)
                while frame := self._buffered_frame():
                    if frame.verb == b"PING":
                        self.send(b"PONG\r\n")
        except (ServerError, OSError):
            self.close()
        return not self.closed

    def waits(self, timeout_s: float) -> bool:
        """Whether something can be received, after waiting for it so long at most."""
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def taken(self) -> list[wire.Frame]:
        """Receive once, and take the messages that are complete."""
        self._receive(0)
        frames: list[wire.Frame] = []
        while frame := self._buffered_frame():
            if frame.verb == b"-ERR":
                self.close()
                raise refused(self.url, frame.argument.decode("utf-8", "replace"))
            if frame.verb == b"PING":
                self.send(b"PONG\r\n")
            if frame.verb == b"MSG":
                frames.append(frame)
        return frames

    def close(self) -> None:
        """Close the socket; it cannot be used again."""
        if not self.closed:
            self.closed = True
            with contextlib.suppress(OSError):
                self._socket.close()

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
            self._frame_start, self._start = self._start, position
        return frame

    def _receive(self, needed: int, *, bytes_max: int = RECEIVE_BYTES) -> None:
        """Receive at least once, until `needed` unread bytes are buffered; drops the parsed part of the buffer."""
        chunks = [self._data[self._start :]]
        size = len(chunks[0])
        received = 0
        try:
            while received == 0 or size < needed:
                chunk = self._socket.recv(bytes_max)
                if not chunk:
                    raise ConnectionResetError("the server closed the connection")
                chunks.append(chunk)
                received += len(chunk)
                size += len(chunk)
        except OSError as error:
            raise self._failed(error) from error
        self._data = b"".join(chunks)
        self._start = 0

    def _receive_into(self, view: memoryview) -> int:
        try:
            received = self._socket.recv_into(view)
            if not received:
                raise ConnectionResetError("the server closed the connection")
        except OSError as error:
            raise self._failed(error) from error
        return received

    def _failed(self, error: OSError) -> ServerError:
        self.close()
        return ServerError(f"{self.url}: {'no answer in time' if isinstance(error, TimeoutError) else error}")
