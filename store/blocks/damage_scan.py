"""Finds the sound frames of a damaged block, and the gaps between them.

A plain scan stops at the first damaged frame. This one continues after the damage; the entries in between, which exist
but cannot be read, are a `Gap`. If the end of a block cannot be proved, the block ends at its last proof.

A payload may contain copies of frames and marks of its own log, so bytes that are found by searching prove nothing
(decision 48). The scan continues

- at the end of the damaged frame according to its header (length or checksum), if the walk from there arrives exactly
  at the next mark, with the index of that mark;
- otherwise at the next mark, which states how many entries precede it. No client knows the tag in a mark.

In blocks without a tag (store/frames/format.py), a mark counts only if the next one confirms it: a client could forge
a single mark, and two only if it predicts places in the block.

Pure: bytes in, values out. Source: Protocol-Aware Recovery (FAST'18), which distinguishes damage from a torn tail by
proofs that are stored apart from the entries; here the marks, the later frames and the later blocks.
"""

from array import array
from bisect import bisect_left
from typing import Final

import attrs

from jetraft.store.blocks.proofs import NO_LIMIT, Proofs, header_candidates, indexes_of, stated_ends
from jetraft.store.frames._frame import Scan, parse_header, scan, verify
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, MARK_BYTES, Stop

_LIFT: Final = FRAME_BYTES_MAX + (32 << 20)  # more than the logical length of any frame before the damage
_OFFSET_MAX: Final = (1 << 32) - 1


@attrs.frozen(kw_only=True, slots=True)
class Gap:
    """Entries first_index..last_index, unreadable, in bytes start..end of the block. No entry if last < first."""

    first_index: int
    last_index: int
    start: int
    end: int

    @property
    def entries(self) -> int:
        """The number of unreadable entries."""
        return self.last_index - self.first_index + 1


@attrs.frozen(kw_only=True, slots=True)
class DamageScan:
    """The content of a block. `walk` includes the entries of the gaps, with places at which there is no sound frame."""

    walk: Scan
    gaps: tuple[Gap, ...]


def scan_damage(  # noqa: PLR0913  (the arguments of a scan, and where the proofs end)
    data: bytes,
    *,
    offset: int,
    incarnation: int,
    next_index: int,
    term: int,
    last_index: int | None = None,
    tag: int = 0,
) -> DamageScan:
    """Walk a block to its last proved entry: `last_index` if later blocks prove it, otherwise that of the last mark."""
    known_end = last_index is not None
    limit = NO_LIMIT if last_index is None else last_index
    proofs = Proofs(data, offset, incarnation, tag, limit)
    parts: list[Scan] = []
    gaps: list[Gap] = []
    at = offset
    shift = lift = 0
    # The damage may cover a skip, so the logical offsets after it are unknown: use ones that no earlier frame can have.
    gap_lift = _LIFT if proofs.is_compacted else 0
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
        proven_to = len(data) if known_end else proofs.last_mark
        if walk.stop == Stop.VERSION or next_index > limit or walk.end >= proven_to:
            break
        found = _resume(data, walk, proofs)
        if found is None:
            break
        at, index = found
        gap = Gap(first_index=next_index, last_index=index - 1, start=walk.end, end=at)
        gaps.append(gap)
        parts.append(_placeholder(gap, walk))
        next_index = index
        lift, shift = lift + gap_lift, walk.shift
        if gap_lift:
            # The lowest that it can be, so that the frames up to the next skip end before the offset in it: frames in
            # the gap are at least as long for readers as they are there, and skips have no length.
            shift += gap_lift - (gap.end - gap.start)
    last = parts[-1]
    if known_end and last.next_index <= limit and last.stop != Stop.VERSION:
        gap = Gap(first_index=last.next_index, last_index=limit, start=last.end, end=max(len(data), last.end))
        gaps.append(gap)
        parts.append(_placeholder(gap, last))
    return DamageScan(walk=_joined(parts), gaps=tuple(gaps))


def as_compacted(walk: Scan, gaps: tuple[Gap, ...]) -> Scan:
    """The walk of a block that began with a skip, as that of a compacted one, though no other skip is in it."""
    begins_with_skip = bool(gaps) and gaps[0].start == BLOCK_HEAD_BYTES and gaps[0].end == BLOCK_HEAD_BYTES + MARK_BYTES
    if walk.indexes is not None or not begins_with_skip:
        return walk
    return walk._replace(indexes=array("Q", indexes_of(walk)), logical_offsets=walk.offsets[:])


