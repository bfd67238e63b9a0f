"""What members say of a lost entry, compared (raft/recovery/repair_rules.py)."""

import attrs

from jetraft.raft.recovery.repair_rules import term_of_lost
from jetraft.raft.recovery.repair_wire import Bounds, RepairAnswer
from jetraft.store.port import HardState

LOST = 6


@attrs.frozen
class Log:
    """A log that has lost one entry; the one before is of term 3, the one behind of term 5."""

    bounds: Bounds = (3, 5)
    last_index: int = LOST + 1
    hard_state: HardState = attrs.field(factory=lambda: HardState(term=5, vote=None))

    def term_at(self, index: int) -> int | None:
        known = {LOST - 1: 3, LOST + 1: 5}
        low, high = self.bounds
        return low if index == LOST and low == high else known.get(index)

    def term_bounds(self, index: int) -> Bounds | None:
        term = self.term_at(index)
        return self.bounds if term is None else (term, term)


def denial(*, before: int | None, bounds: Bounds) -> RepairAnswer:
    """Of a member that has lost the entry, too."""
    return RepairAnswer(
        frames=(),
        term_before=before,
        term_behind=5,
        commit_index=0,
        first_index=1,
        last_index=LOST + 1,
        is_thinned=False,
        is_damaged=True,
        term_bounds=bounds,
        term=6,
        is_voter=False,
    )


def test_the_lowest_term_counts_that_all_agree_on() -> None:
    assert term_of_lost(Log(), LOST, [denial(before=3, bounds=(3, 4))]) == 3
    assert term_of_lost(Log(), LOST, [denial(before=3, bounds=(4, 5))]) == 4


def test_a_member_without_the_entry_before_is_waited_for_where_it_contradicts() -> None:
    """It knew the term, and was not heard: its own log and the others' had two entries at one index."""
    assert term_of_lost(Log(), LOST, [denial(before=None, bounds=(4, 4))]) is None
    assert term_of_lost(Log(), LOST, [denial(before=None, bounds=(4, 4)), denial(before=3, bounds=(4, 4))]) == 4
    assert term_of_lost(Log(), LOST, [denial(before=None, bounds=(2, 4))]) == 3, "it does not contradict"


def test_who_knows_the_term_waits_for_nobody() -> None:
    assert term_of_lost(Log(bounds=(3, 3)), LOST, [denial(before=None, bounds=(4, 4))]) == 3
