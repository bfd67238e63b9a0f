"""How a log grows, in Python: the model that store/log/_growth.pyx and store/blocks/_growing.pyx are compared with.

`plainly` puts it in the place of what is compiled.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from jetraft.store.blocks._growing import FRAME_OVERHEAD_BYTES
from jetraft.store.blocks.block import Block, last_seq_of
from jetraft.store.disk.io import Batch
from jetraft.store.frames._frame import make_mark
from jetraft.store.frames.cipher import SEAL_BYTES
from jetraft.store.frames.format import FRAME_KIND_AT, MARK_BYTES, Kind
from jetraft.store.log import durability, write_queue
from jetraft.store.log._growth import NEWEST_BYTES_MAX, HeldFrames, Segment
from jetraft.store.log.tail import LogTail
from jetraft.store.port import Entry

CACHED_KINDS = {Kind.MESSAGES, Kind.CONSUMER_OP, Kind.META}


@contextmanager
def plainly() -> Iterator[None]:
    """Let logs grow by the functions below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogTail, "append", append, raising=False)
        patch.setattr(durability, "release_written", release_written)
        patch.setattr(write_queue, "add_growing", add_growing)
        yield


def append(tail: LogTail, entries: Sequence[Entry]) -> None:
    """See GroupLog."""
    state, reader = tail._state, tail._reader
    state.check_usable()
    overhead_bytes = 0 if tail._seal is None else SEAL_BYTES
    for entry in entries:
        block, frame = state.growing, entry.frame
        size = len(frame) + overhead_bytes
        if block is None or (block.used + size + MARK_BYTES > block.size and block.offsets):
            block = tail.roll(entry.index, size)
        elif block.used + size + MARK_BYTES > block.size:
            block.size = block.used + size + MARK_BYTES
        segments = state.write_queue.segments
        segment = segments[-1] if segments and segments[-1].block is block else begun(tail, block)
        offset = placed(tail, entry, overhead_bytes)
        segment.frames.append(frame if tail._seal is None else tail._seal(segment.file.head.serial, offset, frame))
        segment.end += size
        reader._unwritten[block.number, offset] = frame
        if frame[FRAME_KIND_AT] in CACHED_KINDS:
            put(reader, (reader._log, block.number, offset), frame)
    if entries:
        newest = entries[-1]
        is_kept = newest.kind in CACHED_KINDS and len(newest.frame) <= NEWEST_BYTES_MAX
        state.newest = newest if is_kept else None
    state.token += 1


def begun(tail: LogTail, block: Block) -> Segment:
    """A segment at the end of a block."""
    segment = Segment(
        block=block,
        file=tail._reader.files[block.number],
        create=False,
        offset=block.used,
        first_index=tail._blocks.terms.last_index + 1,
        end=block.used,
    )
    tail._state.write_queue.segments.append(segment)
    return segment


def placed(tail: LogTail, entry: Entry, overhead_bytes: int) -> int:
    """Add an entry to the tables; returns its offset."""
    terms, block = tail._blocks.terms, tail._blocks.newest
    assert entry.index == terms.last_index + 1
    assert entry.term >= terms._terms[-1]
    if entry.term != terms._terms[-1]:
        terms._starts.append(entry.index)
        terms._terms.append(entry.term)
    terms.last_index = entry.index
    offset = block.used
    block.offsets.append(offset)
    block.used += len(entry.frame) + overhead_bytes
    block.last_seq = max(block.last_seq, last_seq_of(entry))
    return offset


def put(reader: HeldFrames, key: tuple[int, int, int], frame: bytes) -> None:
    """Keep a frame in the cache."""
    cache = reader.cache
    if key not in cache._frames:
        cache._frames[key] = frame
        cache._bytes_held += len(frame) + FRAME_OVERHEAD_BYTES
        cache.make_room()


def add_growing(batch: Batch, segment: Segment, incarnation: int) -> None:
    """Write the frames of a segment to its file; then the mark."""
    block, fd = segment.block, segment.file.fd
    assert fd is not None
    batch.write(fd, segment.frames, segment.offset)
    batch.sync_data(fd)
    next_index = segment.first_index + len(segment.frames)
    mark = make_mark(incarnation=incarnation, offset=segment.end, next_index=next_index, tag=segment.file.head.tag)
    batch.write(fd, [mark], segment.end)
    block.used = max(block.used, segment.end + MARK_BYTES)


def release_written(segments: Sequence[Segment], reader: HeldFrames) -> int | None:
    """Release the frames of these segments."""
    for segment in segments:
        segment.file.written = segment.end
        offset = segment.offset
        for frame in segment.frames:
            reader._unwritten.pop((segment.block.number, offset), None)
            offset += len(frame)
    return min((segment.first_index for segment in segments if segment.create), default=None)
