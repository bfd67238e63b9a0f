"""Rewrites a block without the entries and messages that nothing needs any more, while the log goes on.

What a block may lose: an entry at or below the *older* of the two checkpoints that the log keeps, of which no message
is live; and in the other frames the content of messages that are gone. Both must have been so when that checkpoint was
taken, because either checkpoint may be what the next start begins with; so a `Plan` remembers at which applied index
it was made, and is carried out when both checkpoints lie behind it. What is gone never comes back to life.

How: the frames that stay go, thinned (store/_thin.pyx), into a new file, with skips where entries are missing; it is
fsynced, read back from the device and compared; then it takes the name of the old one. A crash leaves one or the
other. The last frame always stays, so the block still proves how far it goes and in which term. In this process frames
keep the offsets by which index and cache know them (store/block.py). A block in which nothing lives is dropped as a
trim does it.

Reading and writing are blocking and done in a thread; plan and exchange belong to the turn. Source of the idea:
log cleaning (Rosenblum and Ousterhout, 1991), Bitcask's merge.
"""

from array import array
from bisect import bisect_left
from pathlib import Path
from typing import Final

import attrs

from jetraft.store._frame import parse_header, scan, verify
from jetraft.store._thin import expand, thin
from jetraft.store.backlog import LogPlace
from jetraft.store.block_builder import BlockBuilder
from jetraft.store.cipher import GroupCipher
from jetraft.store.compression import pack, unpack
from jetraft.store.format import (
    BLOCK_HEAD_BYTES,
    FRAME_FLAGS_AT,
    FRAME_PACKED,
    FRAME_SEALED,
    FRAME_THIN,
    TMP_SUFFIX,
    BlockHead,
    Kind,
    pack_block_head,
)
from jetraft.store.io import Batch, Disk
from jetraft.store.port import StoreCorrupt
from jetraft.store.recovery import read_file

GAIN_PERCENT_MIN: Final = 50  # of a block: then each byte is written twice on average, as in LFS at this utilization
GAIN_BYTES_MIN: Final = 64 << 10


@attrs.frozen(kw_only=True, slots=True)
class Live:
    """What lives in a block: frames by offset, how many messages of each, and their sequences in order."""

    offsets: "array[int]"
    counts: "array[int]"
    seqs: "array[int]"
    message_bytes: int


@attrs.frozen(kw_only=True, slots=True)
class Plan:
    """What may go from a block once both checkpoints of the log are at or above `index`."""

    block: int
    index: int
    live: Live

    @property
    def is_dead(self) -> bool:
        """True when nothing in the block lives."""
        return not self.live.offsets


@attrs.frozen(kw_only=True, slots=True)
class Source:
    """A block as it is when its compaction begins; the exchange is refused when it has changed meanwhile."""

    number: int
    path: Path
    head: BlockHead
    last_index: int
    offsets: "array[int]"
    places: "array[int]"
    indexes: "array[int] | None"
    used: int
    revision: int

    def index_of(self, number: int) -> int:
        """The log index of a frame of the block."""
        return self.head.first_index + number if self.indexes is None else self.indexes[number]


@attrs.frozen(kw_only=True, slots=True)
class Compacted:
    """The new file of a block, durable under its temporary name, and its table."""

    source: Source
    offsets: "array[int]"  # as the process knows the frames
    places: "array[int]"  # where they are now
    indexes: "array[int]"
    used: int

    @property
    def bytes_gained(self) -> int:
        """How much smaller it is."""
        return self.source.used - self.used


def is_worthwhile(used_bytes: int, live_bytes: int) -> bool:
    """Whether so much is gone that a block is rewritten."""
    gain = used_bytes - live_bytes
    return gain >= GAIN_BYTES_MIN and gain * 100 >= used_bytes * GAIN_PERCENT_MIN


def open_frame(data: bytes, place: int, cipher: GroupCipher | None, serial: int, *, what: str) -> bytes:
    """The frame at a place of a block's bytes, neither sealed nor packed; it may be thin. Raises StoreCorrupt."""
    if not verify(data, place):
        raise StoreCorrupt(f"{what}: the frame at byte {place} is damaged")
    header = parse_header(data, place)
    frame = data[place : place + header.length]
    if header.flags & FRAME_SEALED:
        if cipher is None:
            raise StoreCorrupt(f"{what}: the frame at byte {place} is encrypted, and there is no key")
        frame = cipher.open_frame(serial, place, frame, what=what)
    try:
        return unpack(frame) if frame[FRAME_FLAGS_AT] & FRAME_PACKED else frame
    except ValueError as error:
        raise StoreCorrupt(f"{what}: the frame at byte {place}: {error}") from error


