"""Blocks: which frames of a log stand where. Shared by the log in files and the log in memory.

A block holds frames of consecutive indexes. Its table has four bytes per frame, the offset; everything else is found
from there. A byte of a block is written once: what follows a cut, or a reopening, goes into a new block, so no old
frame can come to stand behind a new one and be taken for its successor.

A block that was compacted (store/compaction.py) lacks entries: its table then has indexes too. Its frames moved in the
file, and kept the offset by which the rest of the process knows them: `stored` says where they are now.

Invariants of a BlockList: blocks ascend by index and do not overlap; the newest block is never trimmed; from
`first_index` to `last_index` there is no hole. A log that never held an entry has no block.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

import attrs

from jetraft.store._frame import parse_header
from jetraft.store.format import Kind
from jetraft.store.port import Entry
from jetraft.store.terms import TermRuns

BLOCK_BYTES_MIN: Final = 64 << 10  # of a block that is begun where room is short
_COUNT_AT: Final = 12  # in a frame's header, see store/format.py
_COUNT_AND_FIRST_SEQ: Final = Struct("<I24xQ").unpack_from
_MESSAGES: Final = int(Kind.MESSAGES)  # looking a member of an enum up costs more than all the rest


@attrs.define(eq=False, kw_only=True)
class Block:
    """A run of consecutive entries, or what compaction has left of one, in one file or one piece of memory."""

    number: int  # in this process; never used again
    first_index: int
    boundary_term: int  # of the entry before first_index
    size: int  # bytes that it may grow to
    used: int  # bytes from its start to the end of what was placed
    offsets: "array[int]" = attrs.field(factory=lambda: array("I"))
    last_seq: int = 0  # highest stream sequence of a message in it, 0 when it holds none
    indexes: "array[int] | None" = None  # of the entries that are left; None: all of them
    stored: "array[int] | None" = None  # where the frames are in the file; None: at their offsets
    sealed_last_index: int = 0  # what `last_index` was before compaction

    def shrink(self, size: int) -> None:
        """There was no room for more than so many bytes: what was placed beyond them stays where it is."""
        self.size = max(size, self.used)

    @property
    def last_index(self) -> int:
        """first_index - 1 when it holds no frame."""
        return self.first_index + len(self.offsets) - 1 if self.indexes is None else self.sealed_last_index

    def holds(self, index: int) -> bool:
        """True when the frame of `index` is here."""
        if self.indexes is None:
            return 0 <= index - self.first_index < len(self.offsets)
        number = self.number_from(index)
        return number < len(self.indexes) and self.indexes[number] == index

    def number_from(self, index: int) -> int:
        """How many frames come before the first one at or above `index`."""
        return index - self.first_index if self.indexes is None else bisect_left(self.indexes, index)

    def next_held(self, index: int) -> int:
        """The first entry at or above `index` whose frame is here; one that is beyond the block when there is none."""
        if self.indexes is None:
            return index
        number = bisect_left(self.indexes, index)
        return self.indexes[number] if number < len(self.indexes) else max(index, self.last_index + 1)

    def number_of(self, index: int) -> int:
        """Which frame of the block, from 0, is that of `index`."""
        assert self.holds(index)
        return self.number_from(index)

    def index_of(self, number: int) -> int:
        """The log index of a frame of the block."""
        return self.first_index + number if self.indexes is None else self.indexes[number]

    def offset_of(self, index: int) -> int:
        """Where the frame of `index` starts, as the rest of the process knows it."""
        return self.offsets[self.number_of(index)]

    def index_at(self, offset: int) -> int | None:
        """Which entry starts at `offset`; None when none does."""
        number = bisect_left(self.offsets, offset)
        if number == len(self.offsets) or self.offsets[number] != offset:
            return None
        return self.index_of(number)

    def place_of(self, number: int) -> int:
        """Where a frame starts in the file."""
        return self.offsets[number] if self.stored is None else self.stored[number]

    def number_before(self, place: int) -> int:
        """The last frame that starts at or before a place in the file; the first one when none does."""
        return max(0, bisect_right(self.offsets if self.stored is None else self.stored, place) - 1)

    def place_end(self, number: int) -> int:
        """A place that a frame does not reach beyond: where the next one starts, or the end of what is used."""
        return self.place_of(number + 1) if number + 1 < len(self.offsets) else self.used

    def span_end(self, index: int) -> int:
        """The same for the frame of `index`."""
        return self.place_end(self.number_of(index))

    def place(self, entry: Entry, overhead_bytes: int = 0) -> int:
        """Put the next entry, which takes so much more than its frame, at the end and return its offset."""
        assert entry.index == self.last_index + 1
        offset = self.used
        self.offsets.append(offset)
        self.used = offset + len(entry.frame) + overhead_bytes
        if entry.kind == _MESSAGES:
            self.last_seq = max(self.last_seq, last_seq_of(entry))
        return offset


def entry_of(frame: bytes) -> Entry:
    """The entry that a sound frame is."""
    header = parse_header(frame)
    return Entry(index=header.log_index, term=header.term, kind=header.kind, frame=frame)


def last_seq_of(entry: Entry) -> int:
    """The highest stream sequence of the entry's messages, 0 when it has none."""
    if entry.kind != _MESSAGES:
        return 0
    count, first_seq = _COUNT_AND_FIRST_SEQ(entry.frame, _COUNT_AT)
    return first_seq + count - 1 if count else 0


