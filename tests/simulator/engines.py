"""Which engine the simulated nodes run on."""

import functools
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from jetraft.raft import group
from tests.simulator import host
from tests.simulator.run import Result, Simulation


def use_engine(patch: pytest.MonkeyPatch, factory: Callable[..., Any]) -> None:
    """Let every group of this test be built with `factory`."""
    if "engine" in attrs.fields_dict(group.GroupSetting):
        patch.setattr(host, "GroupSetting", functools.partial(group.GroupSetting, engine=factory))
    else:
        patch.setattr(group, "Core", factory)


def play(simulation: Simulation, *engines: type) -> Result:
    """Play a seed, and make sure that it was played on these engines."""
    result = simulation.run()
    used = {type(node.group.core) for node in simulation.hosts.values()}
    if used != set(engines):
        raise TypeError(f"played on {used}")
    return result
