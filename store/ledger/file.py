"""The bytes of a ledger's file, and the merge of its two copies. Pure.

A file is a head followed by records. All integers are little endian.

    head, 64 bytes:   16 bytes magic   u32 version   u32 crc of the head with 0 in its place
                      u64 ledger       u64 generation   u64 records that the generation begins with   16 bytes 0
    record, 32 bytes and a body:
                      u32 length, whole   u32 crc of bytes 8..length, going on from the ledger and its generation
                      u64 number          u64 number of the first record of its batch   u64 0

Records are numbered 1, 2, 3 ... in a generation. Both copies get the same records: a batch is written and fsynced in
the first, and then in the second. So a crash can tear only one copy, and the other one has what is lost. A record that
both lack while one of them has a later one is a hole: its content is unknown. The one exception is the last batch of
the first copy if the second has nothing of it: that batch is unfinished. And a copy that ends with bytes that are no
record may have lost one; a crash does that to one copy, so where no copy ends cleanly the end is unknown, too.
"""

import struct
from collections.abc import Sequence
from typing import Final

import attrs

from jetraft.store.frames._frame import crc32c

VERSION: Final = 1
HEAD_BYTES: Final = 64
RECORD_HEAD_BYTES: Final = 32
RECORD_BYTES_MAX: Final = 1 << 24  # a stream of a petabyte has 1.2 million blocks of some 12 bytes here

_MAGIC: Final = b"jetraft ledger\n\0"
_HEAD: Final = struct.Struct("<16sIIQQQ16x")
_HEAD_ZEROS: Final = 48  # from here on
_RECORD: Final = struct.Struct("<IIQQQ")
_SEED: Final = struct.Struct("<QQ")
_CRC_END: Final = 8


@attrs.frozen(kw_only=True, slots=True)
class Head:
    """Which ledger a file belongs to. `generation` grows with each rewriting, which begins with so many records."""

    ledger: int
    generation: int
    begins_with: int
    version: int = VERSION

    def seed(self) -> int:
        """The seed of the checksums of its records, so that bytes of another generation are never believed."""
        return crc32c(_SEED.pack(self.ledger, self.generation))


@attrs.frozen(kw_only=True, slots=True)
class Copy:
    """The sound part of one file. `records` has (number of the first of its batch, body) by number."""

    head: Head
    records: dict[int, tuple[int, bytes]]
    end: int  # where the next record goes when nothing behind it is in the way
    is_clean: bool  # every byte up to `end` is sound, and there are only zeros behind it
    ends_clean: bool  # there are only zeros behind its last sound record

    @property
    def last(self) -> int:
        """The highest number, 0 without a record."""
        return max(self.records, default=0)


@attrs.frozen(kw_only=True, slots=True)
class Merged:
    """The content of both copies."""

    head: Head
    records: tuple[bytes, ...]
    is_whole: bool  # nothing that was durable is missing
    end: int  # where the next record goes
    may_continue: bool  # both files are the same and clean: they can be written on


def pack_head(head: Head) -> bytes:
    """HEAD_BYTES bytes."""
    fields = head.ledger, head.generation, head.begins_with
    return _HEAD.pack(_MAGIC, head.version, crc32c(_HEAD.pack(_MAGIC, head.version, 0, *fields)), *fields)


def pack_batch(head: Head, first: int, bodies: Sequence[bytes]) -> bytes:
    """Records numbered from `first` on, written together."""
    seed = head.seed()
    parts = []
    for number, body in enumerate(bodies, start=first):
        length = RECORD_HEAD_BYTES + len(body)
        assert length <= RECORD_BYTES_MAX
        unsummed = _RECORD.pack(length, 0, number, first, 0)[_CRC_END:] + body
        parts.append(_RECORD.pack(length, crc32c(unsummed, seed), number, first, 0) + body)
    return b"".join(parts)


def parse(data: bytes) -> Copy | None:
    """The sound part of a file; None when its head is not. Raises ValueError for a newer version."""
    head = _parse_head(data)
    if head is None:
        return None
    records: dict[int, tuple[int, bytes]] = {}
    at, is_clean, ends_clean, seed = HEAD_BYTES, True, True, head.seed()
    while at < len(data):
        length = _sound(data, at, seed)
        if not length:
            if not any(data[at:]):
                break
            at = _resume(data, at + 1, seed)
            is_clean, ends_clean = False, at < len(data)
            continue
        number, first = _RECORD.unpack_from(data, at)[2:4]
        records[number] = first, data[at + RECORD_HEAD_BYTES : at + length]
        at += length
    return Copy(head=head, records=records, end=at, is_clean=is_clean, ends_clean=ends_clean)


def _parse_head(data: bytes) -> Head | None:
    if len(data) < HEAD_BYTES:
        return None
    magic, version, crc, *fields = _HEAD.unpack_from(data)
    if magic != _MAGIC or data[_HEAD_ZEROS:HEAD_BYTES].strip(b"\0"):
        return None
    if crc32c(_HEAD.pack(magic, version, 0, *fields)) != crc:
        return None
    if version > VERSION:
        raise ValueError(f"ledger version {version} is newer than {VERSION}")
    ledger, generation, begins_with = fields
    return Head(ledger=ledger, generation=generation, begins_with=begins_with, version=version)


def _sound(data: bytes, at: int, seed: int) -> int:
    """The length of the sound record at a place, 0 when there is none."""
    if at + RECORD_HEAD_BYTES > len(data):
        return 0
    length, crc = struct.unpack_from("<II", data, at)
    if not RECORD_HEAD_BYTES <= length <= min(RECORD_BYTES_MAX, len(data) - at):
        return 0
    return int(length) if crc32c(memoryview(data)[at + _CRC_END : at + length], seed) == crc else 0


def _resume(data: bytes, at: int, seed: int) -> int:
    """The place of the next sound record behind damage; the end of the data when there is none."""
    while at + RECORD_HEAD_BYTES <= len(data):
        if data[at + 3] == 0 and _sound(data, at, seed):  # no record is longer than RECORD_BYTES_MAX, 2^24
            return at
        at += 1
    return len(data)


def merge(first: Copy | None, second: Copy | None) -> Merged | None:
    """The content of two copies; None when neither has a head. Of two generations the newer one counts."""
    copies = [copy for copy in (first, second) if copy is not None]
    if not copies:
        return None
    head = max((copy.head for copy in copies), key=lambda head: head.generation)
    copies = [copy for copy in copies if copy.head == head]
    found: dict[int, tuple[int, bytes]] = {}
    for copy in copies:
        found.update(copy.records)
    last = max(found, default=0)
    hole = next((number for number in range(1, last + 1) if number not in found), None)
    if hole is not None and _is_unfinished(found, hole, first, second):
        last, hole = found[last][0] - 1, None
    is_whole = hole is None and last >= head.begins_with and any(copy.ends_clean for copy in copies)
    is_same = len(copies) == 2 and copies[0].records == copies[1].records  # noqa: PLR2004  (two copies)
    return Merged(
        head=head,
        records=tuple(found[number][1] for number in sorted(found) if number <= last),
        is_whole=is_whole,
        end=copies[0].end,
        may_continue=is_whole and is_same and all(copy.is_clean for copy in copies),
    )


def _is_unfinished(found: dict[int, tuple[int, bytes]], hole: int, first: Copy | None, second: Copy | None) -> bool:
    """Whether the hole lies in the last batch, and only the first copy has anything of that: it was being written."""
    batch = found[max(found)][0]
    if hole < batch or first is None or second is None or first.head != second.head:
        return False
    return second.is_clean and second.last < batch