def with_lost_end(walk: Scan, gaps: tuple[Gap, ...], end: int) -> DamageScan:
    """The walk with one unreadable entry added, because the file is known to have had entries up to byte `end`."""
    gap = Gap(first_index=walk.next_index, last_index=walk.next_index, start=walk.end, end=end)
    return DamageScan(walk=_joined([walk, _placeholder(gap, walk)]), gaps=(*gaps, gap))


def _resume(data: bytes, walk: Scan, proofs: Proofs) -> tuple[int, int] | None:
    """(offset, index) where the log continues after damage.

    First choice is the end of the damaged frame that its header states, if the walk from there is confirmed; then only
    this frame is lost. Several damaged frames before a proof may confirm each other, unless a confirmed walk finds the
    next entry at another place: then a stated length is itself damaged. Otherwise it is the next mark or skip.

    Before that: damage to a skip costs no entry, but for those that the skip says were dropped.
    """
    start, index = walk.end, walk.next_index
    behind = _behind_skip(data, walk, proofs)
    if behind is not None:
        return behind
    for end in stated_ends(data, walk, proofs):
        if proofs.confirm(end, index + 1, walk.term):
            return end, index + 1
    has_rival = any(proofs.confirm(place, index + 1, walk.term) for place in header_candidates(data, walk, proofs))
    for end in () if has_rival else stated_ends(data, walk, proofs):
        if proofs.confirm(end, index + 1, walk.term, over_damage=True):
            return end, index + 1
    for place, proven_index in proofs.after(start):
        # A frame is at least as long as its header: a mark that claims more entries than fit in between is wrong.
        fits = proofs.is_compacted or (proven_index - index) * FRAME_HEADER_BYTES <= place - start
        if not index <= proven_index <= proofs.limit + 1 or not fits:
            continue
        is_last = place == proofs.last_mark
        if proofs.tag or is_last or proofs.confirm(place + MARK_BYTES, proven_index, walk.term):
            return place, proven_index
    return None


def _behind_skip(data: bytes, walk: Scan, proofs: Proofs) -> tuple[int, int] | None:
    """(offset, index) of the frame behind a damaged skip, or behind the damaged mark of a block that began empty."""
    place, index = walk.end + MARK_BYTES, walk.next_index
    if place + FRAME_HEADER_BYTES > len(data) or not verify(data, place):
        return None
    found = parse_header(data, place).log_index
    may_skip = proofs.is_compacted or walk.end == BLOCK_HEAD_BYTES
    is_possible = found == index or (may_skip and index < found <= proofs.limit)
    return (place, found) if is_possible and proofs.confirm(place, found, walk.term) else None


def _placeholder(gap: Gap, before: Scan) -> Scan:
    """The entries of a gap as part of a walk, with distinct places inside it and the term of the entry before it."""
    # In a compacted block there can be more entries than bytes: then the last places are equal.
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
        logical_offsets=None,
    )


def _joined(parts: list[Scan]) -> Scan:
    """The concatenation of consecutive walks."""
    offsets: array[int] = array("I")
    indexes: array[int] = array("Q")
    logical_offsets: array[int] = array("I")
    is_compacted = any(part.indexes is not None for part in parts)
    terms: list[tuple[int, int]] = []
    for part in parts:
        offsets.extend(part.offsets)
        indexes.extend(part.indexes or range(part.next_index - len(part.offsets), part.next_index))
        if is_compacted:
            logical_offsets.extend(
                part.logical_offsets or (min(place + part.shift, _OFFSET_MAX) for place in part.offsets)
            )
        terms.extend(run for run in part.terms if not terms or run[1] != terms[-1][1])
    return parts[-1]._replace(
        offsets=offsets,
        terms=terms,
        last_seq=max(part.last_seq for part in parts),
        damaged_marks=sum(part.damaged_marks for part in parts),
        indexes=indexes if is_compacted else None,
        logical_offsets=logical_offsets if is_compacted else None,
    )


def is_in(gaps: tuple[Gap, ...], index: int) -> bool:
    """Whether an entry is in one of these gaps, which are in ascending order."""
    place = bisect_left(gaps, index, key=lambda gap: gap.last_index)
    return place < len(gaps) and gaps[place].first_index <= index


def frame_kind(data: bytes, offset: int) -> int:
    """The kind of the frame at a place of a walk."""
    return parse_header(data, offset).kind
