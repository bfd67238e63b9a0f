"""A seed tells the same story whether turns and logs run compiled or in Python: history, counts, entries and state."""

from typing import Any

import pytest

from jetraft.raft.turns import Turns
from jetraft.store.log.tail import LogTail
from tests.raft import plain_turn
from tests.simulator.run import MODES, Simulation
from tests.store.log import plain_growth

SEEDS = {"base": 2, "chaos": 3, "one": 2, "snap": 3, "member": 2, "damage": 2}


def told(mode: str, seed: int) -> dict[str, Any]:
    """All that a run leaves."""
    simulation = Simulation(seed, MODES[mode])
    result = simulation.run()
    assert result.problem is None
    found: dict[str, Any] = {"history": result.history, "counts": result.counts}
    for name, host in simulation.hosts.items():
        replica = host.replica
        if replica is not None:
            log = replica.group.log
            found[f"{name} entries"] = [entry for _, entry in log.frames(log.first_index, log.last_index)]
            found[f"{name} reached"] = log.token(), log.durable_token, log.durable_index, log.hard_state
            found[f"{name} group"] = replica.group.statistics()
            found[f"{name} unsaved"] = replica.group.unsaved()
            found[f"{name} state"] = replica.machine.snapshot()
    return found


@pytest.mark.parametrize(("mode", "seed"), [(mode, seed) for mode, count in SEEDS.items() for seed in range(count)])
def test_a_seed_tells_the_same_story_on_both_ways(mode: str, seed: int) -> None:
    compiled = told(mode, seed)
    ways = Turns.learn, Turns.advance, LogTail.append
    with plain_turn.plainly(), plain_growth.plainly():
        assert not set(ways) & {Turns.learn, Turns.advance, LogTail.append}
        plain = told(mode, seed)
    assert plain.keys() == compiled.keys()
    for name, what in compiled.items():
        assert plain[name] == what, name
