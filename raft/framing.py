"""Frames of a link: u32 length, u8 channel, payload. Pure: bytes in, frames out.

The length counts the channel byte and the payload. A channel is an ordered stream of its own; between channels the
sender may choose. Little endian, as everything between nodes.
"""

import struct
from collections.abc import Callable
from typing import Final

from jetraft.raft.wire import RemoteProtocolError

CHANNEL_CONTROL: Final = 0  # welcome, gossip, keepalive
CHANNEL_RAFT: Final = 1
CHANNEL_RPC: Final = 2
CHANNEL_ROUTE: Final = 3  # core messages and interest
CHANNEL_BULK: Final = 4  # calls that carry much: snapshots
CHANNELS: Final = 5

FRAME_BYTES_MAX: Final = 64 << 20  # nats-server admits messages of up to 64 MiB; nothing larger is ever needed
READ_BYTES: Final = 256 << 10  # one receive: two pages of a socket's default buffer, as in the client data plane
_HEAD: Final = struct.Struct("<IB")


def frame_head(channel: int, payload_bytes: int) -> bytes:
    """The bytes before a payload."""
    assert payload_bytes < FRAME_BYTES_MAX, "no frame is larger than a receiver admits"
    return _HEAD.pack(payload_bytes + 1, channel)


class FrameReader:
    """Finds frames in what a socket delivers: receive into `space`, then `received` hands complete frames out."""

    __slots__ = ("_buffer", "_end", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray(READ_BYTES)
        self._start = 0  # of the first byte not consumed
        self._end = 0  # after the last byte received

    def space(self) -> memoryview:
        """Room for the next receive; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def _make_room(self) -> None:
        """Move what is unfinished to the front of a buffer that can hold the frame it belongs to."""
        unfinished = self._buffer[self._start : self._end]
        need = READ_BYTES
        if len(unfinished) >= _HEAD.size:
            need = max(need, _HEAD.size + _HEAD.unpack_from(unfinished)[0])
        self._buffer = bytearray(need + (0 if len(unfinished) < need else READ_BYTES))
        self._buffer[: len(unfinished)] = unfinished
        self._start, self._end = 0, len(unfinished)

    def received(self, count: int, handle: Callable[[int, memoryview], None]) -> None:
        """`count` bytes arrived; calls `handle(channel, payload)` per complete frame, payloads valid during the call.

        Raises RemoteProtocolError.
        """
        self._end += count
        view = memoryview(self._buffer)
        while self._end - self._start >= _HEAD.size:
            length, channel = _HEAD.unpack_from(self._buffer, self._start)
            if not 1 <= length <= FRAME_BYTES_MAX or channel >= CHANNELS:
                raise RemoteProtocolError(f"a frame of {length} bytes on channel {channel}")
            frame_end = self._start + 4 + length
            if frame_end > self._end:
                return
            payload = view[self._start + _HEAD.size : frame_end]
            self._start = frame_end
            handle(channel, payload)
