"""Which engine a node's groups run on, by the name that the configuration gives it."""

from typing import Final

from jetraft.raft.core import Core
from jetraft.raft.engine import EngineFactory

CORE: Final = "core"
PYSYNCOBJ: Final = "pysyncobj"


class EngineUnavailableError(Exception):
    """The engine that the configuration asks for cannot run here; the message says what is missing."""


def engine_factory(name: str) -> EngineFactory:
    """The engine of that name, checked to be able to run. Raises EngineUnavailableError."""
    if name == CORE:
        return Core
    if name != PYSYNCOBJ:
        raise EngineUnavailableError(f"there is no raft_engine {name}")
    try:
        from jetraft.raft import pysyncobj_engine  # noqa: PLC0415  (an optional dependency, loaded when it is asked for)
    except ImportError as error:
        raise EngineUnavailableError("raft_engine pysyncobj needs the package pysyncobj: jetraft[pysyncobj]") from error
    pysyncobj_engine.prepare_library()
    return pysyncobj_engine.create_engine
