"""A loop that could not finish looks again, ever more seldom, and names what is stuck."""

from itertools import pairwise

from jetraft.cluster.calls.unfinished import FIRST_PAUSE_NS, PAUSE_MAX_NS, SHOWN_MAX, TELL_NS, Unfinished
from jetraft.store.model.clock import NS_PER_S


def test_the_pauses_grow_to_a_bound_while_nothing_moves() -> None:
    loop = Unfinished("work")
    pauses = [loop.looked({"S": "no server"}, 0)[0] for _ in range(12)]
    assert pauses[0] == FIRST_PAUSE_NS
    assert all(later in (2 * before, PAUSE_MAX_NS) for before, later in pairwise(pauses))
    assert pauses[-1] == PAUSE_MAX_NS


def test_progress_makes_the_pauses_short_again() -> None:
    loop = Unfinished("work")
    for _ in range(12):
        loop.looked({"S": "x", "T": "x"}, 0)
    assert loop.looked({"T": "x"}, 0)[0] == FIRST_PAUSE_NS


def test_what_is_stuck_is_named_when_it_becomes_so_and_again_after_a_while() -> None:
    loop = Unfinished("work")
    assert loop.looked({"S": "no server"}, 0)[1] == "work: S: no server"
    assert loop.looked({"S": "no server"}, NS_PER_S)[1] is None
    assert loop.looked({"S": "no server", "T": "slow"}, 2 * NS_PER_S)[1] == "work: S: no server; T: slow"
    assert loop.looked({"S": "no server", "T": "slow"}, 2 * NS_PER_S + TELL_NS)[1] is not None
    assert loop.looked({}, 3 * NS_PER_S + TELL_NS) == (PAUSE_MAX_NS, "work: complete")
    assert loop.looked({}, 4 * NS_PER_S + TELL_NS) == (PAUSE_MAX_NS, None)


def test_a_line_names_some_and_counts_the_others() -> None:
    line = Unfinished("work").looked({f"S{number}": "x" for number in range(SHOWN_MAX + 7)}, 0)[1]
    assert line is not None
    assert line.endswith("; and 7 more")
