"""Frames of a link: u32 length, u8 channel, u32 checksum, payload. Pure: bytes in, frames out.

The length counts what follows it. The checksum (CRC-32C) covers length, channel and payload: what a proxy or a broken
card has changed ends the session before anything of it is believed. (TLS keeps out
deliberate changes.)
A channel is an ordered stream of its own; between channels the sender may choose. Little endian, as everything between
nodes.
"""

import struct
from collections.abc import Callable
from typing import Final

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.frames._frame import crc32c

CHANNEL_CONTROL: Final = 0  # welcome, gossip, keepalive
CHANNEL_RAFT: Final = 1
CHANNEL_RPC: Final = 2
CHANNEL_ROUTE: Final = 3  # core messages and interest
CHANNEL_BULK: Final = 4  # calls that carry much: snapshots
CHANNEL_DETOUR: Final = 5  # core messages for a node that is not linked with the sender (raft/mesh/detours.py)
CHANNELS: Final = 6

FRAME_BYTES_MAX: Final = 64 << 20  # nats-server admits messages of up to 64 MiB; nothing larger is ever needed
CONTROL_BYTES_MAX: Final = 256 << 10  # all that a node says of itself and of 256 others
READ_BYTES: Final = 256 << 10  # one receive: two pages of a socket's default buffer, as in the client data plane
KEPT_BYTES_MAX: Final = 4 * READ_BYTES  # a buffer that has grown for a larger frame is given back after it
_HEAD: Final = struct.Struct("<IBI")
_CHECKED_HEAD: Final = struct.Struct("<IB")
_AFTER_LENGTH_BYTES: Final = _HEAD.size - 4  # channel and checksum


def frame_head(channel: int, payload: bytes) -> bytes:
    """The bytes before a payload."""
    length = len(payload) + _AFTER_LENGTH_BYTES
    assert length <= FRAME_BYTES_MAX, "no frame is larger than a receiver admits"
    return _HEAD.pack(length, channel, crc32c(payload, crc32c(_CHECKED_HEAD.pack(length, channel))))


class FrameDecoder:
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
            if len(self._buffer) > KEPT_BYTES_MAX:
                self._buffer = bytearray(READ_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def _make_room(self) -> None:
        """Move what is unfinished to the front of a buffer that can hold the frame it belongs to."""
        unfinished = self._buffer[self._start : self._end]
        need = READ_BYTES
        if len(unfinished) >= _HEAD.size:  # `received` has found the length possible
            need = max(need, 4 + int.from_bytes(unfinished[:4], "little"))
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
            length, channel, checksum = _HEAD.unpack_from(self._buffer, self._start)
            limit = CONTROL_BYTES_MAX if channel == CHANNEL_CONTROL else FRAME_BYTES_MAX
            if not _AFTER_LENGTH_BYTES <= length <= limit or channel >= CHANNELS:
                raise RemoteProtocolError(f"a frame of {length} bytes on channel {channel}")
            frame_end = self._start + 4 + length
            if frame_end > self._end:
                return
            payload = view[self._start + _HEAD.size : frame_end]
            if crc32c(payload, crc32c(view[self._start : self._start + _CHECKED_HEAD.size])) != checksum:
                raise RemoteProtocolError(f"a frame of channel {channel} was changed on its way")
            self._start = frame_end
            handle(channel, payload)
