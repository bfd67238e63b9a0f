"""A part of a sorted list in steps: the same rows as a sort, and no step that is long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.monitor.steps import Steps
from jetraft.api.monitor.ui.sorting import MERGED_AT_ONCE, SORTED_AT_ONCE, sorted_part


class Keys:
    """Counts how often the key of a row is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, row: tuple[int, int]) -> int:
        self.asked += 1
        return row[0]


def run(steps: Steps[list[tuple[int, int]]], keys: Keys) -> tuple[list[tuple[int, int]], list[int]]:
    """What steps return, and for how many keys each has asked."""
    asked: list[int] = []
    while True:
        before = keys.asked
        try:
            next(steps)
        except StopIteration as end:
            return end.value, [*asked, keys.asked - before]
        asked.append(keys.asked - before)


@given(
    rows=st.lists(st.tuples(st.integers(0, 50), st.integers()), max_size=2 * SORTED_AT_ONCE),
    offset=st.integers(0, 50),
    limit=st.integers(0, 200),
    descending=st.booleans(),
)
def test_a_part_of_a_sort_is_that_part_of_the_whole(
    *, rows: list[tuple[int, int]], offset: int, limit: int, descending: bool
) -> None:
    keys = Keys()
    found, _ = run(sorted_part(rows, keys, offset=offset, limit=limit, descending=descending), keys)
    assert found == sorted(rows, key=lambda row: row[0], reverse=descending)[offset : offset + limit]


@pytest.mark.parametrize("offset", [0, 9_900])
def test_ten_thousand_rows_are_sorted_in_short_steps(offset: int) -> None:
    keys = Keys()
    rows = [(-number, number) for number in range(10_000)]
    found, asked = run(sorted_part(rows, keys, offset=offset, limit=100, descending=False), keys)
    assert found == [(number - 9_999, 9_999 - number) for number in range(offset, offset + 100)]
    assert max(asked) <= SORTED_AT_ONCE + 2 * MERGED_AT_ONCE
