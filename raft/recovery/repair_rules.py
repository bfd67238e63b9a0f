"""Which entries of another member are those that this member has lost, and what it means that no member has one. Pure.

An entry is known by its (index, term): two members that have the same at an index have the same before it, too (log
matching). A damaged entry has kept its index, and its term where the neighbours, the next block's head or the ledger
tell it (store/blocks/terms.py). So an offered entry is *compared*, and counts when it must be the lost one:

- its (index, term) is that of the lost one, or both members have the same entry behind the damage;
- the lost one was applied here, by this log's checkpoint, and the offered one is committed: there is only one such;
- nothing sound follows the damage here, both have the same entry before it, and the offered one is committed, or of the
  term that this member has promised. The entry that this member had in its place is the same, or was never committed:
  the leader of that term would replace it.

An offered entry that differs, and is committed, proves that what this member had from there on never was committed. If
no member has an entry, the outcome is one of four: see `Loss`.

Where the end of a log is damaged and nothing tells how far it went, the others' logs must: see `electable`.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from jetraft.raft.recovery.repair_wire import Bounds, EndAnswer, RepairAnswer
from jetraft.store.frames._frame import parse_header
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState


class Terms(Protocol):
    """A damaged log's knowledge of its entries."""

    @property
    def last_index(self) -> int:
        """See GroupLog."""
        ...

    @property
    def hard_state(self) -> HardState:
        """See GroupLog."""
        ...

    def term_at(self, index: int) -> int | None:
        """See GroupLog."""
        ...

    def term_bounds(self, index: int) -> Bounds | None:
        """See GroupLog."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class RepairVerdict:
    """The proof in an answer: these frames are the lost ones; or what this member had was never committed."""

    frames: tuple[bytes, ...] = ()
    is_overruled: bool = False


class Loss(enum.Enum):
    """The fate of an entry that was not offered."""

    UNKNOWN = "who may have it has not said"
    BEHIND = "it was applied here, and is not needed: the log begins behind it"
    OVERTAKEN = "only a snapshot has what it did"
    UNCOMMITTED = "most members never had it: it was never acknowledged"
    LOST = "every member has said that it does not have it"


def electable(answers: Mapping[NodeId, EndAnswer], *, above_term: int) -> NodeId | None:
    """The member that those could elect, without the one that asks, who hear no leader up to `above_term` any more.

    It has every entry that was or will be committed in a term up to there, as any new leader has: also those that the
    one that asks has helped to commit and has lost. None: those that have answered cannot elect a leader.
    """
    able = {node: answer for node, answer in answers.items() if answer.voters and answer.term > above_term}
    if not able:
        return None
    best = max(able, key=lambda node: (able[node].end, node))
    voters = able[best].voters
    return best if 2 * len(able.keys() & set(voters)) > len(voters) else None


def judge(
    log: Terms, bounds: tuple[int, int], answer: RepairAnswer, *, covered_index: int, is_best: bool = False
) -> RepairVerdict:
    """The proof in an answer about the damaged entries first..last (`bounds`); `covered_index` is the checkpoint's.

    `is_best`: it is of the member whose log is to stand for the lost end of this one (raft/recovery/repair_end.py).
    """
    first, last = bounds
    terms = [parse_header(frame).term for frame in answer.frames]
    own_before, own_behind = log.term_at(first - 1), log.term_at(last + 1)
    parting = _parting(log, bounds, terms, answer)
    if parting is not None and covered_index < parting <= answer.commit_index:
        return RepairVerdict(is_overruled=True)
    same = min(len(terms), min(covered_index, answer.commit_index) - first + 1)
    if own_behind is not None and own_behind == answer.term_behind:
        same = len(terms)
    for number, term in enumerate(terms):
        if log.term_bounds(first + number) == (term, term):
            same = max(same, number + 1)
    if parting is None and last == log.last_index and own_before is not None and own_before == answer.term_before:
        same = max(same, min(len(terms), answer.commit_index - first + 1), _of_leader(terms, log.hard_state.term))
        same = len(terms) if is_best else same
    if parting is not None:
        same = min(same, parting - first)
    return RepairVerdict(frames=answer.frames[: max(same, 0)])


def _parting(log: Terms, bounds: tuple[int, int], terms: Sequence[int], answer: RepairAnswer) -> int | None:
    """The first index at which the two members cannot have the same entry; None when nothing tells them apart."""
    first, last = bounds
    own_before, own_behind = log.term_at(first - 1), log.term_at(last + 1)
    if None not in {own_before, answer.term_before} and own_before != answer.term_before:
        return first - 1
    for index, term in enumerate(terms, first):
        known = log.term_bounds(index)
        if known is not None and not known[0] <= term <= known[1]:
            return index
    if None not in {own_behind, answer.term_behind} and own_behind != answer.term_behind:
        return last + 1
    return None


def _of_leader(terms: Sequence[int], promised_term: int) -> int:
    """How many of the entries the leader of a term has sent, or had before them."""
    return max((number for number, term in enumerate(terms, 1) if term == promised_term), default=0)


def loss_of(index: int, denials: Collection[RepairAnswer], *, others: int, covered_index: int) -> Loss:
    """The verdict when these of the `others` do not have an entry; the rest has not answered."""
    is_complete, is_covered = len(denials) == others, index <= covered_index
    if any(answer.is_thinned for answer in denials):
        return Loss.OVERTAKEN if is_complete else Loss.UNKNOWN
    if any(index < answer.first_index for answer in denials):
        return Loss.BEHIND if is_covered else Loss.OVERTAKEN
    if is_covered:
        return Loss.BEHIND if is_complete else Loss.UNKNOWN
    without = sum(answer.is_voter and index > answer.last_index for answer in denials)
    if 2 * without > others + 1:
        return Loss.UNCOMMITTED
    return Loss.LOST if is_complete else Loss.UNKNOWN


def term_of_lost(log: Terms, index: int, denials: Collection[RepairAnswer]) -> int | None:
    """The term of an entry that is permanently lost; None while no member can say it.

    All members that have lost it come to the same: what one knows of it, the others hear. Where none knows it, a
    later entry must name it, so that no election depends on it: then it is the lowest that it can have had. A member
    that does not know the entry before either may have lost another entry, or know better of this one: what contradicts
    it is not decided until it knows.
    """
    own, before = log.term_bounds(index), log.term_at(index - 1)
    if own is None or before is None:
        return None
    known = [answer.term_bounds for answer in denials if answer.is_damaged and answer.term_before == before]
    low = max([own[0], *(bounds[0] for bounds in known if bounds is not None)])
    high = min([own[1], *(bounds[1] for bounds in known if bounds is not None)])
    if own[0] == own[1] or low > high:
        low, high = own
    has_later = any(log.term_at(later) is not None for later in range(index + 1, log.last_index + 1))
    unsure = [answer.term_bounds for answer in denials if answer.is_damaged and answer.term_before is None]
    is_contradicted = any(bounds is not None and not bounds[0] <= low <= bounds[1] for bounds in unsure)
    if own[0] != own[1] and is_contradicted:
        return None
    return low if low == high or has_later else None
