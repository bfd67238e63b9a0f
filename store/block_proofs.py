"""Where frames of a block begin behind damage: what proves it, and what only seems to.

A payload can hold anything, also the likeness of frames and marks of the log that it lies in. What no client can know
is the tag of a block's marks and skips (store/format.py), and what rarely is damaged is the place where a frame says
itself that it ends. `Proofs` has the former, `own_ends` the latter; store/survey.py goes by both.

Pure: bytes in, values out.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from jetraft.store._frame import Scan, crc32c, find_mark, make_mark, make_skip, parse_header, scan
from jetraft.store.format import (
    FRAME_CRC_AT,
    FRAME_CRC_FROM,
    FRAME_HEADER_BYTES,
    FRAME_INCARNATION_AT,
    MARK_BYTES,
    Stop,
)

NO_LIMIT: Final = (1 << 64) - 1
_OFFSET_AT: Final = 16  # in a mark, as the others
_TAG_AT: Final = 20
_TAG_BYTES: Final = 4
_NEXT_INDEX_AT: Final = 24


class Proofs:
    """What says where frames of a block begin, apart from the frames: marks, and skips where it was compacted.

    With a tag they are beyond doubt. Without one, any of them may be the likeness of one inside a payload.
    """

    def __init__(self, data: bytes, offset: int, incarnation: int, tag: int, limit: int) -> None:
        self._data = data
        self.incarnation = incarnation
        self.limit = limit
        self.tag = tag
        marks, skips = self._all(offset, skip=False), self._all(offset, skip=True)
        self.is_compacted = bool(skips)
        self.last_mark = marks[-1] if marks else 0
        self._places = sorted([*marks, *skips])

    def _all(self, offset: int, *, skip: bool) -> list[int]:
        found = []
        at = find_mark(self._data, offset=offset, incarnation=self.incarnation, skip=skip, tag=self.tag)
        while at >= 0:
            found.append(at)
            at = find_mark(self._data, offset=at + MARK_BYTES, incarnation=self.incarnation, skip=skip, tag=self.tag)
        return found

    def after(self, place: int) -> Iterator[tuple[int, int]]:
        """(place, index of the next frame) of those behind a place, ascending."""
        for number in range(bisect_right(self._places, place), len(self._places)):
            yield self._places[number], self._index_at(self._places[number])

    def next_place(self, place: int) -> int:
        """Where the first of them behind a place is, or the end of the block's bytes."""
        return next((found for found, _ in self.after(place)), len(self._data))

    def is_at(self, place: int) -> bool:
        """Whether one stands there."""
        number = bisect_left(self._places, place)
        return number < len(self._places) and self._places[number] == place

    def _index_at(self, place: int) -> int:
        return int.from_bytes(self._data[place + _NEXT_INDEX_AT : place + MARK_BYTES], "little")

    def confirm(self, place: int, index: int, term: int, *, over_damage: bool = False) -> bool:
        """Whether the walk that goes on at a place with an entry comes to a proof that agrees with it.

        That is the next mark or skip, or the end of the block's bytes. Frames inside a payload lead to neither: they
        would have to end where their payload's frame ends, and to come to an index there that they are beyond already.
        `over_damage`: on the way there may be more frames that are damaged, if they say themselves where they end.
        """
        while True:
            first = next(self.after(place - 1), None)
            last_index = first[1] - 1 if self.tag and first is not None else NO_LIMIT
            walk = scan(
                self._data,
                offset=place,
                incarnation=self.incarnation,
                next_index=index,
                term=term,
                last_index=last_index,
            )
            agreed = self._agreed(walk, place)
            if agreed is not None:
                return agreed
            if not over_damage or walk.stop in {Stop.ZERO, Stop.VERSION}:
                break
            end = next(own_ends(self._data, walk, self), None)
            if end is None:
                break
            place, index, term = end, walk.next_index + 1, walk.term
        rest = self._data[walk.end :]
        return walk.next_index > self.limit != NO_LIMIT and rest == bytes(len(rest))

    def _agreed(self, walk: Scan, place: int) -> bool | None:
        """Whether the first proof that a walk from a place comes to has its index; None when it comes to none."""
        indexes = indexes_of(walk)
        for proof, proven_index in self.after(place - 1):
            if proof > walk.end:
                break
            number = bisect_left(walk.offsets, proof)
            follows = indexes[number] if number < len(indexes) else walk.next_index
            if proof == place or (number and self._end_of(walk.offsets[number - 1], proof)):
                return follows == proven_index
            if self.tag:
                return False  # a true one inside what the walk takes for a frame
        return None

    def _end_of(self, frame: int, proof: int) -> bool:
        """Whether nothing but marks and skips lies between the end of a frame and a proof."""
        end = frame + parse_header(self._data, frame).length
        return (proof - end) % MARK_BYTES == 0 and all(self.is_at(at) for at in range(end, proof, MARK_BYTES))


