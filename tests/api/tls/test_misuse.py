"""What a hostile client does with TLS itself costs the others little, and ends its own connection only."""

import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.api.tls.conftest import Start
from tests.harness.certificates import Authority
from tests.harness.raw import exchange_to_end
from tests.harness.raw_tls import TlsClient, read_line

SOURCE = Path(__file__).with_name("misuse.c")
HALF_OPEN = 500
RUN_TIMEOUT_S = 100


@pytest.fixture(scope="session")
def misuse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled client."""
    binary = tmp_path_factory.mktemp("misuse") / "misuse"
    subprocess.run(["cc", "-O1", "-o", str(binary), str(SOURCE), "-lssl", "-lcrypto"], check=True)
    return binary


@pytest.mark.parametrize(("what", "most"), [("keyupdates", 99_999), ("renegotiate", 0)])
def test_records_that_carry_nothing_are_bounded(
    start_tls: Start, authority: Authority, misuse: Path, what: str, most: int
) -> None:
    server = start_tls(debug=False)
    with TlsClient(server.address, authority.client_context()) as other:
        words = [str(misuse), str(server.client_port), what]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=RUN_TIMEOUT_S)
        match = re.fullmatch(r"ended after (\d+)\n", done.stdout)
        assert match is not None, done.stdout
        assert int(match.group(1)) <= most
        other.settle()
        assert not other.closed


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x16\x03\x01\xff\xff" + b"\x01\x00\xff\xfb" + bytes(65531),
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x03\x01\x40\x00\x01\x00\xff\xfb" + bytes(16380) + (b"\x16\x03\x01\x40\x00" + bytes(16384)) * 4,
        b"\x80\x2e\x01\x03\x01" + bytes(41),
        b"\x16" * 70_000,
    ],
)
def test_what_is_no_client_hello_is_refused_with_a_line(start_tls: Start, authority: Authority, data: bytes) -> None:
    server = start_tls("timeout: 1")
    with socket.create_connection(server.address) as sock:
        read_line(sock)
        exchange_to_end(sock, data)
    server.running.wait_for_line("TLS handshake error: ")
    with TlsClient(server.address, authority.client_context()) as client:
        client.settle()
        assert not client.closed


def test_half_open_handshakes_take_their_time_and_no_more(start_tls: Start, authority: Authority) -> None:
    server = start_tls("timeout: 2", debug=False)
    sockets = [socket.create_connection(server.address) for _ in range(HALF_OPEN)]
    for sock in sockets:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01")
    with TlsClient(server.address, authority.client_context()) as client:
        client.settle()
        assert not client.closed
    for sock in sockets:
        exchange_to_end(sock)
        sock.close()
    assert server.get("/varz")[1]["connections"] == 0
