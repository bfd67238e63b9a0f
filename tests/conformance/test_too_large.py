"""A message beyond max_payload: the client reads the error, and then the end or a reset, as from nats-server."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
KINDS: tuple[Kind, Kind] = ("reference", "jetraft")
ANNOUNCED, SENT = 2_000_000, (0, 10, 200_000, 2_000_002)  # bytes of the payload


def seen_by_sender(server: Server, sent: int) -> tuple[bytes, str]:
    """What a client reads that announces too much and sends so much of it, and how that ends."""
    received = b""
    with socket.create_connection(server.address) as sock:
        sock.settimeout(PATIENCE_S)
        while not received.endswith(b"\r\n"):
            received += sock.recv(4096)
        sock.sendall(b"CONNECT {}\r\n")
        with suppress(ConnectionError):  # closed meanwhile: what the server said can be read all the same
            sock.sendall(b"PUB a %d\r\n" % ANNOUNCED + bytes(sent))
        received = b""
        try:
            while piece := sock.recv(4096):
                received += piece
        except ConnectionResetError:
            return received, "reset"
        return received, "end"


@pytest.mark.parametrize("sent", SENT)
def test_a_message_that_is_too_large_ends_as_on_the_reference(sent: int, tmp_path: Path) -> None:
    found: dict[Kind, tuple[bytes, str]] = {}
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        with Server(kind, directory=tmp_path / kind) as server:
            found[kind] = seen_by_sender(server, sent)
    assert found["jetraft"] == found["reference"]
    assert b"Maximum Payload Violation" in found["jetraft"][0]
