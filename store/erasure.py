"""Overwrites messages inside blocks that are otherwise never changed: secure erase.

The payload becomes zeros, and so do headers that the state machine does not read; lengths, subject and time stay, so
every place in the block stays right. The frame gets a new checksum and is written over the old one. A crash in the
middle of that must not look like damage, so the new frames are on disk in a journal first:

    journal, fsync; frames in place, fsync; journal removed

An opening that finds a sound journal does its writes again, where the block still has that entry at that place. A torn
journal means that nothing had been overwritten. Source of the idea: the double-write buffer of InnoDB.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from jetraft.store._frame import crc32c
from jetraft.store.format import (
    FRAME_CRC_AT,
    FRAME_CRC_FROM,
    FRAME_HEADER_BYTES,
    FRAME_INCARNATION_AT,
    RECORD_HEADER_BYTES,
    FileKind,
    Identity,
    pack_envelope,
    unpack_envelope,
)
from jetraft.store.io import Disk
from jetraft.store.port import StoreCorrupt

_ITEM: Final = struct.Struct("<HIQ")  # bytes of the block's name, of the frame, offset; name and frame follow
_RECORD: Final = struct.Struct("<IIHH")  # length, hdr_len, subject_len, flags: see store/format.py


@attrs.frozen(kw_only=True, slots=True)
class Rewrite:
    """A frame to be put in place of the one of the same length at `offset` of a block's file."""

    name: str
    offset: int
    frame: bytes


def erased(frame: bytes, record_offset: int) -> bytes:
    """The frame with the content of one record gone and a new checksum.

    Headers stay where a flag says that applying the entry reads them: a replay must come to the same state.
    """
    length, hdr_len, subject_len, flags = _RECORD.unpack_from(frame, record_offset)
    assert FRAME_HEADER_BYTES <= record_offset < record_offset + length <= len(frame)
    start = record_offset + RECORD_HEADER_BYTES + subject_len + (hdr_len if flags else 0)
    end = record_offset + length
    changed = bytearray(frame)
    changed[start:end] = bytes(end - start)
    changed[FRAME_CRC_AT:FRAME_CRC_FROM] = crc32c(memoryview(changed)[FRAME_CRC_FROM:]).to_bytes(4, "little")
    return bytes(changed)


def disowned(frame: bytes) -> bytes:
    """The frame as no member's: with a wrong checksum, and of no incarnation, in case that it is sealed anew."""
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
    """Do the writes of a journal that a crash left, and remove it; returns how many frames were rewritten. Blocking."""
    try:
        rewrites = unpack(data, identity, what=str(journal))
    except StoreCorrupt:
        rewrites = []  # nothing was overwritten before it was whole
    present = disk.list_directory(journal.parent)
    done = sum(_rewrite(disk, journal.parent, rewrite) for rewrite in rewrites if rewrite.name in present)
    batch = disk.batch()
    batch.unlink(bytes(journal))
    disk.perform(batch)
    return done


def _rewrite(disk: Disk, directory: Path, rewrite: Rewrite) -> bool:
    """False when the block has something else there by now: it was written anew since."""
    fd = disk.open_file(directory / rewrite.name)
    try:
        found = disk.read(fd, FRAME_HEADER_BYTES, rewrite.offset)
        if _without_crc(found) != _without_crc(rewrite.frame[:FRAME_HEADER_BYTES]):
            return False
        batch = disk.batch()
        batch.write(fd, [rewrite.frame], rewrite.offset)
        batch.sync_data(fd)
        disk.perform(batch)
    finally:
        disk.close_file(fd)
    return True


def _without_crc(header: bytes) -> tuple[bytes, bytes]:
    return header[:FRAME_CRC_AT], header[FRAME_CRC_FROM:]
