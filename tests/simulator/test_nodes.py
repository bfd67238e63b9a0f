"""Whole nodes in virtual time: no promise is broken, and a seed is played the same way wherever it is played."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.harness.forms import examples
from tests.simulator.nodes.known import known_reason
from tests.simulator.nodes.run import MODES, NodeSimulation, Plan
from tests.simulator.series import MET

pytestmark = pytest.mark.campaign

SHORT_SEEDS = examples(4, long=40)
MOVING_SEEDS = examples(2, long=20)
MODE_SEEDS = examples(2, long=20)
SEED_AGAIN = 4
TRACE = "from tests.simulator.nodes.run import NodeSimulation; print(NodeSimulation({}).run().trace)"


@pytest.mark.long_form
@pytest.mark.parametrize("seed", range(SHORT_SEEDS))
def test_no_promise_is_broken_and_the_nodes_settle(seed: int) -> None:
    simulation = NodeSimulation(seed)
    result = simulation.run()
    known = None if result.problem is None else known_reason(result.problem, simulation.plan.kinds)
    assert result.problem is None or known is not None, "\n".join([result.problem, *result.history])
    assert result.counts["ok"] > 0


def test_nodes_without_faults_settle_with_all_that_was_acknowledged() -> None:
    result = NodeSimulation(1, Plan(kinds=("step-down",))).run()
    assert result.problem is None, "\n".join(result.history)


@pytest.mark.long_form
@pytest.mark.parametrize("seed", range(MOVING_SEEDS))
def test_streams_that_move_and_are_called_back_keep_all_that_was_acknowledged(seed: int) -> None:
    plan = Plan(kinds=("move-and-cancel", "kill", "partition"), machines=4, checkpoint_entries=12)
    result = NodeSimulation(seed, plan).run()
    assert result.problem is None, "\n".join([result.problem, *result.history])
    assert result.counts["ok"] > 0


@pytest.mark.long_form
@pytest.mark.parametrize("seed", range(MOVING_SEEDS))
def test_a_stream_that_its_first_message_makes_keeps_all_that_was_acknowledged(seed: int) -> None:
    plan = Plan(kinds=("kill", "partition", "step-down"), checkpoint_entries=12, has_template=True)
    simulation = NodeSimulation(seed, plan)
    result = simulation.run()
    assert result.problem is None, "\n".join([result.problem, *result.history])
    assert simulation.clients.streams["T_0"].acknowledged


def test_a_seed_is_played_the_same_way_in_another_process() -> None:
    """Also where strings hash otherwise: no order of a set reaches anything."""
    here = NodeSimulation(SEED_AGAIN).run()
    again = NodeSimulation(SEED_AGAIN).run()
    assert (again.trace, again.history, again.counts) == (here.trace, here.history, here.counts)
    elsewhere = subprocess.run(
        [sys.executable, "-c", TRACE.format(SEED_AGAIN)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout.strip() == here.trace


@pytest.mark.long_form
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_whole_nodes_keeps_all_promises(mode: str) -> None:
    counts = Counter[str]()
    for seed in range(MODE_SEEDS):
        simulation = NodeSimulation(seed, mode=mode)
        result = simulation.run()
        known = None if result.problem is None else known_reason(result.problem, simulation.plan.kinds)
        assert result.problem is None or known is not None, "\n".join([result.problem, *result.history])
        counts.update(result.counts)
    missing = MET[mode] - {name for name, count in counts.items() if count}
    assert not missing