def untagged(data: bytes, start: int, incarnation: int, tag: int) -> bytes:
    """Bytes of a block from a place on, with marks and skips as blocks without a tag have them: for another member."""
    needle = tag.to_bytes(_TAG_BYTES, "little")
    shown = bytearray(data)
    found = data.find(needle, _TAG_AT)
    while found >= 0:
        at = found - _TAG_AT
        offset = int.from_bytes(data[at + _OFFSET_AT : found], "little")
        next_index = int.from_bytes(data[at + _NEXT_INDEX_AT : at + MARK_BYTES], "little")
        for make in (
            partial(make_mark, incarnation=incarnation, offset=start + at, next_index=next_index),
            partial(make_skip, incarnation=incarnation, place=start + at, known_as=offset, next_index=next_index),
        ):
            if data[at : at + MARK_BYTES] == make(tag=tag):
                shown[at : at + MARK_BYTES] = make()
        found = data.find(needle, found + 1)
    return bytes(shown)


def own_ends(data: bytes, walk: Scan, proofs: Proofs) -> Iterator[int]:
    """Where a damaged frame says that it ends: by its checksum, when only its length is damaged, or by its length."""
    start = walk.end
    yield from _ends_by_checksum(data, walk, proofs)
    stated_end = start + int.from_bytes(data[start : start + FRAME_CRC_AT], "little")
    if start + FRAME_HEADER_BYTES <= stated_end <= len(data):
        yield stated_end


def _ends_by_checksum(data: bytes, walk: Scan, proofs: Proofs) -> Iterator[int]:
    """Where the checksum of a frame, which does not cover its length, holds: at the header of another, or a proof."""
    start = walk.end
    wanted = int.from_bytes(data[start + FRAME_CRC_AT : start + FRAME_CRC_FROM], "little")
    view = memoryview(data)
    at, crc = start + FRAME_CRC_FROM, 0
    for end in (*likenesses(data, walk, proofs), proofs.next_place(start)):
        if end >= start + FRAME_HEADER_BYTES:
            at, crc = end, crc32c(view[at:end], crc)
            if crc == wanted:
                yield end


def likenesses(data: bytes, walk: Scan, proofs: Proofs) -> Iterator[int]:
    """Where the header of the entry after a damaged one seems to be, before the next proof: some may be in payloads."""
    needle = proofs.incarnation.to_bytes(8, "little") + (walk.next_index + 1).to_bytes(8, "little")
    end = proofs.next_place(walk.end) + FRAME_HEADER_BYTES
    found = data.find(needle, walk.end + FRAME_HEADER_BYTES + FRAME_INCARNATION_AT, end)
    while found >= 0:
        yield found - FRAME_INCARNATION_AT
        found = data.find(needle, found + 1, end)


def indexes_of(walk: Scan) -> Sequence[int]:
    """The log indexes of the entries of a walk, one for each of its offsets."""
    return range(walk.next_index - len(walk.offsets), walk.next_index) if walk.indexes is None else walk.indexes
