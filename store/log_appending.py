"""Where the next frame goes: the blocks of a log, the one that grows, and what waits to be handed to the writer.

The first layer of a log in files (store/log.py). Everything here happens in memory: the place of a frame is settled
when it is appended and never changes, and the backlog remembers what no file has yet.

Invariants: a byte of a block is written once: after a cut and after an opening the log goes on in a new block, whose
head voids what older ones hold from there on; a failed log takes nothing more.
"""

import os
from collections.abc import Sequence
from typing import Final

from jetraft.store.backlog import Backlog, BlockFile, LogPlace, Segment
from jetraft.store.block import Block
from jetraft.store.cipher import SEAL_BYTES
from jetraft.store.format import BLOCK_HEAD_BYTES, MARK_BYTES, BlockHead, Identity
from jetraft.store.frame_reader import CACHED_KINDS, FrameReader
from jetraft.store.log_start import BLOCK_GROWTH, LogOptions, LogStart
from jetraft.store.port import Entry, StoreFailed
from jetraft.store.space import affordable_block_bytes

TAG_BYTES: Final = 4  # of what clients cannot know of a block: see store/format.py
NEWEST_BYTES_MAX: Final = 4 << 10  # a thousand idle logs keep 4 MB by it, at most


class AppendingLog:
    """The end of a log: append, cut, roll."""

    __slots__ = (  # a dictionary of that many takes 1.6 KB
        "__weakref__",
        "_backlog",
        "_block_bytes",
        "_blocks",
        "_closed",
        "_growing",
        "_newest",
        "_options",
        "_place",
        "_reader",
        "_seal",
        "_serial",
        "_token",
        "failed",
    )

    def __init__(self, place: LogPlace, options: LogOptions, start: LogStart, reader: FrameReader) -> None:
        self._place = place
        self._seal = None if place.cipher is None else place.cipher.seal_frame
        self._reader = reader
        self._options = options
        self._blocks = start.blocks
        self._backlog = Backlog()
        self._serial = start.serial  # of the next block
        self._growing: Block | None = None  # the newest block, once it was started by this process
        self._block_bytes = options.block_bytes_first
        self._newest: Entry | None = None  # the last entry as it was appended, if it is small: it is applied next
        self._token = 0
        self._closed = False
        self.failed: Exception | None = None

    @property
    def first_index(self) -> int:
        """See GroupLog."""
        return self._blocks.first_index

    @property
    def last_index(self) -> int:
        """See GroupLog."""
        return self._blocks.last_index

    @property
    def boundary(self) -> tuple[int, int]:
        """See GroupLog."""
        return self._blocks.terms.boundary

    @property
    def identity(self) -> Identity:
        """Whose log it is."""
        return self._place.identity

    @property
    def place(self) -> LogPlace:
        """Where the log lives."""
        return self._place

    def token(self) -> int:
        """See GroupLog."""
        return self._token

    def term_at(self, index: int) -> int | None:
        """See GroupLog."""
        return self._blocks.terms.at(index)

    def append(self, entries: Sequence[Entry]) -> None:
        """See GroupLog."""
        self._check_usable()
        seal, overhead_bytes = self._seal, 0 if self._seal is None else SEAL_BYTES
        for entry in entries:
            block, size = self._growing, len(entry.frame) + overhead_bytes
            if block is None or (block.used + size + MARK_BYTES > block.size and block.offsets):
                block = self._roll(entry.index, size)
            elif block.used + size + MARK_BYTES > block.size:
                block.size = block.used + size + MARK_BYTES  # the first frame of a block always fits
            segment = self._segment(block)
            offset = self._blocks.place(entry, overhead_bytes)
            segment.add(entry.frame if seal is None else seal(segment.file.head.serial, offset, entry.frame))
            self._reader.hold(block, offset, entry.frame)
        if entries:
            newest = entries[-1]
            is_kept = newest.kind in CACHED_KINDS and len(newest.frame) <= NEWEST_BYTES_MAX
            self._newest = newest if is_kept else None  # others are few, and would stay for as long as a log rests
        self._token += 1

    def cut_from(self, index: int) -> None:
        """See GroupLog."""
        self._check_usable()
        self._newest = None
        self._drop_unwritten(index)
        for block in self._blocks.cut_from(index):
            self._forget(block)
        self._roll(index)
        self._token += 1

    @property
    def growing(self) -> tuple[int | None, int]:
        """(number of the block that grows, bytes used of it); None before the first entry of this process."""
        block = self._growing
        return (None, 0) if block is None or not block.offsets else (block.number, block.used)

    def roll_early(self) -> int:
        """Let the next entry begin a small block, although the one that grows is not full; returns 1."""
        self._check_usable()
        self._block_bytes = self._options.block_bytes_first
        self._roll(self.last_index + 1)
        self._token += 1
        return 1

    def _check_usable(self) -> None:
        if self.failed is not None:
            raise StoreFailed(f"{self._place.group}: takes no more writes after: {self.failed}") from self.failed
        assert not self._closed

    def _roll(self, index: int, frame_bytes: int = 0) -> Block:
        """Retire the newest block and start another, whose first entry is `index`."""
        old = self._blocks.newest if len(self._blocks) else None
        if old is not None and not old.offsets:
            self._blocks.forget_newest()
            self._forget(old)
        elif old is not None and old.number in self._reader.files:
            self._reader.files[old.number].is_growing = False
            self._backlog.retired.append((old, self._reader.files[old.number]))
        size = max(self._next_block_bytes(), BLOCK_HEAD_BYTES + frame_bytes + MARK_BYTES)
        tag = int.from_bytes(os.urandom(TAG_BYTES), "little")
        head = BlockHead(serial=self._serial, first_index=index, boundary_term=self._blocks.terms.last_term, tag=tag)
        self._serial += 1
        block = self._blocks.open_block(index, size=size, used=BLOCK_HEAD_BYTES)
        self._reader.files[block.number] = BlockFile(place=self._place, head=head, sealed=self._seal is not None)
        self._growing = block
        self._segment(block, create=True)
        return block

    def _next_block_bytes(self) -> int:
        """How large the next block is to be; the one after it grows if this one could be had."""
        wanted, room_bytes = self._block_bytes, self._options.room_bytes
        size = wanted if room_bytes is None else affordable_block_bytes(wanted, room_bytes())
        if size == wanted:
            self._block_bytes = min(wanted * BLOCK_GROWTH, self._options.block_bytes_max)
        return size

    def _segment(self, block: Block, *, create: bool = False) -> Segment:
        """The piece of the backlog to which the next frame of `block` goes."""
        segments = self._backlog.segments
        if not segments or segments[-1].block is not block:
            file = self._reader.files[block.number]
            first_index = block.last_index + 1
            segments.append(Segment(block=block, file=file, create=create, offset=block.used, first_index=first_index))
        return segments[-1]

    def _drop_unwritten(self, index: int) -> None:
        """Take frames from `index` on out of the backlog; their places are given back."""
        for segment in self._backlog.segments:
            offset = segment.offset
            for number, frame in enumerate(segment.frames):
                if segment.first_index + number >= index:
                    self._reader.release(segment.block, offset)
                offset += len(frame)
            if segment.first_index + len(segment.frames) > index:
                segment.keep_below(index)
                segment.block.used = segment.end

    def _forget(self, block: Block) -> None:
        """Give up a block: what waits for it is not written, what was written goes."""
        segments = [segment for segment in self._backlog.segments if segment.block is block]
        self._backlog.segments = [segment for segment in self._backlog.segments if segment.block is not block]
        self._backlog.retired = [item for item in self._backlog.retired if item[0] is not block]
        for key in [key for key in self._backlog.rewrites if key[0] == block.number]:
            del self._backlog.rewrites[key]
        file = self._reader.forget(block.number)
        if not any(segment.create for segment in segments):
            self._backlog.unlink.append(file.path)
        if file.fd is not None:
            self._backlog.close.append(file.fd)
            file.fd = None
        if self._growing is block:
            self._growing = None
