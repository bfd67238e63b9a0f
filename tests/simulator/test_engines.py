"""The second engine on the seeds of the first, and both in one group."""

from typing import Any

import pytest

from jetraft.raft.core import Core
from jetraft.raft.engine import CoreSetup
from jetraft.raft.pysyncobj_engine import create_engine
from jetraft.raft.pysyncobj_guard import Guard
from tests.simulator.engines import play, use_engine
from tests.simulator.run import MODES, Simulation

SEEDS_PER_MODE = 15
# A member that has lost its memory comes back by two changes of membership, which PySyncObj's engine refuses.
FIXED_MEMBERSHIP = [name for name, mode in MODES.items() if not mode.changes_members and not name.startswith("forget")]


def one_of_each(setup: CoreSetup, **options: Any) -> object:
    """Every second node runs the core."""
    build: Any = Core if int(setup.node_id[-1]) % 2 else create_engine
    return build(setup, **options)


def problems_of(mode: str, *engines: type) -> dict[int, str]:
    results = [play(Simulation(seed, MODES[mode]), *engines) for seed in range(SEEDS_PER_MODE)]
    assert all(result.counts["ok"] > 0 for result in results), "a run in which nothing is acknowledged shows nothing"
    return {result.seed: result.problem for result in results if result.problem is not None}


@pytest.mark.parametrize("mode", FIXED_MEMBERSHIP)
def test_pysyncobj_behind_the_guard_breaks_no_promise(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(monkeypatch, create_engine)
    assert problems_of(mode, Guard) == {}


@pytest.mark.parametrize("mode", ["five", "chaos-snap"])
def test_members_with_either_engine_form_one_group(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(monkeypatch, one_of_each)
    assert problems_of(mode, Core, Guard) == {}
