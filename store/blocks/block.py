"""The table of a log's blocks: which block contains an entry, and at which offset. Used by FileLog and MemLog.

A block contains frames of consecutive indexes; its table is four bytes per frame, the offset. A byte of a block is
written once (decision 16): entries after a cut or a reopening go into a new block, so an old frame never follows a new
one and looks like its successor.

A compacted block (store/log/compaction.py) lacks entries, so its table has indexes too. Compaction moves frames in the
file but keeps their offsets, by which the rest of the process refers to them. A *place* is where a frame is in the
file; `stored` maps frames to places.

Invariants of a BlockList: blocks ascend by index and do not overlap; the newest block is never trimmed; there is no gap
from `first_index` to `last_index`. A log that never had an entry has no block.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from jetraft.store.blocks._growing import GrowingBlock, PlacedEntries
from jetraft.store.blocks.terms import TermRuns
from jetraft.store.frames._frame import parse_header
from jetraft.store.frames.format import FRAME_COUNT_AND_FIRST_SEQ, FRAME_COUNT_AT, Kind
from jetraft.store.port import Entry

_COUNT_AND_FIRST_SEQ: Final = FRAME_COUNT_AND_FIRST_SEQ.unpack_from
_MESSAGES: Final = int(Kind.MESSAGES)  # looking up an enum member costs more than the rest of `place`


class Block(GrowingBlock):
    """A run of consecutive entries, or the part of one that compaction kept, in one file or one piece of memory."""

    __slots__ = ()

    def shrink(self, size: int) -> None:
        """Reduce the capacity to `size` bytes, because the disk had no space for more; frames beyond that stay."""
        self.size = max(size, self.used)

    @property
    def last_index(self) -> int:
        """The index of the last entry; first_index - 1 when there is none."""
        return self.first_index + len(self.offsets) - 1 if self.indexes is None else self.sealed_last_index

    def contains(self, index: int) -> bool:
        """Whether the block contains the frame of `index`."""
        if self.indexes is None:
            return 0 <= index - self.first_index < len(self.offsets)
        number = self.number_from(index)
        return number < len(self.indexes) and self.indexes[number] == index

    def number_from(self, index: int) -> int:
        """The number of frames before the first one at or above `index`."""
        return index - self.first_index if self.indexes is None else bisect_left(self.indexes, index)

    def next_present(self, index: int) -> int:
        """The first index at or above `index` that the block contains; an index beyond the block when there is none."""
        if self.indexes is None:
            return index
        number = bisect_left(self.indexes, index)
        return self.indexes[number] if number < len(self.indexes) else max(index, self.last_index + 1)

    def number_of(self, index: int) -> int:
        """The number of the frame of `index` in the block, from 0."""
        assert self.contains(index)
        return self.number_from(index)

    def index_of(self, number: int) -> int:
        """The log index of a frame of the block."""
        return self.first_index + number if self.indexes is None else self.indexes[number]

    def offset_of(self, index: int) -> int:
        """The offset of the frame of `index`, which compaction does not change."""
        return self.offsets[self.number_of(index)]

    def index_at(self, offset: int) -> int | None:
        """The index of the entry at `offset`; None when no frame starts there."""
        number = bisect_left(self.offsets, offset)
        if number == len(self.offsets) or self.offsets[number] != offset:
            return None
        return self.index_of(number)

    def place_of(self, number: int) -> int:
        """The place of a frame: where it starts in the file."""
        return self.offsets[number] if self.stored is None else self.stored[number]

    def number_before(self, place: int) -> int:
        """The number of the last frame that starts at or before a place; 0 when none does."""
        return max(0, bisect_right(self.offsets if self.stored is None else self.stored, place) - 1)

    def place_end(self, number: int) -> int:
        """An upper bound for the end of a frame: the place of the next one, or `used`."""
        return self.place_of(number + 1) if number + 1 < len(self.offsets) else self.used

    def span_end(self, index: int) -> int:
        """The same for the frame of `index`."""
        return self.place_end(self.number_of(index))


def entry_of(frame: bytes) -> Entry:
    """The entry of a sound frame."""
    header = parse_header(frame)
    return Entry(index=header.log_index, term=header.term, kind=header.kind, frame=frame)


def last_seq_of(entry: Entry) -> int:
    """The highest stream sequence of the entry's messages, 0 when it has none."""
    if entry.kind != _MESSAGES:
        return 0
    count, first_seq = _COUNT_AND_FIRST_SEQ(entry.frame, FRAME_COUNT_AT)
    return first_seq + count - 1 if count else 0


