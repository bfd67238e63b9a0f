"""After `python -m jetraft.api.cli.prepare` no start compiles anything, also where nothing may be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.server import environment

PATIENT_S = 5 * PATIENCE_S  # all modules are compiled, which is 10 s of a processor that others use too

# The server says what it compiles until it is ready, and ends.
SCRIPT = """
import os, sys
compiled = []
def note(event, arguments):
    name = str(arguments[1]) if event == "compile" else ""
    if name.endswith(".py") or (name.startswith("<attrs generated") and " attr." not in name):  # not attrs' own
        compiled.append(name)
sys.addaudithook(note)
sys.argv[0] = "jetraft"
import jetraft.__main__, jetraft.api.startup.collector as collector
real = collector.tune_collector
collector.tune_collector = lambda: (print(*compiled, "ready", sep="\\n", flush=True), os._exit(0))
jetraft.__main__.main()
"""


def run(cache: Path, *words: str) -> list[str]:
    """What it prints."""
    env = os.environ | environment("jetraft")
    env |= {"PYTHONPYCACHEPREFIX": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENT_S, check=True)
    return done.stdout.splitlines()


def compiled(cache: Path, store: Path) -> list[str]:
    *found, ready = run(cache, "-c", SCRIPT, "-a", HOST, "-p", "-1", "-js", "-sd", str(store))
    assert ready == "ready"
    return found


@pytest.mark.slow("compiles every module once, and those of one start again")
def test_a_start_after_it_compiles_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "bytecode"
    before = compiled(cache, tmp_path / "store")
    assert any(name.endswith("api/server.py") for name in before)
    assert any("attrs generated" in name for name in before)
    assert not cache.exists(), "the environment says that nothing is to be written"
    run(cache, "-m", "jetraft.api.cli.prepare")
    assert compiled(cache, tmp_path / "store") == []
