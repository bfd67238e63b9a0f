"""Which engine the simulated nodes run on."""

from typing import Any

from jetraft.raft.engine import core
from jetraft.raft.engine.port import CoreSetup
from jetraft.raft.pysyncobj import engine as pysyncobj
from tests.simulator.copying import KINDS, CopySimulation
from tests.simulator.nodes.run import MODES as NODE_MODES
from tests.simulator.nodes.run import NodeSimulation
from tests.simulator.run import MODES, Result, Simulation

NODE = "node"  # the mode of whole nodes (nodes/run.py)
ENGINES: dict[str, Any] = {"core": core.create_engine, "pysyncobj": pysyncobj.create_engine}


def one_of_each(setup: CoreSetup, **options: Any) -> Any:
    """Every second node runs the core."""
    return ENGINES["core" if int(setup.node_id[-1]) % 2 else "pysyncobj"](setup, **options)


def play(seed: int, mode: str, engine: str = "core") -> Result:
    """Play a seed on one engine, or on `both`. Whole nodes and copies run the one that they are made with."""
    if mode == NODE:
        return NodeSimulation(seed).run()
    if mode in NODE_MODES:
        return NodeSimulation(seed, mode=mode).run()
    if mode in KINDS:
        return CopySimulation(seed, mode).run()
    return Simulation(seed, MODES[mode], engine=ENGINES.get(engine, one_of_each)).run()
