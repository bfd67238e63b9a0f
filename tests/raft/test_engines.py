import sys

import pysyncobj.version
import pytest

from jetraft.raft.engine import core
from jetraft.raft.engine.port import EngineUnavailableError
from jetraft.raft.engines import engine_factory
from jetraft.raft.pysyncobj import engine as guarded


def test_engines_are_chosen_by_name() -> None:
    assert engine_factory("core") is core.create_engine
    assert engine_factory("pysyncobj") is guarded.create_engine


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(EngineUnavailableError, match="no raft_engine zab"):
        engine_factory("zab")


def test_another_version_of_the_library_is_refused_when_the_engine_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pysyncobj.version, "VERSION", "0.4.0")
    with pytest.raises(EngineUnavailableError, match=r"0\.4\.0 is installed"):
        engine_factory("pysyncobj")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pysyncobj"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "jetraft.raft.pysyncobj.engine")
    monkeypatch.delattr("jetraft.raft.pysyncobj.engine", raising=False)
    with pytest.raises(EngineUnavailableError, match=r"pip install 'jetraft\[pysyncobj\]'"):
        engine_factory("pysyncobj")
