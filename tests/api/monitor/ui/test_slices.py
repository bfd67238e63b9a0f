"""Work in slices: the same rows as a sort, and no slice that holds the loop for long."""

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.monitor.ui.slices import SLICE_NS, SORTED_AT_ONCE, Slices
from jetraft.store.model.clock import ManualClock


@given(
    rows=st.lists(st.tuples(st.integers(0, 50), st.integers()), max_size=2 * SORTED_AT_ONCE),
    offset=st.integers(0, 50),
    limit=st.integers(0, 200),
    descending=st.booleans(),
)
def test_a_part_of_a_sort_is_that_part_of_the_whole(
    rows: list[tuple[int, int]], *, offset: int, limit: int, descending: bool
) -> None:
    def key(row: tuple[int, int]) -> int:
        return row[0]

    async def part() -> list[Any]:
        slices = Slices(ManualClock())
        return await slices.sorted_part(rows, key, offset=offset, limit=limit, descending=descending)

    assert trio.run(part) == sorted(rows, key=key, reverse=descending)[offset : offset + limit]


@pytest.mark.parametrize("offset", [0, 9_900])
async def test_ten_thousand_rows_are_sorted_in_slices(offset: int) -> None:
    """A row costs 2 us here: what is done between two looks at the clock comes on top of a slice."""
    clock = ManualClock()
    others = 0

    def key(row: int) -> int:
        clock.now_ns += 2_000
        return -row

    async def count_turns() -> None:
        nonlocal others
        while True:
            others += 1
            await trio.lowlevel.checkpoint()

    slices = Slices(clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        found = await slices.sorted_part(range(10_000), key, offset=offset, limit=100, descending=False)
        nursery.cancel_scope.cancel()
    assert found == [9_999 - offset - at for at in range(100)]
    assert slices.longest_ns <= SLICE_NS + 3 * SORTED_AT_ONCE * 2_000
    assert others >= 10_000 * 2_000 // (2 * slices.longest_ns)
