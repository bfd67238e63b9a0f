import pytest

from tests.simulator.slow import GENERATORS

SEEDS = {"disks": 60, "herd": 8, "lost-words": 60}


@pytest.mark.parametrize("name", GENERATORS)
def test_elections_end_on_slow_disks_and_after_lost_words(name: str) -> None:
    found = {seed: GENERATORS[name](seed) for seed in range(SEEDS[name])}
    problems = {seed: problem for seed, problem in found.items() if problem is not None}
    assert not problems
