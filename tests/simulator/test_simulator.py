import pytest

from tests.simulator.run import MODES, Simulation

SEEDS_PER_MODE = 40


@pytest.mark.parametrize("mode", list(MODES))
def test_no_promise_is_broken_under_faults_and_the_cluster_heals(mode: str) -> None:
    problems = {}
    for seed in range(SEEDS_PER_MODE):
        result = Simulation(seed, MODES[mode]).run()
        if result.problem is not None:
            problems[seed] = result.problem
    assert problems == {}


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = (Simulation(5, MODES["chaos"]).run() for _ in range(2))
    assert (first.history, first.counts) == (second.history, second.counts)
