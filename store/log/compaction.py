"""Rewrites a block without entries and messages that are no longer needed, while the log goes on.

Compaction may remove an entry at or below the *older* of the two checkpoints if none of its messages is live, and from
other frames the content of messages that are removed from the stream. Both must have been true when that checkpoint was
taken, because the next start may use either checkpoint. So a `Plan` has the applied index at which it was made, and is
carried out when both checkpoints are at or above it. A message that was removed never becomes live again.

An entry that is lost has no live message, so its placeholder goes too, and with the file the damage in it: what is lost
is in both checkpoints by then. Of a damaged frame with sound messages memory has the frame that goes into the new file.

The remaining frames are thinned (store/frames/_thin.pyx) and written to a new file, with skips in place of missing
entries. The file is fsynced, read back from the device and compared; then it is renamed over the old one. A crash
leaves one or the other. The last frame always stays, so the block still proves its last index and term. In this process
frames keep the offsets by which index and cache know them (store/blocks/block.py). A block without a live message is
dropped, as by a trim.

Reading and writing block and run in a thread; plan and exchange belong to the turn. Source of the idea: log cleaning
(Rosenblum and Ousterhout, 1991), Bitcask's merge.
"""

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs

from jetraft.store.blocks import parity
from jetraft.store.blocks.builder import BlockBuilder
from jetraft.store.disk.files import TMP_SUFFIX, read_readable
from jetraft.store.disk.io import Batch, Disk
from jetraft.store.frames._frame import parse_header, scan, verify
from jetraft.store.frames._thin import expand, thin
from jetraft.store.frames.cipher import GroupCipher
from jetraft.store.frames.compression import pack, unpack
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    FRAME_FLAGS_AT,
    FRAME_PACKED,
    FRAME_SEALED,
    FRAME_THIN,
    BlockHead,
    Kind,
    pack_block_head,
    parity_name,
)
from jetraft.store.log.write_queue import LogPlace
from jetraft.store.port import StoreCorrupt

GAIN_PERCENT_MIN: Final = 50  # of a block: then each byte is written twice on average, as in LFS at this utilization
GAIN_BYTES_MIN: Final = 64 << 10


@attrs.frozen(kw_only=True, slots=True)
class Live:
    """The live messages of a block: offsets of their frames, how many are in each, and their sequences in order."""

    offsets: "array[int]"
    counts: "array[int]"
    seqs: "array[int]"
    message_bytes: int


@attrs.frozen(kw_only=True, slots=True)
class Plan:
    """The rest of a block once both checkpoints of the log are at or above `index`."""

    block: int
    index: int
    live: Live
    erasures: int = 0  # in the block, when the plan was made: `live` has the frame of what was erased later

    @property
    def is_dead(self) -> bool:
        """Whether the block has no live message."""
        return not self.live.offsets


@attrs.frozen(kw_only=True, slots=True)
class Source:
    """A block at the start of its compaction. The exchange is refused if the block has changed since."""

    number: int
    path: Path
    head: BlockHead
    last_index: int
    offsets: "array[int]"
    places: "array[int]"
    indexes: "array[int] | None"
    used: int
    revision: int
    replaced: Mapping[int, bytes] = MappingProxyType({})  # by number: what memory has for frames that are damaged here

    def index_of(self, number: int) -> int:
        """The log index of a frame of the block."""
        return self.head.first_index + number if self.indexes is None else self.indexes[number]


@attrs.frozen(kw_only=True, slots=True)
class Compacted:
    """The new file of a block, durable under its temporary name, and its table."""

    source: Source
    offsets: "array[int]"  # by which the process knows the frames
    places: "array[int]"  # of the frames in the new file
    indexes: "array[int]"
    used: int

    @property
    def bytes_gained(self) -> int:
        """The bytes that the exchange frees."""
        return self.source.used - self.used


def is_worthwhile(used_bytes: int, live_bytes: int) -> bool:
    """Whether a rewrite frees enough of a block to be worth its cost."""
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
            raise StoreCorrupt(f"{what}: the frame at byte {place} is encrypted, and no key is configured")
        frame = cipher.open_frame(serial, place, frame, what=what)
    try:
        return unpack(frame) if frame[FRAME_FLAGS_AT] & FRAME_PACKED else frame
    except ValueError as error:
        raise StoreCorrupt(f"{what}: the frame at byte {place}: {error}") from error


