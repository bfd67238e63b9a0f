"""SIGKILL of the stream's leader in the middle of commits: an atomic batch is on all replicas, or on none."""

import json
import time
from pathlib import Path

import pytest

from tests.cluster.test_leader_kill import STREAM, api, held_alone, leader, wait_current
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient

pytestmark = pytest.mark.campaign

MEMBERS = 20
CHUNK = 25  # batches that are on their way at the same time
ACKED_BEFORE, ACKED_AFTER = 50, 50
ANSWERS_S = 5.0


class Batches:
    """A publisher: batches without a pause, of which only the commits ask for an answer."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.inbox = client.new_inbox()
        self.sid = client.subscribe(f"{self.inbox}.>")
        self.sent = 0
        self.acked: dict[int, int] = {}  # batch -> its last sequence

    def send(self) -> None:
        """So many more batches."""
        for batch in range(self.sent, self.sent + CHUNK):
            for seq in range(1, MEMBERS + 1):
                headers = [("Nats-Batch-Id", str(batch)), ("Nats-Batch-Sequence", str(seq))]
                is_last = seq == MEMBERS
                headers += [("Nats-Batch-Commit", "1")] if is_last else []
                reply = f"{self.inbox}.{batch}" if is_last else ""
                self.client.publish(f"kill.{seq}", b"%d.%d" % (batch, seq), reply=reply, headers=headers)
        self.sent += CHUNK

    def collect(self) -> None:
        """Note the acks. While no replica leads, a commit is answered by no ack."""
        for message in self.client.messages(self.sid, CHUNK, timeout_s=ANSWERS_S):
            answer = json.loads(message.payload) if message.payload.startswith(b"{") else {}
            if "batch" in answer:
                assert answer["count"] == MEMBERS
                self.acked[int(answer["batch"])] = answer["seq"]


def check_whole(held: dict[int, bytes], acked: dict[int, int], name: str) -> frozenset[int]:
    """Every batch that has a message has all of them, in one run; every acknowledged one is there. Returns them."""
    places: dict[int, list[tuple[int, int]]] = {}
    for stream_seq, payload in sorted(held.items()):
        batch, seq = map(int, payload.split(b"."))
        places.setdefault(batch, []).append((stream_seq, seq))
    for batch, found in places.items():
        first = found[0][0]
        wanted = [(first + seq - 1, seq) for seq in range(1, MEMBERS + 1)]
        assert found == wanted, f"{name} holds a part of batch {batch}: {found}"
    for batch, last in acked.items():
        assert places.get(batch, [(0, 0)])[-1][0] == last, f"{name} lacks the acknowledged batch {batch}"
    return frozenset(places)


def test_a_batch_is_on_all_replicas_or_on_none_when_its_leader_dies(tmp_path: Path) -> None:
    config = {"name": STREAM, "subjects": ["kill.>"], "num_replicas": 3, "allow_direct": True, "allow_atomic": True}
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        assert "error" not in api(cluster, f"STREAM.CREATE.{STREAM}", config)
        first = leader(cluster)
        other = next(node for node in cluster if node is not first)
        deadline = time.monotonic() + PATIENCE_S
        with RawClient(other.address) as client:
            batches = Batches(client)
            while len(batches.acked) < ACKED_BEFORE:
                assert time.monotonic() < deadline, f"{len(batches.acked)} of {batches.sent} batches were acknowledged"
                batches.send()
                batches.collect()
            batches.send()
            first.kill()  # in the middle of them
            batches.collect()
            wanted = len(batches.acked) + ACKED_AFTER
            while len(batches.acked) < wanted:
                assert time.monotonic() < deadline, f"{len(batches.acked)} of {batches.sent} batches were acknowledged"
                batches.send()
                batches.collect()
        first.start()
        cluster.wait_healthy()
        wait_current(cluster)
        whole = set()
        for node in cluster:
            whole.add(check_whole(held_alone(cluster, node), batches.acked, node.name))
        assert len(whole) == 1, "the replicas hold different batches"
