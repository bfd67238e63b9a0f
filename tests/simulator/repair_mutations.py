"""The rules of repair (39 and 40 of docs/raft.md), switched off one at a time: for tests/simulator/mutations.py."""

from collections.abc import Collection
from typing import Any

import attrs
import pytest

from jetraft.raft.group import Group
from jetraft.raft.recovery import repair_inquiry, repair_rules, repair_serving, repair_wire
from jetraft.raft.recovery.repair_inquiry import Inquiry
from jetraft.raft.recovery.repair_rules import Loss, RepairVerdict
from jetraft.raft.recovery.repair_wire import RepairAnswer, RepairRequest
from jetraft.store.blocks.terms import TermRuns
from jetraft.store.log.damage import Damage
from jetraft.store.log.log_repair import LogRepair
from tests.simulator import mending

Patch = pytest.MonkeyPatch


def terms_are_guessed(patch: Patch) -> None:
    """A damaged entry has the term of the one before it."""
    patch.setattr(TermRuns, "doubt", lambda *_: None)
    patch.setattr(TermRuns, "correct", lambda *_: None)


def any_frames_are_taken(patch: Patch) -> None:
    """Whatever a member has at the index of a lost entry is put there."""
    patch.setattr(repair_inquiry, "judge", lambda _log, _bounds, answer, **_: RepairVerdict(frames=answer.frames))


def uncommitted_ends_are_taken(patch: Patch) -> None:
    """Nothing sound follows: what another one has there will do."""
    patch.setattr(repair_rules, "_of_leader", lambda terms, _promised: len(terms))


def other_futures_do_not_matter(patch: Patch) -> None:
    """What is committed elsewhere is put below whatever follows here."""

    def judge(log: Any, bounds: tuple[int, int], answer: RepairAnswer, **known: Any) -> RepairVerdict:
        found = real(log, bounds, answer, **known)
        if found.is_overruled or not found.frames:
            return RepairVerdict(frames=answer.frames[: max(0, answer.commit_index - bounds[0] + 1)])
        return found

    real = repair_rules.judge
    patch.setattr(repair_inquiry, "judge", judge)


def silence_is_a_no(patch: Patch) -> None:
    async def chain(inquiry: Inquiry, node: Any, first: int, last: int) -> RepairAnswer:
        answer = await real(inquiry, node, first, last)
        return answer or attrs.evolve(NOTHING, term=0 if inquiry._fence is None else inquiry._fence.term)

    real = Inquiry._chain
    patch.setattr(Inquiry, "_chain", chain)


NOTHING = RepairAnswer(
    frames=(),
    term_before=None,
    term_behind=None,
    commit_index=0,
    first_index=1,
    last_index=0,
    is_thinned=False,
    is_damaged=False,
    term_bounds=None,
    term=0,
    is_voter=False,
)


def trimmed_is_lost(patch: Patch) -> None:
    """An entry that others have trimmed is replaced like one that nobody has."""

    def unpack(data: bytes, request: RepairRequest) -> RepairAnswer:
        return attrs.evolve(real(data, request), first_index=1)

    real = repair_wire.unpack_answer
    patch.setattr(repair_inquiry, "unpack_answer", unpack)


def one_no_is_enough(patch: Patch) -> None:
    """A loss is decided by each member from the first answers that it gets, without a fence."""

    def decide(inquiry: Inquiry) -> None:
        inquiry._found.lost = sorted(inquiry._found.denied)

    def loss_of(index: int, denials: Collection[RepairAnswer], *, others: int, covered_index: int) -> Loss:
        found = real(index, denials, others=others, covered_index=covered_index)
        return Loss.LOST if found is Loss.UNCOMMITTED and len(denials) == others else found

    real = repair_rules.loss_of
    patch.setattr(Inquiry, "decide", decide)
    patch.setattr(repair_inquiry, "loss_of", loss_of)


def promises_are_not_kept(patch: Patch) -> None:
    """A member says no under a fence, and hears the old leader all the same."""
    for owner, name in ((Group, "promise"), (mending.Running, "promise"), (repair_serving, "_promise")):
        patch.setattr(owner, name, lambda _owner, term: max(term, 1 << 20))


def boundaries_are_guessed(patch: Patch) -> None:
    """A log begins right behind a lost entry, with the lowest term that it can have had."""

    def give_up(damage: Damage, ranges: Any, checkpoint: Any, *rest: Any) -> None:
        def known_from(_damage: Damage, index: int) -> int:
            bounds = damage._blocks.terms.bounds(index)
            if bounds is not None:
                damage._blocks.terms.correct(index, bounds[0])
            return index

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Damage, "_known_from", known_from)
            real(damage, ranges, checkpoint, *rest)

    real = Damage.give_up
    patch.setattr(Damage, "give_up", give_up)


def a_noted_end_is_the_end(patch: Patch) -> None:
    """A log went as far as the ledger has noted, whatever is damaged."""
    patch.setattr(LogRepair, "is_end_unknown", property(lambda _: False))
