"""The framing around S2 blocks: chunks with checksums, so that every byte of an archive is verified. Pure.

    u8 kind | u24 length | body        kinds: 0xff identifier; 0 compressed, 1 as it is, both u32 checksum | data;
                                       0x80 to 0xfe to be skipped; all others are an error

The checksum is the crc32c of the data as it was before compression, masked. Source: Snappy's framing_format.txt; S2
differs in the identifier and in blocks of up to 4 MiB (klauspost/compress/s2).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from jetraft.store.frames._frame import crc32c
from jetraft.store.s2._blocks import decode_block, encode_block

if TYPE_CHECKING:
    from collections.abc import Iterator

IDENTIFIERS: Final = (b"S2sTwO", b"sNaPpY")
BLOCK_BYTES: Final = 1 << 16  # that we write: no reader of Snappy takes larger ones
BLOCK_BYTES_MAX: Final = 4 << 20  # that we read: S2's largest
CHUNK_BYTES_MAX: Final = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX // 6 + 64  # incompressible data grows a little
WORTH_IT_PERCENT: Final = 88  # a block that shrinks less than an eighth is stored as it is

_HEAD_BYTES: Final = 4
_SUM_BYTES: Final = 4
_COMPRESSED, _AS_IT_IS, _IDENTIFIER, _SKIPPED_FROM = 0x00, 0x01, 0xFF, 0x80
_START: Final = b"\xff\x06\x00\x00" + IDENTIFIERS[0]


class CorruptArchiveError(ValueError):
    """The input is not an archive, or is damaged, or cut off. The text is fit for clients."""


class Compressor:
    """Bytes in, a framed stream out; `flush` ends the block that is being filled."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begun = False

    def add(self, data: bytes) -> bytes:
        """Take bytes; return what has become whole chunks by that."""
        self._buffer += data
        out = []
        while len(self._buffer) >= BLOCK_BYTES:
            out.append(self._chunk(bytes(self._buffer[:BLOCK_BYTES])))
            del self._buffer[:BLOCK_BYTES]
        return b"".join(out)

    def flush(self) -> bytes:
        """Return the chunk of what remains; nothing when nothing does."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return self._chunk(rest) if rest else b""

    def _chunk(self, data: bytes) -> bytes:
        start, self._begun = b"" if self._begun else _START, True
        block = encode_block(data)
        kind = _COMPRESSED
        if len(block) * 100 > len(data) * WORTH_IT_PERCENT:
            kind, block = _AS_IT_IS, data
        length = len(block) + _SUM_BYTES
        return b"%s%c%s%s%s" % (start, kind, length.to_bytes(3, "little"), _sum_of(data), block)


class Decompressor:
    """The framed stream in, in pieces of any size; blocks out, each verified. Memory: one chunk and one block."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begun = False

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield the blocks that are complete now, and nothing (b"") for a chunk to skip. Raises CorruptArchiveError."""
        self._buffer += data
        while len(self._buffer) >= _HEAD_BYTES:
            kind, length = self._buffer[0], int.from_bytes(self._buffer[1:_HEAD_BYTES], "little")
            _check_chunk(kind, length, begun=self._begun)
            if len(self._buffer) < _HEAD_BYTES + length:
                return
            body = bytes(self._buffer[_HEAD_BYTES : _HEAD_BYTES + length])
            del self._buffer[: _HEAD_BYTES + length]
            if kind == _IDENTIFIER:
                _check_identifier(body)
                self._begun = True
            elif kind in (_COMPRESSED, _AS_IT_IS):
                yield _verified(kind, body)
            else:
                yield b""

    def finish(self) -> None:
        """Raise CorruptArchiveError unless the stream ended with a chunk."""
        if self._buffer:
            raise CorruptArchiveError("s2: corrupt input")
        if not self._begun:
            raise CorruptArchiveError("EOF")


def _check_chunk(kind: int, length: int, *, begun: bool) -> None:
    if kind == _IDENTIFIER:
        sound = length == len(IDENTIFIERS[0])
    elif kind in (_COMPRESSED, _AS_IT_IS):
        sound = begun and _SUM_BYTES <= length <= CHUNK_BYTES_MAX
    else:
        sound = begun and kind >= _SKIPPED_FROM
    if not sound:
        raise CorruptArchiveError("s2: corrupt input")


def _check_identifier(body: bytes) -> None:
    if body not in IDENTIFIERS:
        raise CorruptArchiveError("s2: corrupt input")


def _verified(kind: int, body: bytes) -> bytes:
    checksum, block = body[:_SUM_BYTES], body[_SUM_BYTES:]
    try:
        data = decode_block(block, BLOCK_BYTES_MAX) if kind == _COMPRESSED else block
    except ValueError:
        raise CorruptArchiveError("s2: corrupt input") from None
    if len(data) > BLOCK_BYTES_MAX:
        raise CorruptArchiveError("s2: corrupt input")
    if _sum_of(data) != checksum:
        raise CorruptArchiveError("s2: corrupt input, crc mismatch")
    return data


def _sum_of(data: bytes) -> bytes:
    """The masked crc32c: rotated, so that sums of data that holds sums are not weak."""
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)
