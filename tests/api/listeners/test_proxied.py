"""Clients behind a proxy that says who they are, over TCP and TLS; both servers are asked."""

import os
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from tests.api.listeners.test_proxy_header import BAD, binary
from tests.harness.certificates import Authority
from tests.harness.patience import PATIENCE_S, until
from tests.harness.server import Kind, Server

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
LINE = b"PROXY TCP4 198.51.100.7 127.0.0.1 5678 4222\r\n"
CLIENT = ("198.51.100.7", 5678)
WORDS = b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n'


class Peer:
    """A connection that speaks as a proxy does."""

    def __init__(
        self, server: Server, *, context: ssl.SSLContext | None = None, header: bytes = b"", is_first: bool = False
    ) -> None:
        self.sock: socket.socket = socket.create_connection(server.address, timeout=PATIENCE_S)
        self.server = server
        self.greeting = b"" if is_first else self.until(b"\r\n")
        self.sock.sendall(header)
        if context is not None:
            self.sock = context.wrap_socket(self.sock)

    def until(self, end: bytes) -> bytes:
        found = b""
        while end not in found and (more := self.sock.recv(4096)):
            found += more
        return found

    @property
    def seen(self) -> tuple[str, int]:
        """Who the server says it is."""
        connections = self.server.get("/connz")[1]["connections"]
        return connections[-1]["ip"], connections[-1]["port"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.sock.close()


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("proxied")
    with Server(request.param, directory=directory, config="proxy_protocol: true\n", flags=("-D",)) as started:
        started.running.wait_for_line("PROXY protocol enabled for client connections")
        yield started


@pytest.mark.parametrize("header", [LINE, binary()])
def test_a_client_has_the_address_that_the_proxy_says(server: Server, header: bytes) -> None:
    with Peer(server, header=header + WORDS) as peer:
        assert b"client_ip" not in peer.greeting
        assert b'"client_ip":"198.51.100.7"' in peer.until(b"connect_info")
        assert peer.seen == CLIENT


@pytest.mark.parametrize("header", [b"", b"PROXY UNKNOWN\r\n", binary(b"", command=0x20)])
def test_a_proxy_may_speak_for_itself(server: Server, header: bytes) -> None:
    with Peer(server, header=header + WORDS) as peer:
        assert b"PONG" in peer.until(b"connect_info")
        assert peer.seen == peer.sock.getsockname()


def test_a_header_may_come_a_byte_at_a_time(server: Server) -> None:
    for header in (LINE, binary(), b"P"):
        with Peer(server) as peer:
            peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in header:
                peer.sock.sendall(bytes((byte,)))
            peer.sock.sendall(b"ING\r\n" if header == b"P" else WORDS)
            assert b"PONG" in peer.until(b"PONG")


@pytest.mark.parametrize("header", BAD)
def test_a_wrong_header_ends_the_connection_without_a_word(server: Server, header: bytes) -> None:
    with Peer(server, header=header) as peer:
        with suppress(ConnectionResetError):  # when something came behind the header
            assert peer.sock.recv(100) == b""
        host, port = peer.sock.getsockname()
        line = server.running.wait_for_line(f"Error reading PROXY protocol header from {host}:{port}")
    if "%" not in BAD[header] and "?" not in BAD[header]:
        assert line.endswith(BAD[header])


def test_half_a_header_is_waited_for_5_seconds_while_others_are_served(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config="proxy_protocol: true\n") as server:
        with Peer(server, header=b"PROXY TCP4 1.2") as peer:
            with Peer(server, header=LINE + WORDS) as other:
                assert b"PONG" in other.until(b"PONG")
            assert peer.sock.recv(100) == b""
        server.running.wait_for_line("failed to read v1 line: i/o timeout")
        assert server.get("/connz")[1]["connections"] == []


def open_files(pid: int) -> list[str]:
    """What a process has open."""
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(descriptor.readlink()))
    return found


def test_a_connection_that_takes_the_last_descriptor_is_closed_and_the_server_goes_on(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, jetstream=False, config="proxy_protocol: true\n") as server:
        pid = server.running.pid
        until(lambda: not any(path.endswith(".modules") for path in open_files(pid)))  # what is loaded late is loaded
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}  # noqa: PTH208  names are the descriptors
        first_free = next(number for number in range(max(used) + 2) if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free + 1, limits[1]))
        with socket.create_connection(server.address, timeout=PATIENCE_S) as last:
            assert last.recv(100) == b""
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        with Peer(server, header=LINE + WORDS) as peer:
            assert b"PONG" in peer.until(b"PONG")


@pytest.mark.parametrize("first", ["false", "true"])
@pytest.mark.parametrize("kind", KINDS)
def test_with_tls_the_handshake_follows_the_header(kind: Kind, first: str, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    config = f"proxy_protocol: true\ntls {{ {authority.sign('server').block} handshake_first: {first} }}\n"
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.check_hostname = False
    with Server(kind, directory=tmp_path, config=config) as server:
        for header in (LINE, b""):
            with Peer(server, context=context, header=header, is_first=first == "true") as peer:
                peer.sock.sendall(WORDS)
                assert b"connect_info" in peer.until(b"connect_info")
                assert peer.seen == (CLIENT if header else peer.sock.getsockname())
