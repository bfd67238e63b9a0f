"""Repairs damaged blocks, keeps a copy of the damaged bytes, and lists the damaged entries in a mark file.

A damaged entry is never truncated, because a majority may rely on it. Its index stays in the log, reading it is an
error, and the member takes no part in its group until it has the entry back (raft/recovery/repair.py fetches it from
another member). The damaged bytes are kept in `quarantine/` for inspection.

A repair writes the whole block under a temporary name and renames it into place, so a crash leaves either the damaged
or the sound block. Every opening finds the damage again in the bytes; the mark file only informs operators and tools.
Source: Protocol-Aware Recovery (FAST'18).
"""

import logging
from collections.abc import Mapping, Sequence

from jetraft.store.blocks import parity
from jetraft.store.blocks.builder import BlockBuilder
from jetraft.store.blocks.damage_scan import is_in
from jetraft.store.disk.files import read_readable, replace_file
from jetraft.store.frames._frame import parse_header, scan, verify
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    DAMAGED_ENTRIES_NAME,
    FRAME_SEALED,
    INDEX_RANGE,
    QUARANTINE_NAME,
    FileKind,
    Identity,
    block_name,
    pack_block_head,
    pack_envelope,
    parity_name,
    unpack_block_head,
    unpack_envelope,
)
from jetraft.store.log.recovery import FoundBlock
from jetraft.store.log.write_queue import LogPlace
from jetraft.store.model.files import index_ranges
from jetraft.store.port import StoreCorrupt, StoreRefused

log_ = logging.getLogger(__name__)


def pack(ranges: index_ranges.Ranges, identity: Identity) -> bytes:
    """The bytes of the mark file."""
    return pack_envelope(FileKind.DAMAGED_ENTRIES, identity, b"".join(INDEX_RANGE.pack(*bounds) for bounds in ranges))


def unpack(data: bytes, identity: Identity, *, what: str) -> index_ranges.Ranges:
    """Raises StoreCorrupt or StoreRefused."""
    body = unpack_envelope(data, FileKind.DAMAGED_ENTRIES, identity, what=what)
    if len(body) % INDEX_RANGE.size:
        raise StoreCorrupt(f"{what}: expected a list of {INDEX_RANGE.size}-byte ranges, found {len(body)} bytes")
    return index_ranges.merged(INDEX_RANGE.iter_unpack(body))


def write_mark(place: LogPlace, ranges: index_ranges.Ranges) -> None:
    """Write the mark file durably, or remove it when no entry is damaged."""
    if ranges:
        replace_file(place.disk, place.log / DAMAGED_ENTRIES_NAME, pack(ranges, place.identity))
    elif DAMAGED_ENTRIES_NAME in place.disk.list_directory(place.log):
        batch = place.disk.batch()
        batch.unlink(bytes(place.log / DAMAGED_ENTRIES_NAME))
        place.disk.perform(batch)


def quarantine(place: LogPlace, blocks: tuple[FoundBlock, ...]) -> None:
    """Copy every damaged range before it is repaired."""
    damaged = [item for item in blocks if item.gaps or item.head_damaged]
    if not damaged:
        return
    directory = place.group / QUARANTINE_NAME
    place.disk.make_directory(directory)
    known = place.disk.list_directory(directory)
    for item in damaged:
        name = block_name(item.head)
        if not item.is_there:
            continue
        data = read_readable(place.disk, place.log / name)
        pieces = [(gap.start, gap.end) for gap in item.gaps]
        pieces += [(0, BLOCK_HEAD_BYTES)] if item.head_damaged else []
        for start, end in pieces:
            copy = f"{name}.{start}-{end}"
            if copy not in known and data[start:end]:
                replace_file(place.disk, directory / copy, data[start:end])


def mend(place: LogPlace, damaged: Sequence[FoundBlock]) -> int:
    """Restore damaged blocks from their parity, durably; returns how many. Blocking. Raises OSError.

    A block that comes out otherwise than whole stays as it is.
    """
    names = place.disk.list_directory(place.log) if damaged else []
    done = 0
    for item in damaged:
        path = place.log / block_name(item.head)
        if parity_name(path.name) not in names or not item.is_there or item.is_newest:
            continue
        ranges = [(gap.start, gap.end) for gap in item.gaps] + [(0, BLOCK_HEAD_BYTES)] * item.head_damaged
        data = read_readable(place.disk, path)
        try:
            parity_file = read_readable(place.disk, place.log / parity_name(path.name))
            whole = parity.mended(data, parity_file, place.identity, ranges)
        except (StoreCorrupt, StoreRefused) as error:
            log_.warning("%s: its parity is of no use: %s", path, error)
            continue
        if whole is not None and _is_whole(whole, item, place.identity):
            replace_file(place.disk, path, whole)
            log_.warning("%s: damaged bytes were restored from the parity of the block", path)
            done += 1
    return done


def _is_whole(data: bytes, item: FoundBlock, identity: Identity) -> bool:
    """Whether these bytes are the block, up to its last entry."""
    head = item.head
    try:
        if unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what="a block with its parity") != head:
            return False
    except (StoreCorrupt, StoreRefused):
        return False
    walk = scan(
        data,
        offset=BLOCK_HEAD_BYTES,
        incarnation=identity.incarnation,
        next_index=head.first_index,
        term=head.boundary_term,
        last_index=item.block.last_index,
    )
    return walk.next_index == item.block.last_index + 1


def repair_block(place: LogPlace, item: FoundBlock, frames: Mapping[int, bytes]) -> None:
    """Rewrite a block with these frames in place of its damaged ones; durable when this returns.

    `frames` has every damaged entry of the block by index, verified. Blocking. Raises StoreCorrupt and changes nothing
    when another entry has been damaged since the opening: open the log again.
    """
    block, cipher, serial = item.block, place.cipher, item.head.serial
    path = place.log / block_name(item.head)
    data = read_readable(place.disk, path) if item.is_there else b""
    builder = BlockBuilder(
        incarnation=place.identity.incarnation,
        first_index=block.first_index,
        serial=serial,
        cipher=cipher,
        is_compacted=block.indexes is not None,
        tag=item.head.tag,
    )
    for number in range(len(block.offsets)):
        index, at = block.index_of(number), block.place_of(number)
        if is_in(item.gaps, index):
            frame = frames[index]
        else:
            if not verify(data, at):
                raise StoreCorrupt(f"{path}: entry {index} at byte {at} was damaged after the opening")
            header = parse_header(data, at)
            frame = data[at : at + header.length]
            if header.flags & FRAME_SEALED:
                assert cipher is not None
                frame = cipher.open_frame(serial, at, frame, what=str(path))
        builder.add(index, frame)
    builder.finish()
    reserved = max(item.head.reserved_bytes, builder.size) if item.is_newest else 0
    whole = pack_block_head(item.head, place.identity, reserved_bytes=reserved) + builder.take()
    replace_file(place.disk, path, whole.ljust(reserved, b"\0"))
