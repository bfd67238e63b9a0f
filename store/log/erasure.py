"""Overwrites messages in blocks (secure erase).

The payload becomes zeros, and so do the headers if applying the entry reads none of them. If it does, those of
JetStream stay, and each other line becomes filler of the same length. Lengths, subject and time stay: no place in the
block changes. The frame gets a new checksum and is written over the old one. A crash in the middle must not look like
damage, so the new frames are written to a journal first:

    journal, fsync; frames in place, fsync; remove the journal

An opening that finds a journal repeats its writes where the block still has that entry at that place. It syncs the
directory first: the process that renamed the journal may have been killed before that, and a power cut during the
second attempt could lose the journal and leave a torn frame. The header of a torn frame may be torn too, so it does not
identify the entry. Source of the idea: the double-write buffer of InnoDB.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.disk.files import readable
from jetraft.store.disk.io import Disk, sync_directory
from jetraft.store.frames._frame import find_mark, parse_header, resummed, scan, verify
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    ERASE_ITEM,
    FRAME_CRC_AT,
    FRAME_CRC_FROM,
    FRAME_HEADER_BYTES,
    FRAME_INCARNATION_AT,
    MARK_BYTES,
    RECORD_HEADER_BYTES,
    RECORD_START,
    FileKind,
    Identity,
    pack_envelope,
    parity_name,
    unpack_envelope,
)
from jetraft.store.port import StoreCorrupt, StoreNewer, StoreRefused

log = logging.getLogger(__name__)


LINE_END: Final = b"\r\n"
OWN_HEADERS: Final = (b"Nats-", b"Jetraft-", b"KV-")  # which applying an entry may read (cluster/state)
FILLER: Final = b"x"


@attrs.frozen(kw_only=True, slots=True)
class Rewrite:
    """A frame that replaces one of the same length at `offset` of a block's file."""

    name: str
    offset: int
    frame: bytes


def erased(frame: bytes, record_offset: int) -> bytes:
    """The frame with the content of one record erased, and new checksums.

    If the flags say that applying the entry reads headers, those of JetStream stay: a replay leads to the same state.
    """
    length, hdr_len, subject_len, flags = RECORD_START.unpack_from(frame, record_offset)
    assert FRAME_HEADER_BYTES <= record_offset < record_offset + length <= len(frame)
    hdr_at = record_offset + RECORD_HEADER_BYTES + subject_len
    payload_at, end = hdr_at + hdr_len, record_offset + length
    changed = bytearray(frame)
    changed[hdr_at:payload_at] = _without_foreign(frame[hdr_at:payload_at]) if flags else bytes(hdr_len)
    changed[payload_at:end] = bytes(end - payload_at)
    return resummed(changed)


def _without_foreign(hdr: bytes) -> bytes:
    """A block of headers in which each line that is not JetStream's own is filler of the same length."""
    first, *lines = hdr.split(LINE_END)
    kept = [line if line.startswith(OWN_HEADERS) else FILLER * len(line) for line in lines]
    return LINE_END.join([first, *kept])


def invalidated(frame: bytes) -> bytes:
    """The frame with a wrong checksum, and of no incarnation, which stays wrong when the frame is sealed again."""
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
        parts += [ERASE_ITEM.pack(len(name), len(rewrite.frame), rewrite.offset), name, rewrite.frame]
    return pack_envelope(FileKind.ERASE, identity, b"".join(parts))


def unpack(data: bytes, identity: Identity, *, what: str) -> list[Rewrite]:
    """Parse a journal. Raises StoreCorrupt when it is incomplete, StoreRefused when it has another owner."""
    body = unpack_envelope(data, FileKind.ERASE, identity, what=what)
    rewrites = []
    at = 0
    while at < len(body):
        name_bytes, frame_bytes, offset = ERASE_ITEM.unpack_from(body, at)
        at += ERASE_ITEM.size
        frame_at = at + name_bytes
        frame = body[frame_at : frame_at + frame_bytes]
        rewrites.append(Rewrite(name=body[at:frame_at].decode(), offset=offset, frame=frame))
        at = frame_at + frame_bytes
    return rewrites


def finish(disk: Disk, journal: Path, data: bytes, identity: Identity) -> int:
    """Repeat the writes of a journal that a crash left, and remove it; returns how many frames it rewrote. Blocking.

    A journal that cannot be read is removed with a warning: recovery finds frames that are torn. A block of which some
    bytes cannot be read is written to all the same. Raises StoreNewer for a journal of a newer server.
    """
    try:
        rewrites = unpack(data, identity, what=str(journal))
    except StoreNewer:
        raise
    except (StoreCorrupt, StoreRefused) as error:  # it was complete when it got this name: it is damaged
        log.warning("an erasure journal cannot be read, its erasures are not repeated: %s", error)
        rewrites = []
    batch = disk.batch()
    for name in dict.fromkeys(item.name for item in rewrites):
        batch.unlink(bytes(journal.with_name(parity_name(name))))
    disk.perform(batch)
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
    """Repeat the writes of one block, ascending: a header that one write repairs is needed to find the next frame."""
    fd = disk.open_file(path)
    done = 0
    try:
        block = bytearray(readable(disk, fd))  # what cannot be read is damage: recovery finds it, here it is in the way
        for rewrite in rewrites:
            if not _belongs(block, rewrite, path, incarnation):
                log.warning("%s: another frame at byte %d than the journal has; not erased again", path, rewrite.offset)
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
    """Whether the entry is still at that place: the block may have been rewritten since.

    A power cut may have torn the frame there. So its header decides only if the frame is sound, or if the frames before
    it do not lead there. Otherwise their headers decide: the entry is the one that starts where they end.
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
    """The parts of a header that erasing does not change."""
    return bytes(header[:FRAME_CRC_AT]), bytes(header[FRAME_CRC_FROM:])
