import pytest

from tests.harness.forms import examples
from tests.simulator.slow import GENERATORS

SEEDS = {"disks": examples(15, long=60), "herd": examples(3, long=8), "lost-words": examples(15, long=60)}


@pytest.mark.long_form
@pytest.mark.parametrize("name", GENERATORS)
def test_elections_end_on_slow_disks_and_after_lost_words(name: str) -> None:
    found = {seed: GENERATORS[name](seed) for seed in range(SEEDS[name])}
    problems = {seed: problem for seed, problem in found.items() if problem is not None}
    assert not problems
