"""The `jetraft` command as its user meets it: real processes, what they print, and their exit status."""

import fcntl
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames.format import FORMAT_VERSION
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.ledger.ledger_records import value
from jetraft.store.ledger.node_dir import IDENTITY_VALUE
from jetraft.store.model.versioning import SERVER_VERSION
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Server, command, environment


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


def is_locked(store_dir: Path) -> bool:
    """Whether a process uses the store."""
    (path,) = store_dir.rglob("lock")
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def fatal_line(outcome: subprocess.CompletedProcess[str]) -> str:
    """The reason that a server gives for not starting: its last line, without a traceback, status 1."""
    assert outcome.returncode == 1, outcome.stderr
    assert "Traceback" not in outcome.stderr
    fatal = [line for line in outcome.stderr.splitlines() if "[FTL]" in line]
    assert fatal == outcome.stderr.splitlines()[-1:], outcome.stderr
    return fatal[0].partition("[FTL] ")[2]


def in_use(port: int) -> str:
    return f"listen tcp {HOST}:{port}: bind: address already in use"


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server((HOST, 0)) as listener:
        yield int(listener.getsockname()[1])


def test_a_client_port_in_use_is_one_line(taken_port: int) -> None:
    outcome = start("-a", HOST, "-p", taken_port)
    assert fatal_line(outcome) == f'Error listening on port: {HOST}:{taken_port}, "{in_use(taken_port)}"'


def test_a_monitoring_port_in_use_is_one_line(taken_port: int) -> None:
    outcome = start("-a", HOST, "-p", -1, "-m", taken_port)
    assert fatal_line(outcome) == f"Can't start monitoring: can't listen to the monitor port: {in_use(taken_port)}"


def test_a_cluster_port_in_use_is_one_line(taken_port: int) -> None:
    cluster = ("-n", "n1", "--cluster_name", "C", "--cluster", f"nats://{HOST}:{taken_port}")
    line = fatal_line(start("-a", HOST, "-p", -1, *cluster))
    assert line == f"Error listening on router port: {taken_port} - {in_use(taken_port)}"
    assert "address already in use" in line.lower()


@pytest.fixture
def used_store(tmp_path: Path) -> Path:
    """A store directory in which server n1 has run."""
    with Server("jetraft", directory=tmp_path, name="n1") as server:
        return server.store_dir


def start_on(store: Path, *, name: str) -> subprocess.CompletedProcess[str]:
    """Try to start a server of that name over the store."""
    return start("-a", HOST, "-p", -1, "-js", "-sd", store, "-n", name)


def set_value(store: Path, name: str, content: bytes) -> None:
    """Replace a value of the node in the ledger of a server that does not run."""
    writer = Writer()
    ledger = Ledger.open(LocalDisk(writer), store / "jetstream")
    ledger.commit_now(value(name, content))
    ledger.close()
    writer.stop()


def test_the_store_of_another_node_is_refused(used_store: Path) -> None:
    before = sorted(path.read_bytes() for path in used_store.rglob("*") if path.is_file())
    line = fatal_line(start_on(used_store, name="n2"))
    assert line.startswith(f"Can't start JetStream: {used_store}")
    assert 'belongs to server "n1"' in line
    assert sorted(path.read_bytes() for path in used_store.rglob("*") if path.is_file()) == before


def test_a_store_of_a_newer_format_is_refused(used_store: Path) -> None:
    writer = Writer(1)
    ledger = Ledger.open(LocalDisk(writer), used_store / "jetstream")
    identity = json.loads(ledger.values[IDENTITY_VALUE])
    ledger.commit_now(value(IDENTITY_VALUE, json.dumps({**identity, "format": FORMAT_VERSION + 1}).encode()))
    ledger.close()
    writer.stop()
    line = fatal_line(start_on(used_store, name="n1"))
    assert f"store format {FORMAT_VERSION + 1} is newer than this server's {FORMAT_VERSION}" in line


def test_a_founding_record_that_does_not_decode_is_one_line(used_store: Path) -> None:
    set_value(used_store, "meta.record", b"{")
    line = fatal_line(start_on(used_store, name="n1"))
    assert line.startswith("Can't start JetStream: meta group record is damaged")
    assert "restore the store from a backup" in line


def test_an_error_of_the_disk_on_the_way_to_the_meta_group_is_one_line(used_store: Path) -> None:
    (log,) = used_store.glob("jetstream/groups/meta.*/log-*")
    shutil.rmtree(log)
    log.write_bytes(b"in the way of a directory")
    line = fatal_line(start_on(used_store, name="n1"))
    assert line.startswith("Can't start JetStream: [Errno ")
    assert str(log) in line


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, name="n1") as server:
        assert "another server process uses this store" in fatal_line(start_on(server.store_dir, name="n1"))


