"""Everything that is still sound in a block, and what is damaged between it.

A plain scan stops at the first frame that does not hold. Here the walk goes on behind the damage. What is in between is
a `Gap`: entries that were there and cannot be read. A block whose end cannot be proven ends at its last proof.

A payload can hold anything, also the likeness of frames and marks of the log that it lies in. So nothing is believed
because it was found by searching. The walk goes on

- where the damaged frame ends by what its own header says, its length or its checksum, if the walk from there comes to
  the next mark exactly, and with that mark's index;
- else at the next mark, which tells how many entries lie before it. No client knows the tag that it carries.

Blocks without a tag (store/format.py) are walked in the same way, but a mark must be confirmed by the next one: a
client that foresees places in the block may forge two.

Pure: bytes in, values out. Source of the idea: Protocol-Aware Recovery (FAST'18), which tells damage from a torn tail
by proofs kept apart from the entries; here these are the marks, the later frames and the later blocks.
"""

from array import array
from bisect import bisect_left
from typing import Final

import attrs

from jetraft.store._frame import Scan, parse_header, scan
from jetraft.store.block_proofs import NO_LIMIT, Proofs, likenesses, own_ends
from jetraft.store.format import (
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    MARK_BYTES,
    Stop,
)

_LIFT: Final = FRAME_BYTES_MAX + (32 << 20)  # a frame before damage is not read as longer than that
_OFFSET_MAX: Final = (1 << 32) - 1


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
    tag: int = 0,
) -> Survey:
    """Walk a block to its last proven entry. `last_index` is that entry when later blocks prove it, else marks do."""
    known_end = last_index is not None
    limit = NO_LIMIT if last_index is None else last_index
    proofs = Proofs(data, offset, incarnation, tag, limit)
    parts: list[Scan] = []
    gaps: list[Gap] = []
    at = offset
    shift = lift = 0
    # Damage may have hit a skip: what follows is then known by offsets that nothing before it can reach.
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


def _resume(data: bytes, walk: Scan, proofs: Proofs) -> tuple[int, int] | None:
    """(offset, index) where the log goes on behind damage.

    First where the damaged frame itself says that it ends: then it alone is lost. That counts only if the walk from
    there is confirmed. The damaged frames that come before a proof may confirm each other, but not when the entry
    after this one is elsewhere too, with a walk that needs no such help: then a length is not what was written.
    Else at the next mark or skip. A frame is never believed because it was found.
    """
    start, index = walk.end, walk.next_index
    for end in own_ends(data, walk, proofs):
        if proofs.confirm(end, index + 1, walk.term):
            return end, index + 1
    has_rival = any(proofs.confirm(place, index + 1, walk.term) for place in likenesses(data, walk, proofs))
    for end in () if has_rival else own_ends(data, walk, proofs):
        if proofs.confirm(end, index + 1, walk.term, over_damage=True):
            return end, index + 1
    for place, proven_index in proofs.after(start):
        # Frames are at least a header long: more entries than fit in between cannot lie there.
        fits = proofs.is_compacted or (proven_index - index) * FRAME_HEADER_BYTES <= place - start
        if not index <= proven_index <= proofs.limit + 1 or not fits:
            continue
        is_last = place == proofs.last_mark
        if proofs.tag or is_last or proofs.confirm(place + MARK_BYTES, proven_index, walk.term):
            return place, proven_index
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


def is_in(gaps: tuple[Gap, ...], index: int) -> bool:
    """Whether an entry is in one of these gaps, which ascend."""
    place = bisect_left(gaps, index, key=lambda gap: gap.last_index)
    return place < len(gaps) and gaps[place].first_index <= index


def frame_kind(data: bytes, offset: int) -> int:
    """The kind of the frame at a place of a walk."""
    return parse_header(data, offset).kind
