"""`-V` on both servers: the same lines for what a client sends and receives, and no secret."""

import re
from pathlib import Path

import pytest

from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
SECRET = "geheim"
LINES = (
    b"SUB foo 1",
    b"SUB  foo.*  q 2",
    b"PUB foo 5\r\nhello",
    b"PUB foo in.x 0\r\n",
    b"hpub foo 12 14\r\nNATS/1.0\r\n\r\nab",
    b"UNSUB 2 5",
    b'PUB bar 3\r\n\x01"a',
    b"PONG",
    b"+OK",
    b"SUB bad..x 3",
)
# jetraft does not log the end of subscriptions; and of nats-server, what its own clients do.
LEFT_OUT = ("<-> [DELSUB", "ACCOUNT -", "SYSTEM -", "JETSTREAM -")


def observed(kind: Kind, directory: Path, config: str | None = None) -> list[str]:
    """The lines of the protocol in the log, in order."""
    flags = ("-V", "--user", "u", "--pass", SECRET)
    with Server(kind, directory=directory / kind, flags=flags, config=config) as server:
        with RawClient(server.address, user="u", **{"pass": SECRET}, verbose=True, name="x") as client:  # type: ignore[arg-type]
            for line in LINES:
                client.send(line + b"\r\n")
                client.settle()
        wrong = {"user": "u", "pass": "wrong", "auth_token": SECRET, "sig": SECRET}
        with RawClient(server.address, **wrong) as other:  # type: ignore[arg-type]
            other.settle()
            assert other.closed
        server.running.wait_for_line("[-ERR Authorization Violation]")
        assert not any(SECRET in line for line in server.running.lines)
        return [
            re.sub(r".*\[TRC\] 127\.0\.0\.1:\d+ - cid:\d+", "CLIENT", line).replace('": ', '":').replace(', "', ',"')
            for line in server.running.lines
            if "[TRC]" in line and not any(word in line for word in LEFT_OUT)
        ]


def test_shows_headers_alone_as_the_reference_does(tmp_path: Path) -> None:
    config = "trace_headers: true\nmax_traced_msg_len: 5\n"
    expected = observed("reference", tmp_path, config)
    assert any('MSG_PAYLOAD: ["NATS/..."]' in line for line in expected)
    assert observed("jetraft", tmp_path, config) == expected


@pytest.mark.parametrize("most", [0, 2, 5, 100])
def test_cuts_payloads_off_as_the_reference_does(tmp_path: Path, most: int) -> None:
    config = f"max_traced_msg_len: {most}\n"
    expected = observed("reference", tmp_path, config)
    assert observed("jetraft", tmp_path, config) == expected


def test_logs_the_protocol_as_the_reference_does(tmp_path: Path) -> None:
    expected = observed("reference", tmp_path)
    assert len(expected) > 30
    assert observed("jetraft", tmp_path) == expected
