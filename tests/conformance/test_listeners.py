"""Where both servers listen, what the ports file, the log and INFO say of it, side by side."""

import json
import re
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import free_port
from tests.harness.raw_tls import read_line
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
FAMILIES = ("127.0.0.1", "::1")
LISTENS = re.compile(r"(monitor|connections) on .*:\d+$")
FIELDS = ("host", "port", "client_ip", "connect_urls")
ALONE = ("--cluster_name", "c", "--routes", "nats://127.0.0.1:1")
FLAGS: dict[str, tuple[str, ...]] = {
    "any": ("-a", "0.0.0.0"),
    "any, by the other name": ("-a", "::"),
    "loopback": ("-a", "127.0.0.1"),
    "loopback of IPv6": ("-a", "::1"),
    "advertised": ("-a", "0.0.0.0", "--client_advertise", "foo:99"),
    "advertised without a port": ("-a", "0.0.0.0", "--client_advertise", "foo"),
    "a cluster of one": ("-a", "0.0.0.0", "--cluster", "nats://127.0.0.1:CLUSTER", *ALONE),
    "a cluster on loopback": ("-a", "127.0.0.1", "--cluster", "nats://127.0.0.1:CLUSTER", *ALONE),
    "not advertised": (
        "-a", "0.0.0.0", "--no_advertise", "--cluster", "nats://127.0.0.1:CLUSTER", *ALONE,
    ),
}  # fmt: skip


def greeting(host: str, port: int) -> dict[str, Any] | str:
    """What a client at this address is told, or why it is not served."""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE_S) as sock:
            info = json.loads(read_line(sock).partition(b" ")[2])
    except OSError as error:
        return type(error).__name__
    return {name: info[name] for name in FIELDS if name in info}


def page(host: str, port: int) -> str:
    """The first line of a monitoring page."""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE_S) as sock:
            sock.sendall(b"GET /varz HTTP/1.0\r\n\r\n")
            return read_line(sock).decode().rpartition(" ")[0].partition(" ")[2][:3]
    except OSError as error:
        return type(error).__name__


def ports_of(directory: Path) -> dict[str, list[str]]:
    """The ports file; the reference writes it after it said that it is ready."""
    for path in directory.glob("*.ports"):
        with suppress(ValueError):
            return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def observed(kind: Kind, flags: tuple[str, ...], directory: Path) -> str:
    """What one server shows, as text with names for the ports."""
    directory.mkdir()
    cluster_port = str(free_port())
    words = (*(word.replace("CLUSTER", cluster_port) for word in flags), "--ports_file_dir", str(directory))
    with ExitStack() as stack:
        server = stack.enter_context(Server(kind, directory=directory, flags=words))
        server.running.wait_until(lambda: bool(ports_of(directory)), what="the ports file")
        seen = {
            "clients": [greeting(host, server.client_port) for host in FAMILIES],
            "monitoring": [page(host, server.http_port) for host in FAMILIES],
            "ports": ports_of(directory),
            "log": sorted(re.sub(r".*\[INF\] ", "", line) for line in server.running.lines if LISTENS.search(line)),
        }
        shown = json.dumps(seen, indent=1)
        for port, name in ((server.client_port, "CLIENT"), (server.http_port, "HTTP"), (cluster_port, "CLUSTER")):
            shown = re.sub(rf"\b{port}\b", name, shown)
        return shown


@pytest.mark.parametrize("case", FLAGS)
def test_listens_as_the_reference_does(case: str, tmp_path: Path) -> None:
    expected = observed("reference", FLAGS[case], tmp_path / "reference")
    assert observed("jetraft", FLAGS[case], tmp_path / "jetraft") == expected