def compact(place: LogPlace, source: Source, live: Live, *, compressed: bool = False) -> Compacted:
    """Write what stays of a block beside it, durably. Blocking. Raises StoreCorrupt, StoreRefused, OSError."""
    cipher = None if place.cipher is None else place.cipher.fresh()
    data = read_file(place.disk, source.path)
    builder = BlockBuilder(
        incarnation=place.identity.incarnation,
        first_index=source.head.first_index,
        serial=source.head.serial,
        cipher=cipher,
        is_compacted=True,
        tag=source.head.tag,
    )
    offsets = array("I")
    first = 0  # of the next frame's sequences
    last_number = len(source.offsets) - 1
    for number, seqs in _staying(source, live):
        frame = open_frame(data, source.places[number], cipher, source.head.serial, what=str(source.path))
        kept = _thinned(frame, live.seqs[first : first + seqs], what=str(source.path))
        builder.add(source.index_of(number), (pack(kept) or kept) if compressed else kept)
        offsets.append(source.offsets[number])
        first += seqs
    assert first == len(live.seqs)
    assert builder.indexes[-1] == source.index_of(last_number) == source.last_index
    builder.finish()
    written = pack_block_head(source.head, place.identity) + builder.take()
    tmp = tmp_path(source.path)
    write_aside(place.disk, tmp, written)
    walk = scan(
        written,
        offset=BLOCK_HEAD_BYTES,
        incarnation=place.identity.incarnation,
        next_index=source.head.first_index,
        term=source.head.boundary_term,
        last_index=source.last_index,
    )
    if (walk.offsets, walk.indexes, walk.next_index) != (builder.places, builder.indexes, source.last_index + 1):
        raise StoreCorrupt(f"{tmp}: does not hold what was written")
    return Compacted(source=source, offsets=offsets, places=builder.places, indexes=builder.indexes, used=builder.size)


def _staying(source: Source, live: Live) -> list[tuple[int, int]]:
    """(number of a frame, its live messages) of those that stay, in order: the last one always does."""
    staying = [
        (bisect_left(source.offsets, offset), count) for offset, count in zip(live.offsets, live.counts, strict=True)
    ]
    last_number = len(source.offsets) - 1
    if not staying or staying[-1][0] != last_number:
        staying.append((last_number, 0))
    return staying


def _thinned(frame: bytes, seqs: "array[int]", *, what: str) -> bytes:
    """The frame with the content of these messages only. Raises StoreCorrupt when it is not what it should be."""
    header = parse_header(frame)
    if header.kind != Kind.MESSAGES:
        return frame
    try:
        whole = expand(frame) if header.flags & FRAME_THIN else frame
        mask = bytearray(header.record_count)
        for seq in seqs:
            mask[seq - header.first_stream_seq] = 1
        small = thin(whole, mask) if header.record_count else None
        if small is not None and thin(expand(small), mask) != small:
            raise StoreCorrupt(f"{what}: entry {header.log_index} does not come back as it was")
    except (ValueError, IndexError) as error:
        raise StoreCorrupt(f"{what}: entry {header.log_index}: {error}") from error
    return whole if small is None else small


def tmp_path(path: Path) -> Path:
    """Where the new file of a block is until it takes its place."""
    return path.with_name(path.name + TMP_SUFFIX)


def write_aside(disk: Disk, tmp: Path, data: bytes) -> None:
    """Write a file, fsync it, and compare what the device then has. Raises StoreCorrupt, OSError."""
    fd = disk.open_file(tmp, create=True)
    try:
        batch = disk.batch()
        batch.truncate(fd, 0)
        batch.write(fd, [data], 0)
        batch.sync(fd)
        disk.perform(batch)
        disk.forget_cached(fd)
        if disk.read(fd, disk.size(fd), 0) != data:
            raise StoreCorrupt(f"{tmp}: does not hold what was written")
    finally:
        disk.close_file(fd)


def discard(disk: Disk, path: Path) -> None:
    """Remove the new file of a block that is not wanted any more. Blocking."""
    if tmp_path(path).name in disk.list_directory(path.parent):
        batch = disk.batch()
        batch.unlink(bytes(tmp_path(path)))
        disk.perform(batch)


def replacing(disk: Disk, path: Path) -> Batch:
    """The operation that puts the new file of a block in place of the old one."""
    batch = disk.batch()
    batch.rename(bytes(tmp_path(path)), bytes(path))
    return batch
