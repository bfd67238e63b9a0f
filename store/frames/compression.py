"""Compressed frames, in the compacted blocks of streams with `compression` (decision 29).

A packed frame has FRAME_PACKED in its flags and this body:

    u32 expanded length            u32 length of the inner frame     u32 crc of the inner frame
    u32 bytes of compressed data   the data                          zeros up to the end

The inner frame may be thin (store/frames/_thin.pyx). It is unpacked into a buffer of exactly its length and verified
against its checksum. The codec is zstd at its fastest level, by measurement (docs/storage.md): for batches of JSON its
output is half the size of that of lz4 and snappy, at the same speed. "s2" in a stream's configuration only asks for
compression; the format on disk is not visible to clients. Library: `cramjam`.
"""

import struct
from typing import Any, Final

from jetraft.store.frames._frame import crc32c, verify
from jetraft.store.frames.format import (
    FRAME_BYTES_MAX,
    FRAME_CRC_AT,
    FRAME_CRC_FROM,
    FRAME_FLAGS_AT,
    FRAME_HEADER_BYTES,
    FRAME_PACKED,
    FRAME_THIN,
    FRAME_THIN_LENGTH_AT,
)
from jetraft.store.port import StoreRefused

_HEAD: Final = struct.Struct("<IIII")
LEVEL: Final = 1
LEVELS_TO_FIT: Final = (1, 9, 19)  # for a frame that must not be longer than the one that it replaces
SLACK_BYTES: Final = 64
GAIN_PERCENT_MIN: Final = 10  # below that, the cost of reading outweighs the space saved


def zstd() -> Any:
    """The codec. Raises StoreRefused when the library is not installed."""
    try:
        import cramjam  # noqa: PLC0415  most streams are not compressed
    except ImportError as error:
        raise StoreRefused(f"compression needs the package cramjam: {error}") from error
    return cramjam.zstd


def pack(frame: bytes) -> bytes | None:
    """The packed form of an open frame, which may be thin; None when it saves less than GAIN_PERCENT_MIN."""
    data = bytes(zstd().compress(frame[FRAME_HEADER_BYTES:], level=LEVEL))
    size = FRAME_HEADER_BYTES + _HEAD.size + len(data) + SLACK_BYTES
    if size * 100 > len(frame) * (100 - GAIN_PERCENT_MIN):
        return None
    packed = _put(frame, data, size)
    assert unpack(packed) == frame, "the packed frame does not unpack to the original"
    return packed


def pack_like(model: bytes, frame: bytes) -> bytes | None:
    """A frame packed to exactly the length of `model`, which it replaces; None when it does not fit."""
    for level in LEVELS_TO_FIT:
        data = bytes(zstd().compress(frame[FRAME_HEADER_BYTES:], level=level))
        if FRAME_HEADER_BYTES + _HEAD.size + len(data) <= len(model):
            return _put(frame, data, len(model))
    return None


def unpack(packed: bytes) -> bytes:
    """The inner frame. Raises ValueError when it is damaged."""
    if len(packed) < FRAME_HEADER_BYTES + _HEAD.size:
        raise ValueError(f"a packed frame of {len(packed)} bytes has no head")
    _, length, crc, data_bytes = _HEAD.unpack_from(packed, FRAME_HEADER_BYTES)
    data_at = FRAME_HEADER_BYTES + _HEAD.size
    if data_bytes > len(packed) - data_at or not FRAME_HEADER_BYTES <= length <= FRAME_BYTES_MAX:
        raise ValueError(f"{data_bytes} bytes of compressed data for a frame of {length} do not fit")
    codec = zstd()
    inside = bytearray(length - FRAME_HEADER_BYTES)
    try:
        written = codec.decompress_into(packed[data_at : data_at + data_bytes], inside) if inside else 0
    except Exception as error:
        raise ValueError(f"decompression failed: {error}") from error
    header = bytearray(packed[:FRAME_HEADER_BYTES])
    header[:FRAME_CRC_AT] = length.to_bytes(4, "little")
    header[FRAME_CRC_AT:FRAME_CRC_FROM] = crc.to_bytes(4, "little")
    header[FRAME_FLAGS_AT] &= ~FRAME_PACKED & 0xFF
    frame = bytes(header + inside)
    if written != len(inside) or not verify(frame):
        raise ValueError("the inner frame is damaged")
    return frame


def _put(frame: bytes, data: bytes, size: int) -> bytes:
    is_thin = frame[FRAME_FLAGS_AT] & FRAME_THIN
    seen = frame[FRAME_THIN_LENGTH_AT : FRAME_THIN_LENGTH_AT + 4] if is_thin else frame[:4]
    crc = int.from_bytes(frame[FRAME_CRC_AT:FRAME_CRC_FROM], "little")
    head = _HEAD.pack(int.from_bytes(seen, "little"), len(frame), crc, len(data))
    packed = bytearray(b"".join((frame[:FRAME_HEADER_BYTES], head, data)).ljust(size, b"\0"))
    packed[:FRAME_CRC_AT] = size.to_bytes(4, "little")
    packed[FRAME_FLAGS_AT] |= FRAME_PACKED
    packed[FRAME_CRC_AT:FRAME_CRC_FROM] = crc32c(memoryview(packed)[FRAME_CRC_FROM:]).to_bytes(4, "little")
    return bytes(packed)