class BlockList(PlacedEntries):
    """The blocks of one log in order, and the terms of its entries."""

    def __init__(self, blocks: list[Block], terms: TermRuns) -> None:
        super().__init__(blocks, terms)
        self._by_number = {block.number: block for block in blocks}
        self._next_number = max(self._by_number, default=-1) + 1
        self.first_index = self._suffix_start()

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def newest(self) -> Block:
        """The last block, to which entries are added."""
        return self._blocks[-1]

    @property
    def last_index(self) -> int:
        """The highest index in the log; the boundary's when it is empty."""
        return self.terms.last_index

    def numbered(self, number: int) -> Block:
        """The block with this number. Raises KeyError when it was dropped."""
        return self._by_number[number]

    def find(self, index: int) -> Block | None:
        """The block that contains `index`; None when no block does."""
        if self._blocks and self._blocks[-1].first_index <= index:  # the common case: recent entries
            newest = self._blocks[-1]
            return newest if newest.contains(index) else None
        place = bisect_right(self._blocks, index, key=lambda block: block.first_index) - 1
        if place < 0 or not self._blocks[place].contains(index):
            return None
        return self._blocks[place]

    def locate_older(self, index: int) -> tuple[int, int] | None:
        """The same as `locate` for an entry that is not in a newest block, or in one that was compacted."""
        block = self.find(index)
        return None if block is None else (block.number, block.offset_of(index))

    def open_block(self, first_index: int, *, size: int, used: int) -> Block:
        """Start a new newest block; `first_index` is the next index of the log."""
        assert first_index == self.last_index + 1
        block = Block(
            number=self._next_number,
            first_index=first_index,
            boundary_term=self.terms.last_term,
            size=size,
            used=used,
        )
        self._next_number += 1
        self._blocks.append(block)
        self._by_number[block.number] = block
        return block

    def cut_from(self, index: int) -> list[Block]:
        """Remove the entries from `index` on and return the blocks that became empty.

        The caller opens a block at `index` next. `last_seq` of the shortened block does not change: a value that is too
        high only delays a trim.
        """
        assert self.first_index <= index <= self.last_index
        assert self.newest.indexes is None, "a compacted block is below a checkpoint and is never cut"
        empty = []
        while self._blocks and self.newest.first_index >= index:
            empty.append(self.forget_newest())
        if self._blocks:
            del self.newest.offsets[index - self.newest.first_index :]
        self.terms.cut_from(index)
        return empty

    def forget_newest(self) -> Block:
        """Remove the newest block; the caller opens another next."""
        return self._forget(self._blocks.pop())

    def droppable(self, first_live_seq: int, index: int) -> list[Block]:
        """Blocks that end at or before `index` and have no message of `first_live_seq` or above; never the newest."""
        return [block for block in self._blocks[:-1] if block.last_index <= index and block.last_seq < first_live_seq]

    def drop(self, blocks: list[Block]) -> None:
        """Remove these blocks. If that leaves a gap, `first_index` moves past it."""
        assert self.newest not in blocks
        for block in blocks:
            self._blocks.remove(self._forget(block))
        self.note_holes()

    def note_holes(self) -> None:
        """Move `first_index` past the last gap, after blocks were removed or compacted."""
        self.begin_after(self._suffix_start() - 1)

    def begin_after(self, index: int) -> None:
        """Move `first_index` past `index`; the blocks stay, and their frames can still be read by block and offset."""
        self.first_index = max(self.first_index, index + 1)
        if self.first_index - 1 > self.terms.boundary[0]:
            self.terms.drop_before(self.first_index - 1)

    def _forget(self, block: Block) -> Block:
        del self._by_number[block.number]
        return block

    def _suffix_start(self) -> int:
        """The first index of the longest run of blocks without a gap that ends with the newest."""
        first = self.last_index + 1
        for block in reversed(self._blocks):
            if block.last_index + 1 != first or block.indexes is not None:
                break
            first = block.first_index
        return first


def block_list(found: Sequence[tuple[Block, Iterable[tuple[int, int]]]]) -> BlockList:
    """The blocks of an existing log. `found`: ascending blocks, each with its runs of terms (first log index, term)."""
    if not found:
        return BlockList([], TermRuns(0, 0))
    newest, newest_runs = found[-1]
    if newest.indexes is not None:
        last_term = max((term for _, term in newest_runs), default=newest.boundary_term)
        return BlockList([block for block, _ in found], TermRuns(newest.last_index, last_term))
    suffix = len(found) - 1
    while suffix and found[suffix - 1][0].indexes is None:
        if found[suffix - 1][0].last_index + 1 != found[suffix][0].first_index:
            break
        suffix -= 1
    oldest = found[suffix][0]
    terms = TermRuns(oldest.first_index - 1, oldest.boundary_term)
    for block, runs in found[suffix:]:
        terms.extend(runs, block.last_index)
    return BlockList([block for block, _ in found], terms)
