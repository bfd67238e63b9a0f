"""Ranges of log indexes: found by bisection, since a log that is compacted drops a thousand of them."""

import time

import hypothesis.strategies as st
from hypothesis import given

from jetraft.store.ledger.ledger_records import Born, GroupState
from jetraft.store.model.files import index_ranges

BLOCKS = 30_000
SPENT_S_MAX = 1.0  # it was 3 s of the event loop when each block was held against each range

ranges = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), max_size=8).map(
    lambda pairs: index_ranges.merged((first, first + more) for first, more in pairs)
)


@given(ranges, st.integers(1, 50), st.integers(0, 6))
def test_an_index_range_is_covered_when_each_index_of_it_is(found: index_ranges.Ranges, first: int, more: int) -> None:
    inside = {index for low, high in found for index in range(low, high + 1)}
    assert index_ranges.covers(found, first, first + more) == (set(range(first, first + more + 1)) <= inside)
    assert index_ranges.covers(found, first, first - 1)


@given(ranges, st.integers(0, 50))
def test_the_range_above_an_index_is_the_first_that_begins_there(found: index_ranges.Ranges, index: int) -> None:
    assert index_ranges.first_above(found, index) == min((low for low, _ in found if low > index), default=None)


def test_a_drop_does_not_hold_each_block_against_each_range() -> None:
    births = tuple(Born(number + 1, 1000 * number + 1, 1, 0) for number in range(BLOCKS))
    dropped = tuple((30_000 * number + 1, 30_000 * number + 1000) for number in range(BLOCKS // 30))
    begun_s = time.process_time()
    state = GroupState(births=births).with_dropped(dropped)
    assert time.process_time() - begun_s < SPENT_S_MAX
    assert len(state.births) == BLOCKS - len(dropped)
