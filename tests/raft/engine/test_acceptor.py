import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.engine.acceptor import AppendRefused, LogDivergedError, Verified, accept
from jetraft.raft.engine.messages import Append
from jetraft.store.log.mem_log import MemLog
from tests.raft.rig import entries


def log_of(*terms: int) -> MemLog:
    log = MemLog()
    if terms:
        log.append(entries(*terms))
    return log


def append(prev_index: int, prev_term: int, *terms: int) -> Append:
    return Append(
        term=9,
        prev_index=prev_index,
        prev_term=prev_term,
        commit_index=0,
        entries=entries(*terms, first=prev_index + 1),
    )


def terms_of(log: MemLog) -> list[int | None]:
    return [log.term_at(index) for index in range(1, log.last_index + 1)]


def test_new_entries_are_appended() -> None:
    log = log_of(1, 1)
    assert accept(log, 0, append(2, 1, 1, 2)) == Verified(index=4, cut_index=None, appended_from=0)
    assert terms_of(log) == [1, 1, 1, 2]


def test_a_late_duplicate_cuts_nothing() -> None:
    """Rule 9; a duplicate that cut acknowledged entries is hole 2 of the stock library."""
    log = log_of(1, 1, 1, 1, 1)
    assert accept(log, 5, append(1, 1, 1, 1)) == Verified(index=3, cut_index=None, appended_from=None)
    assert log.last_index == 5


def test_only_what_was_compared_is_verified() -> None:
    """Rule 10: entries of the own tail that the message did not mention may differ from the leader's."""
    assert accept(log_of(1, 1, 1, 1), 0, append(2, 1)) == Verified(index=2, cut_index=None, appended_from=None)


def test_the_tail_is_cut_at_the_first_conflict() -> None:
    log = log_of(1, 1, 2, 2)
    assert accept(log, 2, append(1, 1, 1, 3)) == Verified(index=3, cut_index=3, appended_from=1)
    assert terms_of(log) == [1, 1, 3]


def test_a_conflict_with_a_committed_entry_halts() -> None:
    with pytest.raises(LogDivergedError):
        accept(log_of(1, 1, 2), 3, append(1, 1, 1, 3))


def test_a_gap_is_refused_with_the_end_of_the_log() -> None:
    assert accept(log_of(1, 1), 0, append(5, 2, 2)) == AppendRefused(hint_index=3)


def test_the_hint_jumps_over_the_whole_conflicting_term() -> None:
    """Rule 14."""
    assert accept(log_of(1, 1, 2, 2, 2, 2), 0, append(6, 5)) == AppendRefused(hint_index=3)


def test_the_hint_never_goes_below_the_commit_index() -> None:
    assert accept(log_of(1, 1, 2, 2, 2, 2), 4, append(6, 5)) == AppendRefused(hint_index=5)


def test_an_empty_log_accepts_from_the_start() -> None:
    log = log_of()
    assert accept(log, 0, append(0, 0, 1, 1)) == Verified(index=2, cut_index=None, appended_from=0)


def tail_of(terms: list[int]) -> st.SearchStrategy[list[int]]:
    """What may follow a shared prefix: by log matching, two logs never have the same term after they parted."""
    return st.lists(st.sampled_from(terms), max_size=8).map(sorted)


@given(st.lists(st.integers(1, 3), max_size=8).map(sorted), tail_of([4, 6, 8]), tail_of([5, 7, 9]), st.data())
def test_repeated_hints_lead_every_diverged_log_to_the_leaders(
    shared: list[int], own_tail: list[int], leaders_tail: list[int], data: st.DataObject
) -> None:
    """Whatever the two logs are, the exchange ends, with equal logs, in at most one step per term and one."""
    own, leaders = shared + own_tail, shared + leaders_tail
    log = log_of(*own)
    commit_index = data.draw(st.integers(0, len(shared)))
    next_index = len(leaders) + 1
    for _ in range(len(set(own)) + 2):
        prev_index = next_index - 1
        prev_term = leaders[prev_index - 1] if prev_index else 0
        outcome = accept(log, commit_index, append(prev_index, prev_term, *leaders[prev_index:]))
        if isinstance(outcome, Verified):
            break
        assert outcome.hint_index < next_index, "a hint always leads back"
        next_index = outcome.hint_index
    else:
        pytest.fail("no match was found")
    assert outcome.index == len(leaders)
    assert terms_of(log)[: len(leaders)] == leaders


def test_what_the_boundary_covers_is_skipped() -> None:
    """Rule 11."""
    log = MemLog(block_bytes=60)
    log.append(entries(1, 1, 1, 1))
    log.submit()
    log.save_checkpoint(3, 1, b"", b"")
    log.submit()
    log.trim(2**63, 3)
    assert log.boundary[0] > 0
    boundary = log.boundary[0]
    assert accept(log, 3, append(0, 0, *[1] * 6)) == Verified(index=6, cut_index=None, appended_from=4)
    assert accept(log, 3, append(0, 0, 1)) == Verified(index=boundary, cut_index=None, appended_from=None)
    assert log.last_index == 6


def test_entries_are_taken_as_they_came() -> None:
    log, message = log_of(), append(0, 0, 1)
    accept(log, 0, message)
    assert log.entries(1, 1, 1 << 20)[0].frame == message.entries[0].frame
