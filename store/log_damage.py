"""The damaged entries of a log: which cannot be read, what stands for those that no member has, what came back.

An opening finds them (store/recovery.py), and `mend` (store/log_open.py) writes sound frames in their places. What
cannot be mended is given up here: memory has store/stand_in.py in its place, and the files stay as they are.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from jetraft.store import trimmed
from jetraft.store._frame import parse_header
from jetraft.store.block import Block, BlockList, last_seq_of
from jetraft.store.block_builder import BlockBuilder
from jetraft.store.format import BLOCK_HEAD_BYTES, FRAME_HEADER_BYTES
from jetraft.store.frame_reader import FrameReader
from jetraft.store.ledger_records import Point
from jetraft.store.port import Checkpoint, Entry, FrameRef
from jetraft.store.recovery import MAX_SEQ
from jetraft.store.stand_in import stand_in
from jetraft.store.terms import TERM_MAX

log_ = logging.getLogger(__name__)

READ_BYTES: Final = 4 << 20  # one read while frames are walked


@attrs.frozen(kw_only=True, slots=True)
class Image:
    """A block as it is sent to another member: like a file of it behind its head, with stand-ins for what is lost."""

    data: bytes
    places: Sequence[int]  # of its frames in a file
    indexes: Sequence[int]

    def body_bytes(self, last_index: int) -> int:
        """How many of its bytes are those up to an entry."""
        number = bisect_right(self.indexes, last_index)
        return len(self.data) if number == len(self.places) else self.places[number] - BLOCK_HEAD_BYTES


class Damage:
    """What of a log's blocks is damaged, and how reads go around it."""

    __slots__ = ("_blocks", "_image", "_incarnation", "_reader", "_replaced", "faulty", "lost", "returned", "salvaged")

    def __init__(self, blocks: BlockList, reader: FrameReader, incarnation: int, faulty: trimmed.Ranges) -> None:
        self._blocks = blocks
        self._reader = reader
        self._incarnation = incarnation
        self._replaced: trimmed.Ranges = ()  # read from memory, as their place on disk is damaged
        self.faulty = faulty
        self.lost: trimmed.Ranges = ()  # faulty entries that no member has: see `give_up`
        self._image: tuple[tuple[int, int], Image | None] = (0, 0), None  # the last one drawn: of a block's revision
        self.returned: dict[int, bytes] = {}  # the true frames that have come back of entries given up
        self.salvaged: dict[int, bytes] = {}  # what is sound of damaged frames: see store/salvage.py

    def identify(self, identities: Iterable[Point], term_max: int | None) -> None:
        """Doubt the terms of the faulty entries, apart from those known elsewhere; `term_max` is what was promised.

        An entry and a promise of its term: the promise is durable first.
        """
        terms = self._blocks.terms
        for first, last in self.faulty:
            terms.doubt(first, last)
        if term_max is not None:
            terms.last_term_max = term_max
        for index, term in identities:
            try:
                terms.correct(index, term)
            except ValueError as error:
                log_.error("what is known of a damaged entry contradicts itself: %s", error)  # noqa: TRY400

    def sound_to(self, lo: int, hi: int) -> int:
        """The last index to read from `lo` on in one go: before the next entry without a frame on disk."""
        if not self.faulty and not self._replaced:
            return hi
        return min((first - 1 for first, _ in (*self.faulty, *self._replaced) if lo < first <= hi), default=hi)

    def walk(self, lo: int, hi: int) -> Iterator[tuple[FrameRef, Entry]]:
        """See GroupLog.frames."""
        for block in list(self._blocks):
            index, last = block.next_held(max(lo, block.first_index)), min(hi, block.last_index)
            while index <= last:
                fault = next((bounds for bounds in self.faulty if bounds[0] <= index <= bounds[1]), None)
                if fault is not None:
                    index = block.next_held(fault[1] + 1)
                    continue
                for entry in self._reader.run(block, index, self.sound_to(index, last), READ_BYTES):
                    yield FrameRef(block.number, block.offset_of(entry.index)), entry
                    index = block.next_held(entry.index + 1)

    def give_up(
        self, ranges: trimmed.Ranges, checkpoint: Checkpoint | None, frames: Mapping[int, bytes] = MappingProxyType({})
    ) -> None:
        """Go on without these faulty entries, except for those whose verified frames are given.

        What nobody has is `lost`. Where it stood, `entries` has what store/stand_in.py makes, the same on every member
        that gives it up; but up to the newest checkpoint nobody needs it, so the log begins behind it, where its terms
        are known, at the checkpoint's entry at the latest: another member may hold the true entry, applied. The disk
        stays as it is: the next opening finds the same.
        """
        settled = [index for first, last in ranges for index in range(first, last + 1)]
        covered_index = 0 if checkpoint is None else checkpoint.index
        if checkpoint is not None:
            self._blocks.terms.correct(checkpoint.index, checkpoint.term)
        for index in settled:
            block = self._blocks.find(index)
            assert block is not None
            frame = frames.get(index) or self.substitute(index)
            if index in frames or index > covered_index:
                self._blocks.terms.correct(index, parse_header(frame).term)
            self._reader.hold(block, block.offset_of(index), frame)
        gone = [index for index in settled if index not in frames]
        self.returned.update((index, frames[index]) for index in settled if index in frames)
        self.lost = trimmed.merged([*self.lost, *((index, index) for index in gone)])
        self._replaced = trimmed.merged([*self._replaced, *ranges])
        left = [index for low, high in self.faulty for index in range(low, high + 1)]
        self.faulty = trimmed.merged(
            (index, index) for index in left if not trimmed.covers(self._replaced, index, index)
        )
        for block in self._blocks:
            for low, high in trimmed.merged([*self._replaced, *self.faulty]):
                if low <= block.last_index and high >= block.first_index:
                    self._spread(block, max(low, block.first_index), min(high, block.last_index))
        covered = [index for index in gone if index <= covered_index]
        if covered:
            self._blocks.begin_after(self._known_from(covered[-1]))
        for block in self._blocks:
            if block.last_seq == MAX_SEQ:
                found = self.walk(block.first_index, block.last_index)
                block.last_seq = max((last_seq_of(entry) for _, entry in found), default=0)

    def _spread(self, block: Block, low: int, high: int) -> None:
        """Have entries of one piece of damage known by offsets that leave each frame its room.

        The opening could only see where the damage begins and ends. The index of messages takes a record for one of the
        last frame that starts before it, so frames must not overlap. They fit: no frame is shorter than a stand-in, or
        than the header that an entry which is still missing had at least. (Where compaction has made them shorter, they
        may not; then they stay, and reading them is an error.)
        """
        numbers = range(block.number_from(low), block.number_from(high + 1))
        frames = [self._reader.held(block, block.offsets[number]) for number in numbers]
        at, offsets = 0, []
        for number, frame in zip(numbers, frames, strict=True):
            at = max(at, block.offsets[number])
            offsets.append(at)
            at += FRAME_HEADER_BYTES if frame is None else len(frame)
        if at > (block.offsets[numbers.stop] if numbers.stop < len(block.offsets) else max(block.used, at)):
            return
        for number in numbers:
            self._reader.release(block, block.offsets[number])
        for number, frame, offset in zip(numbers, frames, offsets, strict=True):
            block.offsets[number] = offset
            if frame is not None:
                self._reader.hold(block, offset, frame)

    def _known_from(self, index: int) -> int:
        """The first entry from a given one on whose term is known, and that of the one before what can be read."""
        terms = self._blocks.terms
        while index < terms.last_index and index >= terms.boundary[0] and terms.at(index) is None:
            index += 1
        return index

    def substitute(self, index: int) -> bytes:
        """What stands for a faulty entry that is given up, in the lowest term that it can have had.

        Who has others gives up what counts for the log only where its term is known (`FileLog.know`). A frame that was
        salvaged counts if it can have its term.
        """
        low, high = self._blocks.terms.bounds(index) or (self._term_below(index), TERM_MAX)
        salvaged = self.salvaged.get(index)
        if salvaged is not None and low <= parse_header(salvaged).term <= high:
            return salvaged
        return stand_in(index, low, self._incarnation)

    def image(self, block: Block) -> Image | None:
        """The block for another member when an entry of it is lost; None when its file can be sent as it is.

        Nothing grows in such a block: a log that was opened goes on in another one. Raises StoreCorrupt.
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
            builder.add(block.index_of(number), self._reader.kept(block, number))
        return Image(data=builder.take(), places=builder.places, indexes=builder.indexes)

    def _term_below(self, index: int) -> int:
        """The term of what comes before an entry in its block, for one that lies below `first_index`."""
        block = self._blocks.find(index)
        assert block is not None
        for number in reversed(range(block.number_of(index))):
            before = block.index_of(number)
            frame = self._reader.held(block, block.offset_of(before))
            if frame is not None:
                return parse_header(frame).term
            if not trimmed.covers(self.faulty, before, before):
                return self._reader.run(block, before, before, 0)[0].term
        return block.boundary_term
