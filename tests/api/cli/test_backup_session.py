"""The order in which a server may send the answer to a snapshot and its pieces."""

import json
import threading
from pathlib import Path

import pytest

from jetraft.api.cli.backup_session import BackupSession
from pyspark_jetstream.options import Access, parse_servers
from tests.harness.raw import RawClient
from tests.harness.server import Server

PIECES = [b"\xff\x06\x00\x00S2sTwO", b"more"]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_pieces_of_an_archive_may_come_before_the_answer(before: int, tmp_path: Path) -> None:
    """As from nats-server, which answers and sends in two goroutines. A client plays the server of the request."""
    with Server("jetraft", directory=tmp_path, jetstream=False) as server, RawClient(server.address) as playing:
        sid = playing.subscribe("$JS.API.STREAM.SNAPSHOT.S")
        playing.settle()

        def play() -> None:
            (request,) = playing.messages(sid, 1)
            deliver = json.loads(request.payload)["deliver_subject"]
            for piece in PIECES[:before]:
                playing.publish(deliver, piece)
            playing.publish(request.reply, json.dumps({"config": {}, "state": {}}).encode())
            for piece in [*PIECES[before:], b""]:
                playing.publish(deliver, piece)
            playing.settle()

        thread = threading.Thread(target=play)
        thread.start()
        session = BackupSession(Access(servers=parse_servers(server.url)))
        try:
            assert list(session.snapshot("S", 0)) == PIECES
        finally:
            session.close()
            thread.join()
