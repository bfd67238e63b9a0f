"""A few seeds of the directed generator for repair; `make sim` does not play it, the mutations do (mutations.py)."""

import pytest

from tests.harness.forms import examples
from tests.simulator.mending import Mending

SEEDS = examples(100, long=200)


@pytest.mark.long_form
@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_whatever_is_damaged_members_end_with_the_same_entries(first: int) -> None:
    for seed in range(first, first + 50):
        assert Mending(seed).run() is None, seed


@pytest.mark.long_form
@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_whoever_has_lost_the_end_of_its_log_helps_to_elect_nobody_without_it(first: int) -> None:
    for seed in range(first, first + 50):
        assert Mending(seed, loses_end=True).run() is None, seed
