"""Overwrites messages inside blocks that are otherwise never changed: secure erase.

The payload becomes zeros, and so do headers that the state machine does not read; lengths, subject and time stay, so
every place in the block stays right. The frame gets a new checksum and is written over the old one. A crash in the
middle of that must not look like damage, so the new frames are on disk in a journal first:

    journal, fsync; frames in place, fsync; journal removed

An opening that finds a journal does its writes again, where the block still has that entry at that place. It makes the
journal's name durable first: who gave it may have been killed before that, and a power cut in the middle of the second
attempt would take the journal and leave half a frame. What the torn frame says of itself does not count then: its
header may be what the power cut has hit. Source of the idea: the double-write buffer of InnoDB.
"""

import logging
import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import attrs

from jetraft.store._frame import find_mark, parse_header, resummed, scan, verify
from jetraft.store.format import (
    BLOCK_HEAD_BYTES,
    FRAME_CRC_AT,
    FRAME_CRC_FROM,
    FRAME_HEADER_BYTES,
    FRAME_INCARNATION_AT,
    MARK_BYTES,
    RECORD_HEADER_BYTES,
    FileKind,
    Identity,
    pack_envelope,
    unpack_envelope,
)
from jetraft.store.io import Disk, sync_directory
from jetraft.store.port import StoreCorrupt, StoreNewer, StoreRefused

log = logging.getLogger(__name__)

_ITEM: Final = struct.Struct("<HIQ")  # bytes of the block's name, of the frame, offset; name and frame follow
_RECORD: Final = struct.Struct("<IIHH")  # length, hdr_len, subject_len, flags: see store/format.py


@attrs.frozen(kw_only=True, slots=True)
class Rewrite:
    """A frame to be put in place of the one of the same length at `offset` of a block's file."""

    name: str
    offset: int
    frame: bytes


def erased(frame: bytes, record_offset: int) -> bytes:
    """The frame with the content of one record gone and new checksums.

    Headers stay where a flag says that applying the entry reads them: a replay must come to the same state.
    """
    length, hdr_len, subject_len, flags = _RECORD.unpack_from(frame, record_offset)
    assert FRAME_HEADER_BYTES <= record_offset < record_offset + length <= len(frame)
    start = record_offset + RECORD_HEADER_BYTES + subject_len + (hdr_len if flags else 0)
    end = record_offset + length
    changed = bytearray(frame)
    changed[start:end] = bytes(end - start)
    return resummed(changed)


def disowned(frame: bytes) -> bytes:
    """The frame as no member's: with a wrong checksum, and of no incarnation, in case it is sealed again."""
    crc = int.from_bytes(frame[FRAME_CRC_AT:FRAME_CRC_FROM], "little") ^ 0xFFFFFFFF
    changed = bytearray(frame)
    changed[FRAME_CRC_AT:FRAME_CRC_FROM] = crc.to_bytes(4, "little")
    changed[FRAME_INCARNATION_AT : FRAME_INCARNATION_AT + 8] = bytes(8)
    return bytes(changed)


def pack(rewrites: Iterable[Rewrite], identity: Identity) -> bytes:
    """The bytes of a journal."""
    parts = []
    for rewrite in rewrites:
        name = rewrite.name.encode()
        parts += [_ITEM.pack(len(name), len(rewrite.frame), rewrite.offset), name, rewrite.frame]
    return pack_envelope(FileKind.ERASE, identity, b"".join(parts))


def unpack(data: bytes, identity: Identity, *, what: str) -> list[Rewrite]:
    """Raises StoreCorrupt when it was not finished, StoreRefused when it is another owner's."""
    body = unpack_envelope(data, FileKind.ERASE, identity, what=what)
    rewrites = []
    at = 0
    while at < len(body):
        name_bytes, frame_bytes, offset = _ITEM.unpack_from(body, at)
        at += _ITEM.size
        frame_at = at + name_bytes
        frame = body[frame_at : frame_at + frame_bytes]
        rewrites.append(Rewrite(name=body[at:frame_at].decode(), offset=offset, frame=frame))
        at = frame_at + frame_bytes
    return rewrites


