"""A few seeds of the directed generator for repair; `make sim` does not play it, the mutations do (mutations.py)."""

import pytest

from tests.simulator.mending import Mending


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_whatever_is_damaged_members_end_with_the_same_entries(first: int) -> None:
    for seed in range(first, first + 50):
        assert Mending(seed).run() is None, seed
