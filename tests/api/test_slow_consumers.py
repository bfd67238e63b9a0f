"""What the log says of clients that do not read."""

from pathlib import Path

from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG = "max_pending: 1MB\nmax_payload: 1MB\n"
FLOOD = 64  # messages of 512 KiB: more than the sockets and the bound of a client take
TEXT = "Slow Consumer (Pending Bytes): closed; {} slow consumers since the start"


def test_a_client_that_does_not_read_is_named_with_how_many_there_were(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=CONFIG) as server:
        for count in (1, 2):
            with RawClient(server.address) as slow, RawClient(server.address) as publisher:
                slow.subscribe("flood")
                slow.settle()
                for _ in range(FLOOD):
                    publisher.send(b"PUB flood 524288\r\n" + bytes(524288) + b"\r\n")
                line = server.running.wait_for_line(TEXT.format(count))
                assert "[WRN]" in line
                assert "cid:" in line
