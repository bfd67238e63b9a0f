"""A stream counts on from its messages, whatever first sequence an update asks for."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG: dict[str, Any] = {"name": "F", "subjects": ["f"], "allow_direct": True}
COUNT = 3
ASKED_SEQ = 100


@pytest.mark.parametrize("begins_at", [0, 10])
def test_an_update_of_the_first_sequence_leaves_the_stream_as_it_is_also_after_a_crash(
    begins_at: int, tmp_path: Path
) -> None:
    config = CONFIG | ({"first_seq": begins_at} if begins_at else {})
    with Server("jetraft", directory=tmp_path) as server:
        with RawClient(server.address) as client:
            assert "error" not in client.api("STREAM.CREATE.F", config)
            acks = [client.acknowledged("f", b"%d" % number) for number in range(COUNT)]
            updated = client.api("STREAM.UPDATE.F", config | {"first_seq": ASKED_SEQ, "max_age": 3600 * 10**9})
            assert updated["config"]["max_age"] == 3600 * 10**9
            assert updated["config"].get("first_seq", 0) == begins_at
        server.kill()  # without a checkpoint, so the log is replayed from its beginning
        server.start()
        server.wait_healthy()
        with RawClient(server.address) as client:
            last_seq = acks[-1]["seq"]
            assert set(client.stored("F", last_seq)) == {ack["seq"] for ack in acks}
            assert client.acknowledged("f", b"next")["seq"] == last_seq + 1


def test_a_restarted_replica_of_an_unused_stream_counts_from_where_the_others_do(tmp_path: Path) -> None:
    config = CONFIG | {"num_replicas": 3}
    with Cluster("jetraft", 3, directory=tmp_path) as cluster, RawClient(cluster[0].address) as client:
        assert "error" not in client.api("STREAM.CREATE.F", config | {"first_seq": ASKED_SEQ})
        assert "error" not in client.api("STREAM.UPDATE.F", config | {"max_age": 3600 * 10**9})
        restarted = cluster[1]
        restarted.kill()
        restarted.start()
        restarted.wait_healthy()
        deadline = time.monotonic() + PATIENCE_S
        while client.api("STREAM.INFO.F")["cluster"]["leader"] != restarted.name:
            client.api("STREAM.LEADER.STEPDOWN.F", {"placement": {"preferred": restarted.name}})
            assert time.monotonic() < deadline
        for number in range(COUNT):  # the others would refuse what it counts from 1, and stop
            assert client.acknowledged("f", b"%d" % number)["seq"] == ASKED_SEQ + number
        cluster.wait_healthy()
