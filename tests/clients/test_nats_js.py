"""The @nats-io clients under Node.js: the scripts in node/ print TAP, every line of it is a claim."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness.ports import HOST
from tests.harness.server import Kind, Server

HERE = Path(__file__).parent / "node"
SCRIPTS = ("core.mjs", "jetstream.mjs", "kv.mjs")
WEBSOCKET = ("--experimental-websocket", "--no-warnings")  # versions before 22 have one only so
OUT_OF_REACH = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|E40[134])\b")  # of npm
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
        if done.returncode and OUT_OF_REACH.search(done.stderr):
            pytest.skip(f"NO JAVASCRIPT CLIENT WAS RUN: {' '.join(words)} failed: {done.stderr.strip()[-500:]}")
        assert done.returncode == 0, done.stderr
        installed.touch()
    return HERE


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_claim_of_the_script_holds(packages: Path, servers: Sequence[Server], script: str) -> None:
    check_claims(packages, [script], [server.url for server in servers])


@pytest.fixture(scope="module")
def websocket(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server listens for WebSocket; the client has to have a WebSocket of its own."""
    probe = subprocess.run(
        ["node", *WEBSOCKET, "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"],
        check=False,
        capture_output=True,
    )
    if probe.returncode:
        pytest.skip("this Node.js has no WebSocket")
    config = f'websocket {{ listen: "{HOST}:-1", no_tls: true, compression: true }}'
    with Server(kind, directory=tmp_path_factory.mktemp("websocket"), config=config) as server:
        yield server.running.wait_for_line("Listening for websocket clients on").rpartition(" ")[2]


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_claim_holds_over_websocket(packages: Path, websocket: str, script: str) -> None:
    check_claims(packages, [*WEBSOCKET, script], [websocket])


def check_claims(packages: Path, words: Sequence[str], urls: Sequence[str]) -> None:
    """Run a script and read what it prints."""
    environment = {**os.environ, "NATS_URLS": ",".join(urls)}
    outcome = subprocess.run(
        ["node", *words], cwd=packages, capture_output=True, text=True, timeout=800, check=False, env=environment
    )
    lines = outcome.stdout.splitlines()
    assert lines, outcome.stderr
    planned = int(lines[0].removeprefix("1.."))
    results = [match for match in map(RESULT.match, lines) if match]
    failed = [match.group(2) for match in results if match.group(1)]
    assert not failed, "\n".join(failed)
    assert (len(results), outcome.returncode) == (planned, 0), outcome.stdout + outcome.stderr
