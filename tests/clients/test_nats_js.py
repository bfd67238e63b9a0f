"""The @nats-io clients under Node.js: the scripts in node/ print TAP, every line of it is a claim."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.server import Server

HERE = Path(__file__).parent / "node"
SCRIPTS = ("core.mjs", "jetstream.mjs", "kv.mjs")
RESULT = re.compile(r"^(not )?ok \d+ - (.*)$")
pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("npm") is None, reason="Node.js is not installed"),
]


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder with the client packages of package-lock.json installed; they may be out of reach from here."""
    installed = HERE / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (HERE / "package-lock.json").stat().st_mtime:
        words = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(words, cwd=HERE, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"NO JAVASCRIPT CLIENT WAS RUN: {' '.join(words)} failed: {done.stderr.strip()[-500:]}")
        installed.touch()
    return HERE


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_claim_of_the_script_holds(packages: Path, servers: Sequence[Server], script: str) -> None:
    environment = {**os.environ, "NATS_URLS": ",".join(server.url for server in servers)}
    outcome = subprocess.run(
        ["node", script], cwd=packages, capture_output=True, text=True, timeout=800, check=False, env=environment
    )
    lines = outcome.stdout.splitlines()
    assert lines, outcome.stderr
    planned = int(lines[0].removeprefix("1.."))
    results = [match for match in map(RESULT.match, lines) if match]
    failed = [match.group(2) for match in results if match.group(1)]
    assert not failed, "\n".join(failed)
    assert (len(results), outcome.returncode) == (planned, 0), outcome.stdout + outcome.stderr
