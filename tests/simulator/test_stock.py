"""Can the simulator see? A library with known holes must not get through it."""

import pytest

from tests.simulator.stock import KINDS, StockSimulation

SEEDS = 12


@pytest.mark.parametrize(("kind", "at_least"), [("power", 5), ("snapshots", 4)])
def test_stock_pysyncobj_is_seen_to_break_its_promises(kind: str, at_least: int) -> None:
    problems = [StockSimulation(seed, KINDS[kind]).run().problem for seed in range(SEEDS)]
    violations = [problem for problem in problems if problem is not None and problem.startswith("violation")]
    assert len(violations) >= at_least, problems


def test_a_stock_seed_tells_the_same_story_twice() -> None:
    first, second = (StockSimulation(5, KINDS["power"]).run() for _ in range(2))
    assert (first.problem, first.history, first.counts) == (second.problem, second.history, second.counts)
