"""The second engine on the seeds of the first, and both in one group."""

import pytest

from jetraft.raft.engine.core import Core
from jetraft.raft.engine.member import Member
from jetraft.raft.pysyncobj.guard import Guard
from tests.harness.forms import examples
from tests.simulator.engines import ENGINES, one_of_each
from tests.simulator.run import MODES, Simulation
from tests.simulator.series import modes_of, play_some

pytestmark = pytest.mark.campaign

SEEDS_PER_MODE = examples(4, long=100)
SEEDS_OF_BOTH = examples(4, long=25)


@pytest.mark.long_form
@pytest.mark.parametrize("mode", modes_of("pysyncobj"))
def test_pysyncobj_behind_the_guard_breaks_no_promise(mode: str) -> None:
    series = play_some(mode, "pysyncobj", range(SEEDS_PER_MODE))
    assert series.problems == {}
    assert series.counts["ok"] > SEEDS_PER_MODE, "a run in which nothing is acknowledged shows nothing"


@pytest.mark.long_form
@pytest.mark.parametrize("mode", ["five", "snap"])
def test_members_with_either_engine_form_one_group(mode: str) -> None:
    assert play_some(mode, "both", range(SEEDS_OF_BOTH)).problems == {}


@pytest.mark.parametrize(
    ("engine", "kinds"), [(ENGINES["core"], {Core}), (ENGINES["pysyncobj"], {Guard}), (one_of_each, {Core, Guard})]
)
def test_the_nodes_run_on_the_engine_that_was_asked_for(engine: object, kinds: set[type]) -> None:
    simulation = Simulation(1, MODES["base"], engine=engine)  # type: ignore[arg-type]  # a table of factories
    simulation.run()
    engines = [host.replica.group.core for host in simulation.hosts.values() if host.replica is not None]
    assert {type(engine.decider) for engine in engines if isinstance(engine, Member)} == kinds
