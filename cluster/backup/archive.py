"""The archive of a stream, second version: entries one after the other, inside of an S2 stream. Pure.

    "NATSARC1"
    entry   uvarint name bytes | varint Unix ns | uvarint stream sequence | uvarint header bytes | uvarint body bytes |
            name | header | body

In this order: `state.json`; `consumers/<name>` as many times as it says; messages, their subject as the name, sequences
ascending; an entry of zeros. Without that last one an archive is cut off. Source: ADR "JetStream Stream Backup and
Restore V2", and the bytes of nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from jetraft.store.s2.framing import CorruptArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC: Final = b"NATSARC1"
STATE_NAME: Final = b"state.json"
CONSUMER_PREFIX: Final = b"consumers/"
NAME_BYTES_MAX: Final = 1 << 16  # a subject: the record of a message has two bytes for its length
BODY_BYTES_MAX: Final = 64 << 20  # nats-server admits messages of up to 64 MiB
VARINT_BYTES_MAX: Final = 10
NUMBERS: Final = 5  # at the head of an entry

_SEVEN_BITS, _MORE = 0x7F, 0x80  # of a byte of a varint
_CUT_OFF: Final = "unexpected EOF"
_INVALID: Final = "archive: invalid archive stream"


class ArchiveEntry(NamedTuple):
    """One entry: a message, or `state.json` or a consumer with sequence 0. A tuple: there is one for each message."""

    name: bytes
    ts_ns: int
    seq: int
    hdr: bytes
    body: bytes

    @property
    def is_end(self) -> bool:
        """True for the entry of zeros."""
        return not (self.name or self.ts_ns or self.seq or self.hdr or self.body)


END: Final = ArchiveEntry(b"", 0, 0, b"", b"")


def pack_entry(entry: ArchiveEntry) -> bytes:
    """The bytes of an entry."""
    zigzag = (entry.ts_ns << 1) ^ (entry.ts_ns >> 63)
    numbers = (len(entry.name), zigzag, entry.seq, len(entry.hdr), len(entry.body))
    return b"".join((*map(_pack_uvarint, numbers), entry.name, entry.hdr, entry.body))


class ArchiveReader:
    """Decompressed bytes in, in pieces of any size; entries out. Memory: a piece and one entry."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._begun = False

    def add(self, data: bytes) -> Iterator[ArchiveEntry]:
        """Yield the entries that are complete now. Raises CorruptArchiveError."""
        del self._buffer[: self._at]
        self._buffer += data
        self._at = 0
        if not self._begun:
            if len(self._buffer) < len(MAGIC):
                return
            if not self._buffer.startswith(MAGIC):
                raise CorruptArchiveError(_INVALID)
            self._begun, self._at = True, len(MAGIC)
        while (entry := self._next()) is not None:
            yield entry

    @property
    def is_at_an_end(self) -> bool:
        """True when the last entry is complete."""
        return self._begun and self._at == len(self._buffer)

    def _next(self) -> ArchiveEntry | None:
        buffer, at = self._buffer, self._at
        numbers = []
        for _ in range(NUMBERS):
            if at < len(buffer) and buffer[at] <= _SEVEN_BITS:  # as most are
                number: int | None = buffer[at]
                at += 1
            else:
                number, at = _uvarint(buffer, at)
            if number is None:
                return None
            numbers.append(number)
        name_bytes, zigzag, seq, hdr_bytes, body_bytes = numbers
        if name_bytes >= NAME_BYTES_MAX or hdr_bytes + body_bytes > BODY_BYTES_MAX:
            raise CorruptArchiveError(_INVALID)
        hdr_at = at + name_bytes
        body_at = hdr_at + hdr_bytes
        end = body_at + body_bytes
        if end > len(buffer):
            return None
        self._at = end
        ts_ns = (zigzag >> 1) ^ -(zigzag & 1)
        name, hdr, body = bytes(buffer[at:hdr_at]), bytes(buffer[hdr_at:body_at]), bytes(buffer[body_at:end])
        return ArchiveEntry(name, ts_ns, seq, hdr, body)


def cut_off() -> CorruptArchiveError:
    """The error of an archive that ends too early."""
    return CorruptArchiveError(_CUT_OFF)


def _pack_uvarint(number: int) -> bytes:
    out = bytearray()
    while number > _SEVEN_BITS:
        out.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    out.append(number)
    return bytes(out)


def _uvarint(buffer: bytearray, at: int) -> tuple[int | None, int]:
    """The number and the place behind it; None when the buffer ends before it. Raises CorruptArchiveError."""
    number = shift = 0
    for place in range(at, min(at + VARINT_BYTES_MAX, len(buffer))):
        byte = buffer[place]
        number |= (byte & _SEVEN_BITS) << shift
        if byte <= _SEVEN_BITS:
            if number >> 64:
                raise CorruptArchiveError(_INVALID)
            return number, place + 1
        shift += 7
    if len(buffer) - at >= VARINT_BYTES_MAX:
        raise CorruptArchiveError(_INVALID)
    return None, at
