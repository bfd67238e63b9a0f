"""Evidence for where a frame of a block begins after damage; store/blocks/damage_scan.py uses it.

A payload may contain copies of frames and marks of its own log. No client knows the tag of a block's marks and skips
(store/frames/format.py), so these are proofs: `Proofs`. The end that a damaged frame states is a candidate, which a
proof must confirm: `stated_ends`.

Pure: bytes in, values out.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from jetraft.store.frames._frame import Scan, crc32c, find_mark, make_mark, make_skip, parse_header, scan
from jetraft.store.frames.format import (
    FRAME_CRC_AT,
    FRAME_CRC_FROM,
    FRAME_HEADER_BYTES,
    FRAME_INCARNATION_AT,
    MARK_BYTES,
    MARK_NEXT_INDEX_AT,
    MARK_OFFSET_AT,
    MARK_TAG_AT,
    MARK_TAG_BYTES,
    Stop,
)

NO_LIMIT: Final = (1 << 64) - 1


class Proofs:
    """The marks and, in a compacted block, the skips of a block: they state which entry begins at a place.

    With a tag they are certain. Without one, any of them may be a forgery inside a payload.
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
        """(place, index of the next frame) of each proof after a place, ascending."""
        for number in range(bisect_right(self._places, place), len(self._places)):
            place = self._places[number]
            yield place, int.from_bytes(self._data[place + MARK_NEXT_INDEX_AT : place + MARK_BYTES], "little")

    def next_place(self, place: int) -> int:
        """The place of the first proof after a place, or the end of the block's bytes."""
        return next((found for found, _ in self.after(place)), len(self._data))

    def is_at(self, place: int) -> bool:
        """Whether there is a proof at a place."""
        number = bisect_left(self._places, place)
        return number < len(self._places) and self._places[number] == place

    def confirm(self, place: int, index: int, term: int, *, over_damage: bool = False) -> bool:
        """Whether a walk from a place, starting with entry `index`, arrives at a proof that agrees with it.

        A proof is the next mark or skip, or the end of the block's bytes. Frames inside a payload do not arrive at one:
        they would have to end where the frame of their payload ends, with an index that they have already passed.
        `over_damage`: the walk may pass further damaged frames by their stated ends.
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
            end = next(stated_ends(self._data, walk, self), None)
            if end is None:
                break
            place, index, term = end, walk.next_index + 1, walk.term
        rest = self._data[walk.end :]
        return walk.next_index > self.limit != NO_LIMIT and rest == bytes(len(rest))

    def _agreed(self, walk: Scan, place: int) -> bool | None:
        """Whether the first proof that a walk reaches has the index of the walk; None when it reaches none."""
        indexes = indexes_of(walk)
        for proof, proven_index in self.after(place - 1):
            if proof > walk.end:
                break
            number = bisect_left(walk.offsets, proof)
            follows = indexes[number] if number < len(indexes) else walk.next_index
            if proof == place or (number and self._end_of(walk.offsets[number - 1], proof)):
                return follows == proven_index
            if self.tag:
                return False  # a genuine proof inside of what the walk takes for a frame
        return None

    def _end_of(self, frame: int, proof: int) -> bool:
        """Whether there are only marks and skips between the end of a frame and a proof."""
        end = frame + parse_header(self._data, frame).length
        return (proof - end) % MARK_BYTES == 0 and all(self.is_at(at) for at in range(end, proof, MARK_BYTES))


def untagged(data: bytes, start: int, incarnation: int, tag: int) -> bytes:
    """Bytes of a block, from place `start` on, with the tag removed from marks and skips, to be sent to a member."""
    needle = tag.to_bytes(MARK_TAG_BYTES, "little")
    shown = bytearray(data)
    found = data.find(needle, MARK_TAG_AT)
    while found >= 0:
        at = found - MARK_TAG_AT
        offset = int.from_bytes(data[at + MARK_OFFSET_AT : found], "little")
        next_index = int.from_bytes(data[at + MARK_NEXT_INDEX_AT : at + MARK_BYTES], "little")
        for make in (
            partial(make_mark, incarnation=incarnation, offset=start + at, next_index=next_index),
            partial(make_skip, incarnation=incarnation, place=start + at, logical_offset=offset, next_index=next_index),
        ):
            if data[at : at + MARK_BYTES] == make(tag=tag):
                shown[at : at + MARK_BYTES] = make()
        found = data.find(needle, found + 1)
    return bytes(shown)


def stated_ends(data: bytes, walk: Scan, proofs: Proofs) -> Iterator[int]:
    """The ends of a damaged frame by its header: from the checksum (if only the length is damaged), from the length."""
    start = walk.end
    yield from _ends_by_checksum(data, walk, proofs)
    stated_end = start + int.from_bytes(data[start : start + FRAME_CRC_AT], "little")
    if start + FRAME_HEADER_BYTES <= stated_end <= len(data):
        yield stated_end


def _ends_by_checksum(data: bytes, walk: Scan, proofs: Proofs) -> Iterator[int]:
    """The candidate ends (headers of the next entry, the next proof) at which the checksum of a frame is right.

    The checksum does not cover the length of the frame.
    """
    start = walk.end
    wanted = int.from_bytes(data[start + FRAME_CRC_AT : start + FRAME_CRC_FROM], "little")
    view = memoryview(data)
    at, crc = start + FRAME_CRC_FROM, 0
    for end in (*header_candidates(data, walk, proofs), proofs.next_place(start)):
        if end >= start + FRAME_HEADER_BYTES:
            at, crc = end, crc32c(view[at:end], crc)
            if crc == wanted:
                yield end


def header_candidates(data: bytes, walk: Scan, proofs: Proofs) -> Iterator[int]:
    """Places before the next proof that look like the header of the next entry; some may be inside payloads."""
    needle = proofs.incarnation.to_bytes(8, "little") + (walk.next_index + 1).to_bytes(8, "little")
    end = proofs.next_place(walk.end) + FRAME_HEADER_BYTES
    found = data.find(needle, walk.end + FRAME_HEADER_BYTES + FRAME_INCARNATION_AT, end)
    while found >= 0:
        yield found - FRAME_INCARNATION_AT
        found = data.find(needle, found + 1, end)


def indexes_of(walk: Scan) -> Sequence[int]:
    """The log index of each entry of a walk, parallel to its offsets."""
    return range(walk.next_index - len(walk.offsets), walk.next_index) if walk.indexes is None else walk.indexes
