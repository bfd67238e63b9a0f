"""Which engine a node's groups run on, by the name that the configuration gives it."""

from typing import Final

from jetraft.raft.engine.core import create_engine
from jetraft.raft.engine.port import EngineFactory, EngineUnavailableError
from jetraft.store.model.extras import PYSYNCOBJ as PYSYNCOBJ_EXTRA

CORE: Final = "core"
PYSYNCOBJ: Final = "pysyncobj"


def engine_factory(name: str) -> EngineFactory:
    """The engine of that name, checked to be able to run. Raises EngineUnavailableError."""
    if name == CORE:
        return create_engine
    if name != PYSYNCOBJ:
        raise EngineUnavailableError(f"there is no raft_engine {name}")
    try:
        from jetraft.raft.pysyncobj import engine  # noqa: PLC0415  (an optional dependency, loaded when it is asked for)
    except ImportError as error:
        raise EngineUnavailableError(f"raft_engine pysyncobj: {PYSYNCOBJ_EXTRA.advice}") from error
    engine.prepare_library()
    return engine.create_engine
