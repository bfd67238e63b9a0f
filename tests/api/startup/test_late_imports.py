"""What a server that is ready loads after that."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trio.testing import assert_no_checkpoints

from jetraft.api.startup.late_imports import OF_JETSTREAM, load, load_the_rest, pieces
from tests.harness.patience import PATIENCE_S
from tests.harness.server import ROOT

NAMES = ("jetraft_late", "jetraft_late.deep", "jetraft_late.top")


@pytest.fixture(name="package")
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`top` imports `deep`, and itself through it."""
    folder = tmp_path / "jetraft_late"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "deep.py").write_text("import math\nimport jetraft_late.top\n")
    (folder / "top.py").write_text(
        "import os.path\nfrom jetraft_late.deep import math\nimport jetraft_late.missing_name\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("jetraft.api.startup.late_imports.OWN", "jetraft_late")
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("package")
def test_what_a_module_imports_comes_before_it_and_once() -> None:
    assert list(pieces("jetraft_late.top", set())) == ["jetraft_late.deep", "jetraft_late.top"]


@pytest.mark.usefixtures("package")
def test_what_is_loaded_is_left_out() -> None:
    __import__("jetraft_late")
    sys.modules["jetraft_late.deep"] = sys
    assert list(pieces("jetraft_late.top", set())) == ["jetraft_late.top"]


async def test_what_is_loaded_already_is_not_waited_for() -> None:
    with assert_no_checkpoints():
        await load(("sys", "jetraft.api.startup.late_imports"))


ONE_BY_ONE = """
import importlib, sys
import jetraft.api.server, jetraft.api.jetstream.node
from jetraft.api.startup.late_imports import OF_JETSTREAM, OWN, pieces
seen, most = set(), 0
for name in OF_JETSTREAM:
    for piece in pieces(name, seen):
        before = {name for name in sys.modules if name.startswith(OWN)}
        importlib.import_module(piece)
        most = max(most, len({name for name in sys.modules if name.startswith(OWN)} - before))
print(most, len(seen))
"""


def test_one_step_loads_one_module_of_the_server() -> None:
    words = [sys.executable, "-c", ONE_BY_ONE]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    most, names = map(int, done.stdout.split())
    assert most <= 5, "and the packages that it is in, or that it imports as one name of another"
    assert names > len(OF_JETSTREAM)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        ImportError("a.so: cannot open shared object file: Too many open files"),
    ],
    ids=["source", "compiled"],
)
async def test_a_server_that_is_out_of_descriptors_loads_the_rest_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    outcomes: list[Exception | None] = [error, None]

    async def load_once(_names: object) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    monkeypatch.setattr("jetraft.api.startup.late_imports.load", load_once)
    monkeypatch.setattr("jetraft.api.startup.late_imports.tune_collector", lambda: None)
    loaded: list[bool] = []
    await load_the_rest(lambda: loaded.append(True))
    assert (loaded, outcomes) == ([True], [])


async def test_a_module_that_is_broken_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_names: object) -> None:
        raise ImportError("no such name")

    monkeypatch.setattr("jetraft.api.startup.late_imports.load", fail)
    with pytest.raises(ImportError):
        await load_the_rest(lambda: None)