def finish(disk: Disk, journal: Path, data: bytes, identity: Identity) -> int:
    """Do the writes of a journal that a crash left, and remove it; returns how many frames were rewritten. Blocking.

    A journal that cannot be read is removed with a warning: what it was half through shows in the blocks. Raises
    StoreNewer for one that a newer server has left.
    """
    try:
        rewrites = unpack(data, identity, what=str(journal))
    except StoreNewer:
        raise
    except (StoreCorrupt, StoreRefused) as error:  # it took this name when it was whole: it was damaged since
        log.warning("frames that were being erased are not finished: %s", error)
        rewrites = []
    sync_directory(disk, journal.parent)
    present = disk.list_directory(journal.parent)
    done = 0
    for name, group in groupby(sorted(rewrites, key=lambda item: (item.name, item.offset)), key=lambda item: item.name):
        if name in present:
            done += _finish_block(disk, journal.parent / name, list(group), identity.incarnation)
    batch = disk.batch()
    batch.unlink(bytes(journal))
    disk.perform(batch)
    return done


def _finish_block(disk: Disk, path: Path, rewrites: Sequence[Rewrite], incarnation: int) -> int:
    """Do the writes of one block, ascending: a header that an earlier one repairs lets the walk go on behind it."""
    fd = disk.open_file(path)
    done = 0
    try:
        block = bytearray(disk.read(fd, disk.size(fd), 0))
        for rewrite in rewrites:
            if not _belongs(block, rewrite, path, incarnation):
                log.warning("%s: has another frame at byte %d than the one to be erased", path, rewrite.offset)
                continue
            block[rewrite.offset : rewrite.offset + len(rewrite.frame)] = rewrite.frame
            batch = disk.batch()
            batch.write(fd, [rewrite.frame], rewrite.offset)
            batch.sync_data(fd)
            disk.perform(batch)
            done += 1
    finally:
        disk.close_file(fd)
    return done


def _belongs(block: bytearray, rewrite: Rewrite, path: Path, incarnation: int) -> bool:
    """Whether the entry is still at that place: a block that was rewritten since may have something else there.

    The frame in that place is what a power cut may have torn, so it is asked only when it is sound, or when the frames
    before it do not lead there. Else they decide, by their headers: the entry is the one that begins where they end.
    """
    at = rewrite.offset
    header = parse_header(rewrite.frame)
    is_same = _lasting(block[at : at + FRAME_HEADER_BYTES]) == _lasting(rewrite.frame[:FRAME_HEADER_BYTES])
    if verify(block, at):
        return is_same
    walk = scan(
        block,
        offset=BLOCK_HEAD_BYTES,
        incarnation=incarnation,
        next_index=int(path.name.partition("-")[0]),
        term=0,
        last_index=header.log_index - 1,
        check=False,
    )
    if walk.next_index != header.log_index:
        return is_same
    end = walk.end
    while end < at and (_is_mark(block, end, incarnation, skip=False) or _is_mark(block, end, incarnation, skip=True)):
        end += MARK_BYTES
    is_behind_damaged_mark = end + MARK_BYTES == at and not verify(block, end)  # no frame is as short as a mark
    return end == at or is_behind_damaged_mark


def _is_mark(block: bytearray, at: int, incarnation: int, *, skip: bool) -> bool:
    return find_mark(memoryview(block)[: at + MARK_BYTES], offset=at, incarnation=incarnation, skip=skip) == at


def _lasting(header: bytes | bytearray) -> tuple[bytes, bytes]:
    """What erasing does not change of a header."""
    return bytes(header[:FRAME_CRC_AT]), bytes(header[FRAME_CRC_FROM:])
