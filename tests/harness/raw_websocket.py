"""The plain client of raw.py inside of WebSocket: frames are made and read here, so malformed ones can be sent."""

import json
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from tests.harness.raw import REPLY_TIMEOUT_S, Line, RawClient

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x01\x02\x03\x04"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
SHORT, WIDE = 126, 65536  # the first lengths that take two and eight bytes
TAIL, RAW = b"\x00\x00\xff\xff", -15  # of a compressed message (RFC 7692)
RECEIVE_BYTES = 1 << 18


@attrs.frozen
class Frame:
    """A frame of the server, which has no mask and is whole if it is compressed."""

    opcode: int
    payload: bytes
    compressed: bool = False


def frame(  # noqa: PLR0913  (each is a field of the head)
    opcode: int, payload: bytes = b"", *, final: bool = True, mask: bytes | None = MASK, rsv: int = 0, length: int = -1
) -> bytes:
    """A frame of a client; `length` is stated whatever the payload has."""
    size = len(payload) if length < 0 else length
    flag = 0 if mask is None else 0x80
    head = bytes([(final << 7) | (rsv << 4) | opcode])
    if size < SHORT:
        head += bytes([flag | size])
    elif size < WIDE:
        head += bytes([flag | SHORT]) + struct.pack(">H", size)
    else:
        head += bytes([flag | 127]) + struct.pack(">Q", size)
    if mask is None:
        return head + payload
    key = (mask * (len(payload) // 4 + 1))[: len(payload)]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return head + mask + masked.to_bytes(len(payload), "big")


def request(
    path: str = "/",
    *,
    method: str = "GET",
    version: str = "1.1",
    without: tuple[str, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A request for an upgrade."""
    fields = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        **(headers or {}),
    }
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if name not in without]
    return f"{method} {path} HTTP/{version}\r\n{''.join(lines)}\r\n".encode()


class WebSocketClient(RawClient):
    """One connection. `answer` is the head of the server's answer, `frames` the frames other than of the protocol."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        context: ssl.SSLContext | None = None,
        connect: bool = True,
        upgrade: bytes = b"",
        masks: bool = True,
        **wish: Any,
    ) -> None:
        plain = socket.create_connection(address, REPLY_TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock = plain if context is None else context.wrap_socket(plain, server_hostname="localhost")
        self.masks = masks
        self.frames: list[Frame] = []
        self.arrived = bytearray()
        self.longest = 0  # payload of a frame
        self._begin(sock)
        self.answer = b""
        self.send_bytes(upgrade or request())
        while b"\r\n\r\n" not in self.answer:
            byte = sock.recv(1)
            if not byte:
                self.closed = True
                return
            self.answer += byte
        if not self.answer.startswith(b"HTTP/1.1 101 "):
            return
        first = self.next_event()
        assert isinstance(first, Line)
        self.info: dict[str, Any] = json.loads(first.text.removeprefix("INFO "))
        if connect:
            self.connect(**wish)

    @property
    def status(self) -> int:
        """Of the answer."""
        return int(self.answer.split(b" ")[1])

    def send_bytes(self, data: bytes) -> None:
        """Send bytes without a frame around them."""
        super().send(data)

    def send(self, data: bytes) -> None:
        """Send bytes of the protocol in a frame."""
        self.send_bytes(frame(BINARY, data, mask=MASK if self.masks else None))

    def _receive(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            return
        except OSError:
            data = b""
        self.closed = self.closed or not data
        self.arrived += data
        for found in self._whole_frames():
            if found.opcode in (CONTINUATION, BINARY):
                packed = found.payload + TAIL
                self._buffer += zlib.decompressobj(RAW).decompress(packed) if found.compressed else found.payload
            else:
                self.frames.append(found)

    def _whole_frames(self) -> Iterator[Frame]:
        while len(self.arrived) >= 2:
            first, length, at = self.arrived[0], self.arrived[1], 2
            if length >= SHORT:
                at += 2 if length == SHORT else 8
                if len(self.arrived) < at:
                    return
                length = int.from_bytes(self.arrived[2:at], "big")
            if len(self.arrived) < at + length:
                return
            self.longest = max(self.longest, length)
            yield Frame(first & 0x0F, bytes(self.arrived[at : at + length]), bool(first & 0x40))
            del self.arrived[: at + length]

    def next_frame(self, timeout_s: float = REPLY_TIMEOUT_S) -> Frame | None:
        """The next control frame; None when the server closes the connection or says nothing."""
        deadline = time.monotonic() + timeout_s
        while not self.frames and not self.closed and (left_s := deadline - time.monotonic()) > 0:
            self._receive(left_s)
        return self.frames.pop(0) if self.frames else None

    def next_pong(self) -> bool:
        """Whether the next event is a PONG of the protocol; an INFO may come before it."""
        event = self.next_event()
        while isinstance(event, Line) and event.text.startswith("INFO "):
            event = self.next_event()
        return event == Line(text="PONG")

    def end(self) -> Frame | None:
        """Read to the end of the connection: the close frame, if there was one."""
        self.rest()
        closes = [found for found in self.frames if found.opcode == CLOSE]
        return closes[0] if closes else None
