"""No promise is broken on many seeds, and every kind of trouble is really met: groups whose members stay what they are.

The other modes are in test_members.py, as files are what is spread over the workers.
"""

import pytest

from tests.simulator.run import MODES, Simulation
from tests.simulator.series import MET, play_some, seeds_of

pytestmark = pytest.mark.campaign


@pytest.mark.long_form
@pytest.mark.parametrize("mode", ["base", "chaos", "one", "snap", "rot", "erase"])
def test_no_promise_is_broken_under_faults_and_the_cluster_heals(mode: str) -> None:
    series = play_some(mode, "core", seeds_of(mode))
    assert series.problems == {}
    assert series.counts.keys() >= MET[mode]


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = (Simulation(5, MODES["forget-five"]).run() for _ in range(2))
    assert (first.history, first.counts) == (second.history, second.counts)
