"""Damaged entries of a log: the mark that survives a restart, the copy of the damaged bytes, and the mending.

A damaged entry is never cut off: it may be one that a majority relies on. It is *faulty*: its index stays in the log,
reading it is an error, and the member takes no part until the entry is back (raft/repair.py fetches it from another
member). What the file held is kept in `quarantine/`, for whoever wants to look.

Mending rewrites a block as a whole, under another name, and renames it into place: a crash leaves the damaged block or
the sound one. Until then the damage is found anew by every opening, because it is in the bytes; the mark file says so
to people and tools. Source: Protocol-Aware Recovery (FAST'18).
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jetraft.store import trimmed
from jetraft.store._frame import parse_header, verify
from jetraft.store.backlog import LogPlace
from jetraft.store.block_builder import BlockBuilder
from jetraft.store.format import (
    BLOCK_HEAD_BYTES,
    FAULTY_NAME,
    FRAME_SEALED,
    QUARANTINE_NAME,
    TMP_SUFFIX,
    FileKind,
    Identity,
    block_name,
    pack_block_head,
    pack_envelope,
    unpack_envelope,
)
from jetraft.store.io import Disk
from jetraft.store.port import StoreCorrupt
from jetraft.store.recovery import FoundBlock, read_readable
from jetraft.store.survey import is_in

_RANGE: Final = struct.Struct("<QQ")


def pack(ranges: trimmed.Ranges, identity: Identity) -> bytes:
    """The bytes of the mark file."""
    return pack_envelope(FileKind.FAULTY, identity, b"".join(_RANGE.pack(*bounds) for bounds in ranges))


def unpack(data: bytes, identity: Identity, *, what: str) -> trimmed.Ranges:
    """Raises StoreCorrupt or StoreRefused."""
    body = unpack_envelope(data, FileKind.FAULTY, identity, what=what)
    if len(body) % _RANGE.size:
        raise StoreCorrupt(f"{what}: {len(body)} bytes are no list of ranges")
    return trimmed.merged(_RANGE.iter_unpack(body))


def write_mark(place: LogPlace, ranges: trimmed.Ranges) -> None:
    """Say durably which entries are faulty; no file when none is."""
    if ranges:
        replace_file(place.disk, place.log / FAULTY_NAME, pack(ranges, place.identity))
    elif FAULTY_NAME in place.disk.list_directory(place.log):
        batch = place.disk.batch()
        batch.unlink(bytes(place.log / FAULTY_NAME))
        place.disk.perform(batch)


def quarantine(place: LogPlace, blocks: tuple[FoundBlock, ...]) -> None:
    """Keep a copy of every damaged range before anything is done about it."""
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


def mend_block(place: LogPlace, item: FoundBlock, frames: Mapping[int, bytes]) -> None:
    """Write a block anew with these frames in the places of its faulty ones; durable when this returns.

    `frames` has every faulty entry of the block by index, verified. Blocking. Raises StoreCorrupt, and changes nothing,
    when another entry is damaged by now: open the log again.
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


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Put a file in place of another, or of none: written aside, fsynced, renamed, the directory fsynced."""
    tmp = path.with_name(path.name + TMP_SUFFIX)
    fds = [disk.open_file(tmp, create=True), disk.open_directory(path.parent)]
    batch = disk.batch()
    batch.truncate(fds[0], 0)
    batch.write(fds[0], [data], 0)
    batch.sync(fds[0])
    batch.rename(bytes(tmp), bytes(path))
    batch.sync(fds[1])
    try:
        disk.perform(batch)
    finally:
        for fd in fds:
            disk.close_file(fd)
