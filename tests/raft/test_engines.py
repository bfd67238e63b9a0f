import sys

import pysyncobj.version
import pytest

from jetraft.raft.core import Core
from jetraft.raft.engines import EngineUnavailableError, engine_factory
from jetraft.raft.pysyncobj_engine import create_engine


def test_engines_are_chosen_by_name() -> None:
    assert engine_factory("core") is Core
    assert engine_factory("pysyncobj") is create_engine


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
    monkeypatch.delitem(sys.modules, "jetraft.raft.pysyncobj_engine")
    monkeypatch.delattr("jetraft.raft.pysyncobj_engine", raising=False)
    with pytest.raises(EngineUnavailableError, match=r"needs the package pysyncobj: jetraft\[pysyncobj\]"):
        engine_factory("pysyncobj")
