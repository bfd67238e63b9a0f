"""Which sequences are lost, when others are removed meanwhile: against a set of numbers."""

import hypothesis.strategies as st
from hypothesis import given

from jetraft.store.stream.lost_messages import LostMessages, missing_runs

SEQS = st.sets(st.integers(1, 40))


def runs_of(seqs: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


def seqs_of(runs: list[tuple[int, int]]) -> set[int]:
    return {seq for low, high in runs for seq in range(low, high + 1)}


@given(SEQS, SEQS)
def test_what_was_not_removed_on_purpose_is_missing(gone: set[int], dead: set[int]) -> None:
    assert seqs_of(missing_runs(runs_of(gone), runs_of(dead))) == gone - dead


REMOVALS = st.lists(st.tuples(st.sampled_from(["purge", "limit", "one"]), st.integers(1, 41)))


@given(seqs=SEQS, removals=REMOVALS, drops_oldest=st.booleans())
def test_what_is_removed_is_lost_no_longer(
    *, seqs: set[int], removals: list[tuple[str, int]], drops_oldest: bool
) -> None:
    """A purge says so; a limit moves the first sequence; one by one tells of each, and moves it too."""
    lost, first_seq = LostMessages(1), 1
    lost.drops_oldest = drops_oldest
    lost.note(runs_of(seqs), first_seq)
    for kind, seq in removals:
        if kind == "purge":
            lost.forget_below(seq, first_seq)
            seqs = {one for one in seqs if one >= seq}
        elif kind == "limit" and drops_oldest and seq > first_seq:
            first_seq = seq
            seqs = {one for one in seqs if one >= seq}
        elif kind == "one":
            first_seq = max(first_seq, seq)
            lost.removed([seq], first_seq)
            seqs = seqs if drops_oldest else seqs - {seq}
        assert seqs_of(lost.noted(first_seq)) == seqs
    assert bool(lost) == bool(seqs)
    lost.entries_at_end = 1
    assert lost
