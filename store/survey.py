"""Everything that is still sound in a block, and what is damaged between it.

A plain scan stops at the first frame that does not hold. Here the walk goes on behind the damage: at the next sound
frame of the same log, or at the next mark, which tells how many entries lie before it. What is in between is a `Gap`:
entries that were there and cannot be read. A block whose end cannot be proven ends at its last proof.

Pure: bytes in, values out. Source of the idea: Protocol-Aware Recovery (FAST'18), which tells damage from a torn tail
by proofs kept apart from the entries; here these are the marks, the later frames and the later blocks.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import attrs

from jetraft.store._frame import Scan, find_mark, parse_header, scan, verify
from jetraft.store.format import (
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    FRAME_VERSION,
    MARK_BYTES,
    Stop,
)

_NO_LIMIT: Final = (1 << 64) - 1
_LIFT: Final = FRAME_BYTES_MAX + (32 << 20)  # a frame before damage is not read as longer than that
_OFFSET_MAX: Final = (1 << 32) - 1
_INCARNATION_AT: Final = 16  # in a frame, see store/format.py
_NEXT_INDEX_AT: Final = 24  # in a mark


@attrs.frozen(kw_only=True, slots=True)
class Gap:
    """Entries first_index..last_index, unreadable, in bytes start..end of the block. No entry when last < first."""

    first_index: int
    last_index: int
    start: int
    end: int

    @property
    def entries(self) -> int:
        """How many entries are lost in it."""
        return self.last_index - self.first_index + 1


@attrs.frozen(kw_only=True, slots=True)
class Survey:
    """What a block holds. `walk` covers the gaps: their entries have places, which hold no frame."""

    walk: Scan
    gaps: tuple[Gap, ...]


def survey(  # noqa: PLR0913  (what a scan needs, and where the proofs end)
    data: bytes,
    *,
    offset: int,
    incarnation: int,
    next_index: int,
    term: int,
    last_index: int | None = None,
) -> Survey:
    """Walk a block to its last proven entry. `last_index` is that entry when later blocks prove it, else marks do."""
    known_end = last_index is not None
    limit = _NO_LIMIT if last_index is None else last_index
    marks = [] if known_end else _marks(data, offset, incarnation)
    parts: list[Scan] = []
    gaps: list[Gap] = []
    at = offset
    shift = lift = 0
    # Damage may have hit a skip: what follows is then known by offsets that nothing before it can reach.
    gap_lift = _LIFT if find_mark(data, offset=0, incarnation=incarnation, skip=True) >= 0 else 0
    while True:
        walk = scan(
            data,
            offset=at,
            incarnation=incarnation,
            next_index=next_index,
            term=term,
            last_index=limit,
            shift=shift,
            lift=lift,
        )
        parts.append(walk)
        next_index, term = walk.next_index, walk.term
        proven_to = len(data) if known_end else (marks[-1] if marks else 0)
        if walk.stop == Stop.VERSION or next_index > limit or walk.end >= proven_to:
            break
        found = _resume(data, walk, incarnation, limit, proven_to)
        if found is None:
            break
        at, index = found
        gap = Gap(first_index=next_index, last_index=index - 1, start=walk.end, end=at)
        gaps.append(gap)
        parts.append(_placeholder(gap, walk))
        next_index = index
        lift, shift = lift + gap_lift, walk.shift + gap_lift
    last = parts[-1]
    if known_end and last.next_index <= limit and last.stop != Stop.VERSION:
        gap = Gap(first_index=last.next_index, last_index=limit, start=last.end, end=max(len(data), last.end))
        gaps.append(gap)
        parts.append(_placeholder(gap, last))
    return Survey(walk=_joined(parts), gaps=tuple(gaps))


def with_lost_end(walk: Scan, gaps: tuple[Gap, ...], end: int) -> Survey:
    """The same walk when its file is known to have gone on up to `end`: one entry at least is lost behind it."""
    gap = Gap(first_index=walk.next_index, last_index=walk.next_index, start=walk.end, end=end)
    return Survey(walk=_joined([walk, _placeholder(gap, walk)]), gaps=(*gaps, gap))


def _marks(data: bytes, offset: int, incarnation: int) -> list[int]:
    """Where the sound marks of a block are, ascending."""
    found = []
    at = find_mark(data, offset=offset, incarnation=incarnation)
    while at >= 0:
        found.append(at)
        at = find_mark(data, offset=at + MARK_BYTES, incarnation=incarnation)
    return found


def _resume(data: bytes, walk: Scan, incarnation: int, limit: int, proven_to: int) -> tuple[int, int] | None:
    """(offset, index) where the log goes on behind damage: the nearest sound frame or mark that fits.

    Where the damaged frame itself says that it ends is looked at first: its header is rarely what was hit, and a frame
    that a client has hidden in a payload is then never looked at.
    """
    stated_end = walk.end + int.from_bytes(data[walk.end : walk.end + 4], "little")
    if walk.end < stated_end <= proven_to:
        if find_mark(data[: stated_end + MARK_BYTES], offset=stated_end, incarnation=incarnation) == stated_end:
            index = _index_of_mark(data, stated_end)
            if index == walk.next_index + 1:
                return stated_end, index
        elif _frame_at(data, stated_end, incarnation) == walk.next_index + 1 or _is_skip(data, stated_end, incarnation):
            return stated_end, walk.next_index + 1
    frame = _next_frame(data, walk, incarnation, limit, proven_to)
    mark = find_mark(data, offset=walk.end + 1, incarnation=incarnation)
    while mark >= 0 and (frame is None or mark < frame[0]):
        index = _index_of_mark(data, mark)
        if walk.next_index <= index <= limit + 1:
            return mark, index
        mark = find_mark(data, offset=mark + MARK_BYTES, incarnation=incarnation)
    return frame


def _is_skip(data: bytes, start: int, incarnation: int) -> bool:
    return find_mark(data[: start + MARK_BYTES], offset=start, incarnation=incarnation, skip=True) == start


def _index_of_mark(data: bytes, mark: int) -> int:
    return int.from_bytes(data[mark + _NEXT_INDEX_AT : mark + MARK_BYTES], "little")


def _frame_at(data: bytes, start: int, incarnation: int) -> int | None:
    """The index of the sound frame of this log that starts here; None when none does."""
    if not verify(data, start):
        return None
    header = parse_header(data, start)
    return header.log_index if (header.incarnation, header.version) == (incarnation, FRAME_VERSION) else None


def _next_frame(data: bytes, walk: Scan, incarnation: int, limit: int, proven_to: int) -> tuple[int, int] | None:
    """The next place where a sound frame of this log starts, found by the incarnation that each of them carries."""
    needle = incarnation.to_bytes(8, "little")
    is_compacted = find_mark(data, offset=0, incarnation=incarnation, skip=True) >= 0
    at = data.find(needle, walk.end + 1 + _INCARNATION_AT)
    while 0 <= at < proven_to + _INCARNATION_AT:
        start = at - _INCARNATION_AT
        index = int.from_bytes(data[at + 8 : at + 16], "little")
        # Frames are at least a header long: more entries than fit in between cannot lie there.
        fits = is_compacted or (index - walk.next_index) * FRAME_HEADER_BYTES <= start - walk.end
        if walk.next_index <= index <= limit and fits and _frame_at(data, start, incarnation) is not None:
            return start, index
        at = data.find(needle, at + 1)
    return None


def _placeholder(gap: Gap, before: Scan) -> Scan:
    """The entries of a gap as a piece of a walk: distinct places inside it, the term that was in force."""
    # In a block that was compacted there can be more entries than bytes: the last places are then the same.
    places = array("I", (min(gap.start + number, max(gap.end - 1, gap.start)) for number in range(gap.entries)))
    return before._replace(
        offsets=places,
        terms=[],
        next_index=gap.last_index + 1,
        last_seq=0,
        end=gap.end,
        stop=Stop.END,
        damaged_marks=0,
        indexes=None,
        known_as=None,
    )


def _joined(parts: list[Scan]) -> Scan:
    """One walk from consecutive ones."""
    offsets: array[int] = array("I")
    indexes: array[int] = array("Q")
    known_as: array[int] = array("I")
    is_compacted = any(part.indexes is not None for part in parts)
    terms: list[tuple[int, int]] = []
    for part in parts:
        offsets.extend(part.offsets)
        indexes.extend(part.indexes or range(part.next_index - len(part.offsets), part.next_index))
        if is_compacted:
            known_as.extend(part.known_as or (min(place + part.shift, _OFFSET_MAX) for place in part.offsets))
        terms.extend(run for run in part.terms if not terms or run[1] != terms[-1][1])
    return parts[-1]._replace(
        offsets=offsets,
        terms=terms,
        last_seq=max(part.last_seq for part in parts),
        damaged_marks=sum(part.damaged_marks for part in parts),
        indexes=indexes if is_compacted else None,
        known_as=known_as if is_compacted else None,
    )


def indexes_of(walk: Scan) -> Sequence[int]:
    """The log indexes of the entries of a walk, one for each of its offsets."""
    return range(walk.next_index - len(walk.offsets), walk.next_index) if walk.indexes is None else walk.indexes


def is_in(gaps: tuple[Gap, ...], index: int) -> bool:
    """Whether an entry is in one of these gaps, which ascend."""
    place = bisect_left(gaps, index, key=lambda gap: gap.last_index)
    return place < len(gaps) and gaps[place].first_index <= index


def frame_kind(data: bytes, offset: int) -> int:
    """The kind of the frame at a place of a walk."""
    return parse_header(data, offset).kind
