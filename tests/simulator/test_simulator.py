"""No promise is broken on many seeds, and every kind of trouble is really met. Files are spread over the workers."""

import pytest

from tests.simulator.run import MODES, Simulation
from tests.simulator.series import play_some

SEEDS_PER_MODE = 200
MET = {  # what no series of a mode may lack, or it shows less than it says
    "base": {"leaders", "ok", "confirmed", "reads", "digests", "transfers", "clock jumps", "tried again"},
    "chaos": {"late", "held back"},
    "five": {"snapshots", "late", "held back"},
    "one": {"leaders", "ok", "confirmed", "reads", "digests", "clock jumps"},
    "snap": {"snapshots", "pieces"},
    "member": {"member changes", "reshapes", "snapshots"},
    "forget": {"lost disks", "lost hard states", "admissions", "bits flipped", "repairs"},
    "forget-five": {"lost disks", "lost hard states", "admissions", "bits flipped", "repairs"},
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", list(MODES))
def test_no_promise_is_broken_under_faults_and_the_cluster_heals(mode: str) -> None:
    series = play_some(mode, "core", range(SEEDS_PER_MODE))
    assert series.problems == {}
    assert series.counts.keys() >= MET[mode]


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = (Simulation(5, MODES["forget-five"]).run() for _ in range(2))
    assert (first.history, first.counts) == (second.history, second.counts)
