"""Archives of nats-server 2.14 and before: a tar of its file store, of which messages and consumers are read. Pure.

    meta.inf, meta.sum              the stream's configuration; the request's counts, this must have its name
    msgs/<n>.blk                    records, ascending; removals are records too, and stand in later blocks
    msgs/index.db                   derived; verified and not read
    obs/<name>/meta.inf, meta.sum   a consumer's configuration
    obs/<name>/o.dat                and its state

    record: u32 length, its top bit says that there are headers | u64 sequence, its top bits say erased, removal |
            i64 Unix ns | u16 subject bytes | subject | [u32 header bytes] | header | body | u64 checksum
    block, when compressed: "cmp" | u8 algorithm | uvarint size | S2 stream of everything but the last checksum | it

Nothing becomes a path: a name is matched against this list, everything else is refused, as are links and directories.
The checksums that nats-server keeps of its files are verified (`sums.py`). Source: filestore.go of nats-server 2.14
(msgFromBuf, encodeConsumerState, CompressionInfo), and archives that 2.14.6 wrote.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.cluster.backup.archive import ArchiveEntry, cut_off
from jetraft.cluster.backup.consumers import ROWS_MAX, ConsumerParts
from jetraft.cluster.backup.contents import ArchiveEnd, Removal
from jetraft.cluster.backup.sums import HDR_LENGTH_BYTES, SUM_BYTES, WAITING_MAX, BlockSums, Configurations, index_holds
from jetraft.store.model.encoding.gojson import BODY_BYTES_MAX
from jetraft.store.model.gotime import parse_time
from jetraft.store.s2.framing import CorruptArchiveError, Decompressor

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

TAR_BLOCK: Final = 512
FILE_BYTES_MAX: Final = 64 << 20  # a block of nats-server has 8 MiB, and a message more at most
MEMBERS_PER_STEP: Final = 64  # of a tar: about a millisecond
RECORDS_PER_STEP: Final = 256  # about a millisecond
REMOVED_AT_ONCE: Final = 10_000  # sequences of one removal

_NAME: Final = re.compile(rb"meta\.(?:inf|sum)|msgs/(?:(\d+)\.blk|index\.db)|obs/([^/]+)/(meta\.inf|meta\.sum|o\.dat)")
_RECORD: Final = struct.Struct("<IQqH")
_HAS_HDR: Final = 1 << 31
_ERASED: Final = 1 << 63
_REMOVAL: Final = 1 << 62
_SEQ: Final = _REMOVAL - 1
_COMPRESSED: Final = b"cmp"
_S2: Final = b"\x01"
_STATE_MAGIC: Final = 22
_STATE_VERSIONS: Final = (1, 2)
_VARINT_SHIFT_MAX: Final = 63


@attrs.frozen(slots=True)
class File:
    """A regular file of a tar."""

    name: bytes
    data: bytes


class TarReader:
    """Bytes in, in pieces of any size; regular files out. Memory: one file."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._long_name = b""
        self._members = 0
        self.ended = False

    def add(self, data: bytes) -> Iterator[File | None]:
        """Yield the files that are complete now, and None behind some members. Raises CorruptArchiveError."""
        self._buffer += data
        while not self.ended and len(self._buffer) >= TAR_BLOCK:
            head = bytes(self._buffer[:TAR_BLOCK])
            if not any(head):
                self.ended = True
                return
            size = _checked_size(head)
            end = TAR_BLOCK + -(-size // TAR_BLOCK) * TAR_BLOCK
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[TAR_BLOCK : TAR_BLOCK + size])
            del self._buffer[:end]
            kind = head[156:157]
            if kind == b"x":
                self._long_name = _long_name(content)
            elif kind in (b"0", b"\0"):
                name, self._long_name = self._long_name or _short_name(head), b""
                yield File(name, content)
            else:
                raise CorruptArchiveError("only regular files are expected in a snapshot")
            self._members += 1
            if self._members % MEMBERS_PER_STEP == 0:
                yield None


def _checked_size(head: bytes) -> int:
    """The size in a head whose checksum holds. Raises CorruptArchiveError."""
    try:
        size, checksum = int(head[124:136].strip(b" \0") or b"0", 8), int(head[148:156].strip(b" \0"), 8)
    except ValueError:
        raise CorruptArchiveError("archive/tar: invalid tar header") from None
    if checksum != sum(head) - sum(head[148:156]) + 8 * ord(" ") or not 0 <= size <= FILE_BYTES_MAX:
        raise CorruptArchiveError("archive/tar: invalid tar header")
    return size