def test_a_host_that_nobody_knows_is_one_line() -> None:
    assert fatal_line(start("-a", "host.invalid", "-p", -1)) == (
        'Error listening on port: host.invalid:0, "listen tcp: lookup host.invalid: no such host"'
    )


def test_an_address_of_another_machine_is_one_line() -> None:
    assert fatal_line(start("-a", "192.0.2.1", "-p", -1)) == (
        'Error listening on port: 192.0.2.1:0, "listen tcp 192.0.2.1:0: bind: cannot assign requested address"'
    )


def test_a_pid_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    line = fatal_line(start("-a", HOST, "-p", -1, "-P", tmp_path / "none" / "pid"))
    assert line == f"Unable to write pidfile: No such file or directory: {tmp_path}/none/pid"


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["--no_such_flag"], "flag provided but not defined: -no_such_flag", 2),
        (["-t"], "must specify [-c, --config] option to check configuration file syntax", 2),
        (["-c", "/does/not/exist.conf"], "error opening config file", 1),
        (["-p", "99999999"], "port: expected a port from -1 to 65535, got 99999999", 1),
    ],
)
def test_a_wrong_word_is_one_line_on_the_error_stream(words: list[str], said: str, status: int) -> None:
    outcome = start(*words)
    assert outcome.returncode == status
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
        lines = list(server.running.lines)
        wanted = (
            f"(compatible with nats-server {SERVER_VERSION})",
            f"Listening for client connections on {HOST}:{server.client_port}",
            "Server is ready",
        )
        places = [next(at for at, line in enumerate(lines) if text in line) for text in wanted]
        assert places == sorted(places)


def test_port_minus_one_is_a_port_of_the_kernels_choice_which_the_start_lines_tell(tmp_path: Path) -> None:
    flags = ("-p", "-1", "-m", "-1")
    server = Server("jetraft", directory=tmp_path, flags=flags).start(wait=False)
    wished = server.client_port
    try:
        server.wait_listening()
        assert server.client_port not in {-1, 0, wished}
        with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
            assert connection.recv(5) == b"INFO "
    finally:
        server.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_server_cleanly(tmp_path: Path, number: int) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        server.running.signal(number)
        assert server.running.wait() == 0
        assert "Server Exiting.." in server.running.lines[-1]


def test_a_client_is_closed_when_all_else_has_ended(tmp_path: Path) -> None:
    flags = ("-P", str(tmp_path / "pid"))
    with Server("jetraft", directory=tmp_path, flags=flags) as server:
        with RawClient(server.address) as client:
            client.api("STREAM.CREATE.s", {"name": "s", "subjects": ["s.>"]})
            client.acknowledged("s.x", b"x")
            assert is_locked(server.store_dir)
            server.running.signal(signal.SIGTERM)
            client.rest(PATIENCE_S)
            assert client.closed
            assert not is_locked(server.store_dir)
            assert not (tmp_path / "pid").exists()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(server.address)
        assert server.running.wait() == 0


def test_a_second_signal_cuts_lame_duck_mode_short(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        with socket.create_connection(server.address) as client:
            assert client.recv(4) == b"INFO"
            server.running.signal(signal.SIGUSR2)
            server.running.wait_for_line("Entering lame duck mode")
            server.running.signal(signal.SIGTERM)
            assert server.running.wait() == 0  # long before lame_duck_duration, which is two minutes
        assert "Server Exiting.." in server.running.lines[-1]


def test_a_server_without_a_file_says_that_it_cannot_reload_and_goes_on(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        server.running.signal(signal.SIGHUP)
        server.running.wait_for_line("can only reload config when a file is provided using -c or --config")
        assert server.healthy()


def test_the_starter_finds_pid_and_ports_and_they_go_with_the_server(tmp_path: Path) -> None:
    flags = ("-P", str(tmp_path / "pid"), "--ports_file_dir", str(tmp_path))
    with Server("jetraft", directory=tmp_path, flags=flags) as server:
        assert int((tmp_path / "pid").read_text()) == server.running.pid
        (ports,) = tmp_path.glob("*.ports")
        assert ports.name == f"jetraft_{server.running.pid}.ports"
        assert json.loads(ports.read_text()) == {
            "nats": [server.url],
            "monitoring": [f"http://{HOST}:{server.http_port}"],
        }
        server.stop()
        assert not ports.exists()
        assert not (tmp_path / "pid").exists()
