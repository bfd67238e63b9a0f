"""The `jetraft` command as its user meets it: real processes, what they print, and their exit status."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetraft.api.session import COMPATIBLE_VERSION
from jetraft.store.format import FORMAT_VERSION
from tests.harness.server import HOST, Server, command, environment


def start(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends, which it must: nothing here can start."""
    return subprocess.run(
        [*command("jetraft"), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment("jetraft")},
    )


def fatal_line(outcome: subprocess.CompletedProcess[str]) -> str:
    """The reason that a server gives for not starting: its last line, without a traceback, status 1."""
    assert outcome.returncode == 1, outcome.stderr
    assert "Traceback" not in outcome.stderr
    fatal = [line for line in outcome.stderr.splitlines() if "[FTL]" in line]
    assert fatal == outcome.stderr.splitlines()[-1:], outcome.stderr
    return fatal[0].partition("[FTL] ")[2]


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server((HOST, 0)) as listener:
        yield int(listener.getsockname()[1])


def test_a_client_port_in_use_is_one_line(taken_port: int) -> None:
    outcome = start("-a", HOST, "-p", taken_port)
    assert fatal_line(outcome) == f"listen tcp {HOST}:{taken_port}: bind: address already in use"


def test_a_monitoring_port_in_use_is_one_line(taken_port: int) -> None:
    outcome = start("-a", HOST, "-p", -1, "-m", taken_port)
    assert fatal_line(outcome) == f"listen tcp {HOST}:{taken_port}: bind: address already in use"


def test_a_cluster_port_in_use_is_one_line(taken_port: int) -> None:
    cluster = ("-n", "n1", "--cluster_name", "C", "--cluster", f"nats://{HOST}:{taken_port}")
    line = fatal_line(start("-a", HOST, "-p", -1, *cluster))
    assert line.startswith(f"Error listening on router port: {HOST}:{taken_port}")
    assert "address already in use" in line.lower()


@pytest.fixture
def used_store(tmp_path: Path) -> Path:
    """A store directory in which server n1 has run."""
    with Server("jetraft", directory=tmp_path, name="n1") as server:
        return server.store_dir


def start_on(store: Path, *, name: str) -> subprocess.CompletedProcess[str]:
    """Try to start a server of that name over the store."""
    return start("-a", HOST, "-p", -1, "-js", "-sd", store, "-n", name)


def test_the_store_of_another_node_is_refused(used_store: Path) -> None:
    before = sorted(path.read_bytes() for path in used_store.rglob("*") if path.is_file())
    line = fatal_line(start_on(used_store, name="n2"))
    assert line.startswith(f"Can't start JetStream: {used_store}")
    assert 'belongs to server "n1"' in line
    assert sorted(path.read_bytes() for path in used_store.rglob("*") if path.is_file()) == before


def test_a_store_of_a_newer_format_is_refused(used_store: Path) -> None:
    path = used_store / "jetstream" / "node.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT_VERSION + 1}))
    line = fatal_line(start_on(used_store, name="n1"))
    assert f"store format {FORMAT_VERSION + 1} is newer than this server's {FORMAT_VERSION}" in line


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, name="n1") as server:
        assert "another server process uses this store" in fatal_line(start_on(server.store_dir, name="n1"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no_such_flag"], "flag provided but not defined: -no_such_flag"),
        (["-c", "/does/not/exist.conf"], "error opening config file"),
    ],
)
def test_a_wrong_word_is_one_line_on_the_error_stream(words: list[str], said: str) -> None:
    outcome = start(*words)
    assert outcome.returncode == 1
    assert outcome.stdout == ""
    assert len(outcome.stderr.splitlines()) == 1
    assert said in outcome.stderr


def test_help_lists_the_flags_that_start_a_cluster() -> None:
    outcome = start("--help")
    assert outcome.returncode == 0
    for flag in ("--addr", "--port", "--jetstream", "--store_dir", "--http_port", "--cluster_name", "--routes"):
        assert flag in outcome.stdout


def test_the_start_lines_are_those_that_scripts_wait_for(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        lines = server.running.lines
        assert any(f"(compatible with nats-server {COMPATIBLE_VERSION})" in line for line in lines)
        assert any(f"Listening for client connections on {HOST}:{server.client_port}" in line for line in lines)
        assert "Server is ready" in lines[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_server_cleanly(tmp_path: Path, number: int) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        server.running.signal(number)
        assert server.running.wait() == 0
        assert "Server Exiting.." in server.running.lines[-1]