def _short_name(head: bytes) -> bytes:
    name, prefix = head[:100].rstrip(b"\0"), head[345:500].rstrip(b"\0")
    return prefix + b"/" + name if prefix and head[257:262] == b"ustar" else name


def _long_name(content: bytes) -> bytes:
    r"""The path of a PAX record, `<length> path=<name>\\n`; empty when there is none."""
    found = re.search(rb"(?:^|\n)\d+ path=([^\n]*)\n", content)
    return found[1] if found else b""


class LegacyContents:
    """Files in; messages, removals and consumers out, in the order of the archive."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._unproven = Configurations(stream)
        self._configs: dict[bytes, bytes] = {}  # of consumers whose state has not come yet
        self._met_stream = False
        self.last_seq = self.last_ts_ns = 0

    def take(self, file: File) -> Iterator[ArchiveEntry | Removal | tuple[bytes, ConsumerParts] | None]:
        """Yield what a file says, and None for work that says nothing yet.

        A consumer is its name and what the file says of it.
        """
        known = _NAME.fullmatch(file.name)
        if known is None:
            raise CorruptArchiveError(f"unexpected file {file.name[:80]!r}")
        block, consumer, part = known.groups()
        if block is not None:
            plain = yield from _plain_block(file.data)
            yield from self._messages(plain, BlockSums(self._stream, int(block)))
        elif part == b"o.dat":
            yield consumer, (yield from self._consumer(consumer, file.data))
        elif file.name == b"msgs/index.db":
            if not index_holds(self._stream, file.data):
                raise CorruptArchiveError("a damaged index of messages")
        elif file.name.endswith(b"meta.sum"):
            self._unproven.prove(consumer or b"", file.data)
        else:
            self._take_configuration(consumer or b"", file.data)

    def finish(self) -> ArchiveEnd:
        """The end of the stream. Raises CorruptArchiveError unless the archive was whole."""
        if not self._met_stream or self._configs or not self._unproven.are_none:
            raise cut_off()
        return ArchiveEnd(self.last_seq, self.last_ts_ns)

    def _take_configuration(self, consumer: bytes, data: bytes) -> None:
        """Keep a consumer's until its state comes; the stream's, without a name here, must be of this stream."""
        self._unproven.put(consumer, data)
        if consumer:
            if len(self._configs) >= WAITING_MAX:
                raise CorruptArchiveError("consumers without a state")
            self._configs[consumer] = data
        else:
            self._met_stream = True
            if _json(data).get("name") != self._stream:
                raise CorruptArchiveError("stream name may not be changed during restore")

    def _messages(self, block: memoryview, sums: BlockSums) -> Iterator[ArchiveEntry | Removal | None]:
        at, removed, number = 0, set[int](), 0
        while at < len(block):
            number += 1
            if number % RECORDS_PER_STEP == 0:
                yield None
            found, at = self._record(block, at, sums)
            if isinstance(found, ArchiveEntry):
                yield found
            elif found is not None:
                removed.add(found)
            if len(removed) >= REMOVED_AT_ONCE:
                yield Removal(tuple(sorted(removed)))
                removed.clear()
        if removed:
            yield Removal(tuple(sorted(removed)))

    def _record(self, block: memoryview, at: int, sums: BlockSums) -> tuple[ArchiveEntry | int | None, int]:
        """The message at a place, the sequence of one that was removed, or nothing; and where the next one is."""
        if at + _RECORD.size > len(block):
            raise CorruptArchiveError("a damaged message block")
        length, seq, ts_ns, subject_bytes = _RECORD.unpack_from(block, at)
        has_hdr, length = bool(length & _HAS_HDR), length & ~_HAS_HDR
        end, body_at = at + length, at + _RECORD.size + subject_bytes
        if end > len(block) or body_at + HDR_LENGTH_BYTES * has_hdr > end - SUM_BYTES:
            raise CorruptArchiveError("a damaged message block")
        if not sums.holds(block[at:end], subject_bytes, has_hdr=has_hdr):
            raise CorruptArchiveError(f"the checksum of the message at sequence {seq & _SEQ} is wrong")
        if seq & _REMOVAL:
            self.last_seq, self.last_ts_ns = max(self.last_seq, seq & _SEQ), max(self.last_ts_ns, ts_ns)
            return seq & _SEQ, end
        if seq & _ERASED or not seq:
            return None, end
        hdr_at = body_at
        if has_hdr:
            hdr_at = body_at + HDR_LENGTH_BYTES
            body_at = hdr_at + int.from_bytes(block[body_at:hdr_at], "little")
        if body_at > end - SUM_BYTES:
            raise CorruptArchiveError("a damaged message block")
        subject = bytes(block[at + _RECORD.size : at + _RECORD.size + subject_bytes])
        hdr, body = bytes(block[hdr_at:body_at]), bytes(block[body_at : end - SUM_BYTES])
        self.last_seq, self.last_ts_ns = max(self.last_seq, seq), max(self.last_ts_ns, ts_ns)
        return ArchiveEntry(subject, ts_ns, seq, hdr, body), end

    def _consumer(self, name: bytes, data: bytes) -> Generator[None, None, ConsumerParts]:
        config = _json(self._configs.pop(name, b"{}"))
        created = parse_time(str(config.pop("Created", ""))) or 0
        config.pop("Name", None)
        parts = ConsumerParts(config_json=orjson.dumps(config), ours={"created": max(0, created)})
        try:
            yield from _add_state(parts, data)
        except CorruptArchiveError:
            raise
        except ValueError as error:
            raise CorruptArchiveError(f"a consumer state: {error!s:.80}") from error
        return parts


def _checked_count(count: int) -> int:
    """How many messages a consumer waits for, or has sent again. Raises CorruptArchiveError."""
    if count > ROWS_MAX:
        raise CorruptArchiveError(f"a consumer state with more than {ROWS_MAX} messages")
    return count


def _json(data: bytes) -> dict[str, Any]:
    if len(data) > BODY_BYTES_MAX:
        raise CorruptArchiveError("a configuration that is too large")
    try:
        value = orjson.loads(data)
    except ValueError as error:
        raise CorruptArchiveError(f"a damaged configuration: {error!s:.80}") from error
    if not isinstance(value, dict):
        raise CorruptArchiveError("a damaged configuration")
    return value


def _plain_block(data: bytes) -> Generator[None, None, memoryview]:
    """The records of a block, decompressed where it is compressed, in steps of one chunk."""
    if not data.startswith(_COMPRESSED):
        return memoryview(data)
    if data[3:4] != _S2:
        raise CorruptArchiveError("a message block of an unknown compression")
    size, at = _uvarint(data, 4)
    if size > FILE_BYTES_MAX:
        raise CorruptArchiveError("a message block that is too large")
    decompressor, out = Decompressor(), bytearray()
    for part in decompressor.add(data[at:-SUM_BYTES]):
        out += part
        if len(out) > FILE_BYTES_MAX:
            raise CorruptArchiveError("a message block that is too large")
        yield
    decompressor.finish()
    return memoryview(bytes(out) + data[-SUM_BYTES:])


def _add_state(parts: ConsumerParts, data: bytes) -> Iterator[None]:
    """Add what an `o.dat` says. Raises CorruptArchiveError, ValueError."""
    if len(data) < 2 or data[0] != _STATE_MAGIC or data[1] not in _STATE_VERSIONS:  # noqa: PLR2004  (magic, version)
        raise CorruptArchiveError("a damaged consumer state")
    at, numbers = 2, []
    for _ in range(5):
        number, at = _uvarint(data, at)
        numbers.append(number)
    floor_consumer, floor_stream, consumer_seq, stream_seq, count = numbers
    if data[1] == 1:  # the first version counted deliveries from the floor
        consumer_seq, stream_seq = consumer_seq + max(0, floor_consumer - 1), stream_seq + max(0, floor_stream - 1)
    parts.deliver(consumer_seq, stream_seq)
    if count:
        newest_s, at = _varint(data, at)
        for place in range(_checked_count(count)):
            if place % RECORDS_PER_STEP == 0:
                yield
            seq, at = _uvarint(data, at)
            number = 0
            if data[1] > 1:
                number, at = _uvarint(data, at)
            age_s, at = _varint(data, at)
            at_ns = max(0, newest_s - age_s) * 10**9
            parts.wait_for(seq + floor_stream, number + floor_consumer, at_ns)
    count, at = _uvarint(data, at)
    for place in range(_checked_count(count)):
        if place % RECORDS_PER_STEP == 0:
            yield
        seq, at = _uvarint(data, at)
        times, at = _uvarint(data, at)
        parts.deliver_again(seq + floor_stream, times)


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift <= _VARINT_SHIFT_MAX:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  (the last byte of a varint)
            return number, at
        shift += 7
    raise CorruptArchiveError("a damaged number")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number, at = _uvarint(data, at)
    return (number >> 1) ^ -(number & 1), at