class BlockList:
    """The blocks of one log in order, and the terms of its entries."""

    def __init__(self, blocks: list[Block], terms: TermRuns) -> None:
        self._blocks = blocks
        self._by_number = {block.number: block for block in blocks}
        self._next_number = max(self._by_number, default=-1) + 1
        self.terms = terms
        self.first_index = self._suffix_start()

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def newest(self) -> Block:
        """The block that grows."""
        return self._blocks[-1]

    @property
    def last_index(self) -> int:
        """The highest index in the log; the boundary's when it is empty."""
        return self.terms.last_index

    def numbered(self, number: int) -> Block:
        """Raises KeyError when it was dropped."""
        return self._by_number[number]

    def find(self, index: int) -> Block | None:
        """The block that holds `index`."""
        if self._blocks and self._blocks[-1].first_index <= index:  # nearly always: what is new is asked for
            newest = self._blocks[-1]
            return newest if newest.holds(index) else None
        place = bisect_right(self._blocks, index, key=lambda block: block.first_index) - 1
        if place < 0 or not self._blocks[place].holds(index):
            return None
        return self._blocks[place]

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

    def place(self, entry: Entry, overhead_bytes: int = 0) -> int:
        """Put the next entry into the newest block and return its offset there."""
        self.terms.append(entry.index, entry.term)
        return self.newest.place(entry, overhead_bytes)

    def cut_from(self, index: int) -> list[Block]:
        """Drop `index` and what follows and return the blocks that became empty; open a block at `index` next.

        `last_seq` of the shortened block stays as it was: too high is safe, it only delays a trim.
        """
        assert self.first_index <= index <= self.last_index
        assert self.newest.indexes is None, "what is checkpointed is not cut"
        empty = []
        while self._blocks and self.newest.first_index >= index:
            empty.append(self.forget_newest())
        if self._blocks:
            del self.newest.offsets[index - self.newest.first_index :]
        self.terms.cut_from(index)
        return empty

    def forget_newest(self) -> Block:
        """Take the newest block away; open another next."""
        return self._forget(self._blocks.pop())

    def droppable(self, first_live_seq: int, index: int) -> list[Block]:
        """Blocks that end at or before `index` and hold no message of `first_live_seq` or above; never the newest."""
        return [block for block in self._blocks[:-1] if block.last_index <= index and block.last_seq < first_live_seq]

    def drop(self, blocks: list[Block]) -> None:
        """Forget these blocks. A hole that opens moves `first_index` behind it."""
        assert self.newest not in blocks
        for block in blocks:
            self._blocks.remove(self._forget(block))
        self.note_holes()

    def note_holes(self) -> None:
        """Blocks went, or lost entries: what is below the last hole can no longer be read as a log."""
        self.begin_after(self._suffix_start() - 1)

    def begin_after(self, index: int) -> None:
        """Nothing up to `index` can be read by its index any more; the blocks stay where they are."""
        self.first_index = max(self.first_index, index + 1)
        if self.first_index - 1 > self.terms.boundary[0]:
            self.terms.drop_before(self.first_index - 1)

    def _forget(self, block: Block) -> Block:
        del self._by_number[block.number]
        return block

    def _suffix_start(self) -> int:
        """The first index of the run of blocks without a hole that ends with the newest."""
        first = self.last_index + 1
        for block in reversed(self._blocks):
            if block.last_index + 1 != first or block.indexes is not None:
                break
            first = block.first_index
        return first


def block_list(found: Sequence[tuple[Block, Iterable[tuple[int, int]]]]) -> BlockList:
    """The blocks of a log that exists, each with its runs of terms (first log index, term), ascending."""
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