def compact(place: LogPlace, source: Source, live: Live, *, compressed: bool = False) -> Compacted:
    """Write what remains of a block to a new file, durably. Blocking. Raises StoreCorrupt, StoreRefused, OSError."""
    cipher = None if place.cipher is None else place.cipher.fresh()
    data = read_readable(place.disk, source.path)  # what cannot be read fails its frame's checksum: that is damage
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
        frame = source.replaced.get(number)
        if frame is None:
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
    write_aside(place.disk, tmp_path(parity_path(source.path)), parity.pack(written, place.identity))
    walk = scan(
        written,
        offset=BLOCK_HEAD_BYTES,
        incarnation=place.identity.incarnation,
        next_index=source.head.first_index,
        term=source.head.boundary_term,
        last_index=source.last_index,
    )
    if (walk.offsets, walk.indexes, walk.next_index) != (builder.places, builder.indexes, source.last_index + 1):
        raise StoreCorrupt(f"{tmp}: the device returns other bytes than were written")
    return Compacted(source=source, offsets=offsets, places=builder.places, indexes=builder.indexes, used=builder.size)


def _staying(source: Source, live: Live) -> list[tuple[int, int]]:
    """(number of the frame, count of its live messages) of the frames that stay, in order. The last frame stays."""
    staying = [
        (bisect_left(source.offsets, offset), count) for offset, count in zip(live.offsets, live.counts, strict=True)
    ]
    last_number = len(source.offsets) - 1
    if not staying or staying[-1][0] != last_number:
        staying.append((last_number, 0))
    return staying


def _thinned(frame: bytes, seqs: "array[int]", *, what: str) -> bytes:
    """The frame with the content of these messages only. Raises StoreCorrupt when the frame is malformed."""
    header = parse_header(frame)
    if header.kind != Kind.MESSAGES:
        return frame
    try:
        whole = expand(frame) if header.flags & FRAME_THIN else frame
        mask = bytearray(header.record_count)
        for seq in seqs:
            mask[seq - header.first_stream_seq] = 1
        small = thin(whole, mask) if header.record_count else None
        # Proved before the only copy is replaced: what was thinned must expand and thin to the same bytes.
        if small is not None and thin(expand(small), mask) != small:
            raise StoreCorrupt(f"{what}: entry {header.log_index} expands to another frame than was thinned")
    except (ValueError, IndexError) as error:
        raise StoreCorrupt(f"{what}: entry {header.log_index}: {error}") from error
    return whole if small is None else small


def parity_path(path: Path) -> Path:
    """The parity of a block."""
    return path.with_name(parity_name(path.name))


def tmp_path(path: Path) -> Path:
    """The temporary name of the new file of a block."""
    return path.with_name(path.name + TMP_SUFFIX)


def write_aside(disk: Disk, tmp: Path, data: bytes) -> None:
    """Write a file, fsync it, read it back from the device and compare. Raises StoreCorrupt, OSError."""
    fd = disk.open_file(tmp, create=True)
    try:
        batch = disk.batch()
        batch.truncate(fd, 0)
        batch.write(fd, [data], 0)
        batch.sync(fd)
        disk.perform(batch)
        # Else the comparison would read the page cache, which has the bytes whatever the device has.
        disk.forget_cached(fd)
        if disk.read(fd, disk.size(fd), 0) != data:
            raise StoreCorrupt(f"{tmp}: the device returns other bytes than were written")
    finally:
        disk.close_file(fd)


def discard(disk: Disk, path: Path) -> None:
    """Remove the new file of a block that is no longer wanted. Blocking."""
    batch = disk.batch()
    batch.unlink(bytes(tmp_path(path)))
    batch.unlink(bytes(tmp_path(parity_path(path))))
    disk.perform(batch)


def replacing(disk: Disk, path: Path) -> Batch:
    """The batch that renames the new file of a block, and its parity, over the old ones."""
    batch = disk.batch()
    batch.rename(bytes(tmp_path(parity_path(path))), bytes(parity_path(path)))  # of either file it proves what it may
    batch.rename(bytes(tmp_path(path)), bytes(path))
    return batch
