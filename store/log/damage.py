"""The damaged entries of a log: which cannot be read, which are lost, and which came back.

An opening finds them (store/log/recovery.py), and `repair` (store/log/opening.py) writes sound frames in their places.
What cannot be repaired is given up here: memory has a placeholder instead (store/frames/placeholder.py), and the files
stay as they are.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.blocks.block import Block, BlockList, last_seq_of
from jetraft.store.blocks.builder import BlockBuilder
from jetraft.store.blocks.terms import TERM_MAX
from jetraft.store.frames._frame import parse_header
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, FRAME_HEADER_BYTES
from jetraft.store.frames.placeholder import placeholder_frame
from jetraft.store.ledger.ledger_records import Point
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.recovery import MAX_SEQ
from jetraft.store.model.files import index_ranges
from jetraft.store.port import Checkpoint, Entry, FrameRef, FrameRun

if TYPE_CHECKING:
    from jetraft.store.log.salvage import Salvaged

log_ = logging.getLogger(__name__)

READ_BYTES: Final = 4 << 20  # of one read during a walk
RUN_BYTES: Final = 128 << 10  # of one run: indexing it holds the interpreter for less than a millisecond


@attrs.frozen(kw_only=True, slots=True)
class Image:
    """A block as it is sent to another member: its file without the head, with placeholders for lost entries."""

    data: bytes
    places: Sequence[int]  # of its frames in a file
    indexes: Sequence[int]

    def body_bytes(self, last_index: int) -> int:
        """The number of its bytes up to and including an entry."""
        number = bisect_right(self.indexes, last_index)
        return len(self.data) if number == len(self.places) else self.places[number] - BLOCK_HEAD_BYTES


class Damage:
    """Which entries of a log are damaged, and how reads avoid them."""

    __slots__ = (
        "_blocks",
        "_image",
        "_incarnation",
        "_reader",
        "_replaced",
        "damaged_entries",
        "lost",
        "returned",
        "salvaged",
    )

    def __init__(
        self, blocks: BlockList, reader: FrameReader, incarnation: int, damaged_entries: index_ranges.Ranges
    ) -> None:
        self._blocks = blocks
        self._reader = reader
        self._incarnation = incarnation
        self._replaced: index_ranges.Ranges = ()  # read from memory: their frames on disk are damaged
        self.damaged_entries = damaged_entries
        self.lost: index_ranges.Ranges = ()  # damaged entries that no member has: see `give_up`
        self._image: tuple[tuple[int, int], Image | None] = (0, 0), None  # the last image made, with (block, revision)
        self.returned: dict[int, bytes] = {}  # true frames of entries that were given up and came back
        self.salvaged: dict[int, Salvaged] = {}  # damaged frames with their sound records

    def identify(self, identities: Iterable[Point], term_max: int | None) -> None:
        """Mark the terms of damaged entries as unknown, except where `identities` give them.

        `term_max` is the promised term, if known: a term is promised durably before an entry of it is written, so no
        entry has a higher one.
        """
        terms = self._blocks.terms
        for first, last in self.damaged_entries:
            terms.doubt(first, last)
        if term_max is not None:
            terms.last_term_max = term_max
        for index, term in identities:
            try:
                terms.correct(index, term)
            except ValueError as error:
                log_.error("records of a damaged entry contradict each other: %s", error)  # noqa: TRY400

    def sound_to(self, lo: int, hi: int) -> int:
        """The last index that one read from `lo` may reach: it ends before the next entry without a frame on disk."""
        if not self.damaged_entries and not self._replaced:
            return hi
        return min((first - 1 for first, _ in (*self.damaged_entries, *self._replaced) if lo < first <= hi), default=hi)

    def walk(self, lo: int, hi: int) -> Iterator[tuple[FrameRef, Entry]]:
        """See GroupLog.frames."""
        for block in list(self._blocks):
            index, last = self._next_sound(block, max(lo, block.first_index)), min(hi, block.last_index)
            while index <= last:
                for entry in self._reader.run(block, index, self.sound_to(index, last), READ_BYTES):
                    yield FrameRef(block.number, block.offset_of(entry.index)), entry
                    index = entry.index + 1
                index = self._next_sound(block, index)

    def walk_stored(self, lo: int, hi: int) -> Iterator[FrameRun]:
        """See GroupLog.runs."""
        for block in list(self._blocks):
            index, last = self._next_sound(block, max(lo, block.first_index)), min(hi, block.last_index)
            while index <= last:
                run = self._reader.stored_run(block, index, self.sound_to(index, last), RUN_BYTES)
                yield run
                index = self._next_sound(block, run.indexes[-1] + 1)

    def _next_sound(self, block: Block, index: int) -> int:
        """The first index at or above `index` that the block contains and that is not known to be damaged."""
        index = block.next_present(index)
        for first, last in self.damaged_entries:
            if first <= index <= last:
                index = block.next_present(last + 1)
        return index

    def give_up(
        self,
        ranges: index_ranges.Ranges,
        checkpoint: Checkpoint | None,
        frames: Mapping[int, bytes] = MappingProxyType({}),
    ) -> None:
        """Continue without these damaged entries, except for those whose verified frames are given.

        Entries without a frame become `lost`. `entries` returns placeholders for them, which are equal on every member
        that gives them up. Up to the newest checkpoint no placeholder is needed: the log then begins after the lost
        entries, where terms are known, at the checkpoint's entry at the latest, because another member may have applied
        the true entry. The files stay as they are, so the next opening finds the same damage.
        """
        given_up = [index for first, last in ranges for index in range(first, last + 1)]
        covered_index = 0 if checkpoint is None else checkpoint.index
        if checkpoint is not None:
            self._blocks.terms.correct(checkpoint.index, checkpoint.term)
        for index in given_up:
            block = self._blocks.find(index)
            assert block is not None
            frame = frames.get(index) or self.substitute(index)
            if index in frames or index > covered_index:
                self._blocks.terms.correct(index, parse_header(frame).term)
            self._reader.buffer(block, block.offset_of(index), frame)
        gone = [index for index in given_up if index not in frames]
        self.returned.update((index, frames[index]) for index in given_up if index in frames)
        self.lost = index_ranges.merged([*self.lost, *((index, index) for index in gone)])
        self._replaced = index_ranges.merged([*self._replaced, *ranges])
        left = [index for low, high in self.damaged_entries for index in range(low, high + 1)]
        self.damaged_entries = index_ranges.merged(
            (index, index) for index in left if not index_ranges.covers(self._replaced, index, index)
        )
        for block in self._blocks:
            for low, high in index_ranges.merged([*self._replaced, *self.damaged_entries]):
                if low <= block.last_index and high >= block.first_index:
                    self._spread(block, max(low, block.first_index), min(high, block.last_index))
                    self._mend(block, max(low, block.first_index), min(high, block.last_index))
        covered = [index for index in gone if index <= covered_index]
        if covered:
            self._blocks.begin_after(self._known_from(covered[-1]))
        for block in self._blocks:
            if block.last_seq == MAX_SEQ:
                found = self.walk(block.first_index, block.last_index)
                block.last_seq = max((last_seq_of(entry) for _, entry in found), default=0)

    def _spread(self, block: Block, low: int, high: int) -> None:
        """Give the entries of one damaged range offsets that leave room for each frame.

        The opening only knows where the damage begins and ends. The message index assigns a record to the last frame
        that starts before it, so frames must not overlap. They fit, because no frame is shorter than a placeholder or
        than a frame header. Compaction may have made them shorter; then the offsets stay, and reading them is an error.
        """
        numbers = range(block.number_from(low), block.number_from(high + 1))
        frames = [self._reader.in_memory(block, block.offsets[number]) for number in numbers]
        at, offsets = 0, []
        for number, frame in zip(numbers, frames, strict=True):
            salvaged = self.salvaged.get(block.index_of(number)) if block.stored is None else None
            at = max(at, block.offsets[number], 0 if salvaged is None else salvaged.place)
            offsets.append(at)
            at += FRAME_HEADER_BYTES if frame is None else len(frame)
        if at > (block.offsets[numbers.stop] if numbers.stop < len(block.offsets) else max(block.used, at)):
            return
        for number in numbers:
            self._reader.release(block, block.offsets[number])
        for number, frame, offset in zip(numbers, frames, offsets, strict=True):
            block.offsets[number] = offset
            if frame is not None:
                self._reader.buffer(block, offset, frame)

    def _mend(self, block: Block, low: int, high: int) -> None:
        """Note where the salvaged frames of one damaged range are in the file: they can be overwritten there."""
        end = 0
        for number in range(block.number_from(low), block.number_from(high + 1)):
            index, offset = block.index_of(number), block.offsets[number]
            salvaged = self.salvaged.get(index)
            if block.stored is not None:
                block.stored[number] = max(block.stored[number], end, 0 if salvaged is None else salvaged.place)
            if salvaged is not None and self._reader.in_memory(block, offset) is salvaged.frame:
                self._reader.mend(block, number, salvaged.frame)
                end = salvaged.place + len(salvaged.frame)

    def is_in(self, block: Block) -> bool:
        """Whether an entry of a block is damaged in its file: lost, or replaced in memory."""
        ranges = (*self.damaged_entries, *self._replaced, *self.lost)
        return any(first <= block.last_index and last >= block.first_index for first, last in ranges)

    def can_be_replaced(self, block: Block) -> bool:
        """Whether memory has a frame for every damaged entry of a block."""
        return not any(first <= block.last_index and last >= block.first_index for first, last in self.damaged_entries)

    def is_gone_from(self, block: Block) -> None:
        """Note that the file of a block has no damage any more, because it was rewritten, or dropped."""
        self._replaced = index_ranges.outside(self._replaced, block.first_index, block.last_index)
        self.lost = index_ranges.outside(self.lost, block.first_index, block.last_index)

    def _known_from(self, index: int) -> int:
        """The first entry at or after `index` whose term is known: it can be the boundary of the log."""
        terms = self._blocks.terms
        while index < terms.last_index and index >= terms.boundary[0] and terms.at(index) is None:
            index += 1
        return index

    def substitute(self, index: int) -> bytes:
        """The frame that replaces a damaged entry that is given up, in the lowest term that the entry can have had.

        A member with peers gives up entries of the log only when their terms are known (`FileLog.set_term`). A salvaged
        frame is used if the entry can have had its term.
        """
        low, high = self._blocks.terms.bounds(index) or (self._term_below(index), TERM_MAX)
        salvaged = self.salvaged.get(index)
        if salvaged is not None and low <= parse_header(salvaged.frame).term <= high:
            return salvaged.frame
        return placeholder_frame(index, low, self._incarnation)

    def image(self, block: Block) -> Image | None:
        """The block as it is sent to another member if an entry of it is lost; None when its file can be sent.

        Such a block does not grow: the log continues in another one. Raises StoreCorrupt.
        """
        if not any(first <= block.last_index and last >= block.first_index for first, last in self.lost):
            return None
        state = block.number, self._reader.files[block.number].revision
        known, image = self._image
        if image is None or known != state:
            image = self._drawn(block)
            self._image = state, image
        return image

    def _drawn(self, block: Block) -> Image:
        builder = BlockBuilder(
            incarnation=self._incarnation,
            first_index=block.first_index,
            serial=0,
            cipher=None,
            is_compacted=block.indexes is not None,
        )
        for number in range(len(block.offsets)):
            builder.add(block.index_of(number), self._reader.current(block, number))
        return Image(data=builder.take(), places=builder.places, indexes=builder.indexes)

    def _term_below(self, index: int) -> int:
        """The term of the entry that precedes `index` in its block, for an index below `first_index`."""
        block = self._blocks.find(index)
        assert block is not None
        for number in reversed(range(block.number_of(index))):
            before = block.index_of(number)
            frame = self._reader.in_memory(block, block.offset_of(before))
            if frame is not None:
                return parse_header(frame).term
            if not index_ranges.covers(self.damaged_entries, before, before):
                return self._reader.run(block, before, before, 0)[0].term
        return block.boundary_term
