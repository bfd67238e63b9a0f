"""Lines to syslog, over each kind of socket, as nats-server writes them; what it refuses is refused."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jetraft.api.logs.logger import open_logger
from jetraft.api.logs.syslog import LINES_MAX, SyslogError, open_syslog
from jetraft.api.options.options import Options
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server, command, environment

KINDS: tuple[Kind, Kind] = ("reference", "jetraft")
LINE = re.compile(r"<(\d+)>(\S+) (\S+) ([a-z-]+)\[\d+\]: (.*)\n")
LOCAL = re.compile(r"<(\d+)>([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) ([a-z-]+)\[\d+\]: (.*)\n")

WHY = ": no such user"


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """A syslog over UDP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((HOST, 0))
        sock.settimeout(PATIENCE_S)
        yield sock


def url_of(sock: socket.socket, scheme: str) -> str:
    return f"{scheme}://{HOST}:{sock.getsockname()[1]}"


def lines_until(sock: socket.socket, last: str) -> list[tuple[str, ...]]:
    """Severity, time, host, program and text of the lines, up to one with a text."""
    found: list[tuple[str, ...]] = []
    while True:
        match = LINE.fullmatch(sock.recv(65536).decode())
        assert match is not None
        found.append(match.groups())
        if match[5].startswith(last):
            return found


@pytest.mark.reference
def test_both_write_the_same_lines(receiver: socket.socket, tmp_path: Path) -> None:
    told = []
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        config = f'remote_syslog: "{url_of(receiver, "udp")}"\nauthorization {{ user: u, password: x }}\n'
        server = Server(kind, directory=tmp_path / kind, config=config, jetstream=False, flags=("-p", "-1"))
        server.start(wait=False)
        lines = lines_until(receiver, "Listening for client")
        port = int(lines[-1][4].rpartition(":")[2])
        lines_until(receiver, "Server is ready")
        with RawClient((HOST, port), user="y"):
            lines += lines_until(receiver, f"{HOST}:")[-1:]
        server.stop()
        lines += lines_until(receiver, "Server Exiting..")[-1:]
        told.append([(severity, host, text.rpartition(" - ")[2]) for severity, _, host, _, text in lines[-2:]])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", lines[0][1])
        assert lines[0][0] == "5"
        assert ("4", "Plaintext passwords detected, use nkeys or bcrypt") in [(one[0], one[4]) for one in lines]
    ours, reference = (told[KINDS.index(kind)] for kind in ("jetraft", "reference"))
    assert [(severity, host, text.removesuffix(WHY)) for severity, host, text in ours] == reference
    assert ours[0][2].endswith(WHY), "it says besides why a client was refused"


def refusal(kind: Kind, url: str, directory: Path) -> tuple[int, str]:
    path = directory / "syslog.conf"
    path.write_text(f'port: -1\nremote_syslog: "{url}"\n')
    done = subprocess.run(
        [*command(kind), "-c", str(path)],
        env=environment(kind) | {"PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr.strip().partition(" error ")[2]


@pytest.mark.reference
@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "x://127.0.0.1:1", "udp://127.0.0.1", "unix:///nope"])
def test_an_address_that_is_none_stops_the_start(url: str, tmp_path: Path) -> None:
    theirs, ours = (refusal(kind, url, tmp_path) for kind in KINDS)
    assert ours == theirs
    assert ours[0] == 1


def test_a_unix_socket_has_lines_without_a_host(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with closing(open_logger(Options(remote_syslog=f"unix://{tmp_path / 's'}"))) as say:
            sock, _ = listener.accept()
            with sock, sock.makefile() as file:
                say.error("two\nlines")
                match = LOCAL.fullmatch(file.readline())
    assert match is not None
    assert (match[1], match[3], match[4]) == ("3", "jetraft", "two\\nlines")


def test_a_connection_that_breaks_is_opened_again() -> None:
    with socket.create_server((HOST, 0)) as listener, closing(open_syslog(url_of(listener, "tcp"))) as log:
        first, _ = listener.accept()
        first.close()
        listener.settimeout(0.05)
        for number in range(200):  # the first after the end goes into the void, as TCP has it
            log.write("INF", f"line {number}")
            try:
                second, _ = listener.accept()
            except TimeoutError:
                continue
            break
        with second, second.makefile() as file:
            assert "line" in file.readline()


def test_a_receiver_that_does_not_read_costs_lines_and_no_time() -> None:
    with socket.create_server((HOST, 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        log = open_syslog(url_of(listener, "tcp"))
        text = "x" * 60_000
        for _ in range(LINES_MAX + 2000):
            log.write("INF", text if log.dropped == 0 else "x")
        assert log.dropped > 0
        listener.accept()[0].close()
    log.close(0.1)


@pytest.mark.parametrize("url", ["udp://[::1", "tcp://h:99999", "udp://:1"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SyslogError):
        open_syslog(url)


def test_a_file_comes_first(tmp_path: Path, receiver: socket.socket) -> None:
    path = tmp_path / "log"
    with closing(open_logger(Options(log_file=str(path), remote_syslog=url_of(receiver, "udp")))) as say:
        say.info("here")
        assert say.syslog is None
    assert "here" in path.read_text()


def test_a_reload_moves_the_log(tmp_path: Path, receiver: socket.socket) -> None:
    with Server("jetraft", directory=tmp_path, config="\n", jetstream=False) as server:
        (tmp_path / "server.conf").write_text(f'remote_syslog: "{url_of(receiver, "udp")}"\n')
        server.running.signal(signal.SIGHUP)
        assert lines_until(receiver, "Reloaded server configuration")
        (tmp_path / "server.conf").write_text('remote_syslog: "x://y"\n')
        server.running.signal(signal.SIGHUP)
        assert lines_until(receiver, "Failed to reload")[-1][4].endswith('error invalid network type: "x"')
