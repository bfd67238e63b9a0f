"""SIGKILL of the leader of a mirror, or of a stream with sources, while its origin is published to.

Each message of the origin is stored once: a mirror has what the origin has under the same sequences, a stream with
sources has one copy of each, in order.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

pytestmark = pytest.mark.campaign

ROWS = 240
QUEUED = 120
BATCH = 500


def api(cluster: Cluster, subject: str, body: object = None) -> dict[str, object]:
    node = next(node for node in cluster if node.running.running)
    with RawClient(node.address) as client:
        return client.api(subject, body)


def leader(cluster: Cluster, stream: str) -> Server:
    described = api(cluster, f"STREAM.INFO.{stream}")["cluster"]
    assert isinstance(described, dict)
    return cluster.named(described["leader"])


def publish(cluster: Cluster, first: int, count: int) -> None:
    """Publish rows, each acknowledged; a row without an answer is published again under its id."""
    node = next(node for node in cluster if node.running.running)
    with RawClient(node.address) as client:
        for number in range(first, first + count):
            headers = (("Nats-Msg-Id", str(number)),)
            deadline = time.monotonic() + PATIENCE_S
            while not (found := client.request("o.x", str(number).encode(), headers=headers)) or (
                b'"seq"' not in found[0].payload  # without a leader the answer comes at once: nobody listens
            ):
                assert time.monotonic() < deadline, f"row {number} was not acknowledged"


def held(cluster: Cluster, stream: str) -> list[tuple[int, bytes]]:
    """Every message of the stream: sequence and payload."""
    found: list[tuple[int, bytes]] = []
    node = leader(cluster, stream)
    with RawClient(node.address) as client:
        while True:
            body = json.dumps({"seq": found[-1][0] + 1 if found else 1, "batch": BATCH}).encode()
            answers = client.request(f"$JS.API.DIRECT.GET.{stream}", body, replies=BATCH + 1, until_status=True)
            assert answers, "no answer"
            for answer in answers:
                fields = dict(answer.headers)
                if "Nats-Sequence" in fields:
                    found.append((int(fields["Nats-Sequence"]), answer.payload))
            if answers[-1].status.startswith("404"):
                return found


def messages(cluster: Cluster, stream: str) -> int:
    state = api(cluster, f"STREAM.INFO.{stream}").get("state")
    return int(state["messages"]) if isinstance(state, dict) else -1


def last_seq(cluster: Cluster, stream: str) -> int:
    state = api(cluster, f"STREAM.INFO.{stream}").get("state")
    return int(state["last_seq"]) if isinstance(state, dict) else -1


@pytest.mark.parametrize("copies", [{"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]}], ids=["mirror", "source"])
@pytest.mark.parametrize("killed_of", ["C", "O"], ids=["of the copy", "of the work queue"])
def test_a_work_queue_ends_up_once_in_its_copy_over_a_change_of_leader(
    kind: Kind, tmp_path: Path, copies: dict[str, object], killed_of: str
) -> None:
    """What the copy acknowledges is removed: an ack of something that is not stored would lose it."""
    origin = {"name": "O", "subjects": ["o.>"], "num_replicas": 3, "retention": "workqueue"}
    with Cluster(kind, 3, directory=tmp_path) as cluster:
        assert "error" not in api(cluster, "STREAM.CREATE.O", origin)
        assert "error" not in api(
            cluster, "STREAM.CREATE.C", {"name": "C", "num_replicas": 3, "allow_direct": True, **copies}
        )
        publish(cluster, 0, QUEUED // 3)
        killed = leader(cluster, killed_of)
        killed.kill()
        publish(cluster, QUEUED // 3, QUEUED // 3)
        killed.start()
        cluster.wait_healthy()
        publish(cluster, 2 * QUEUED // 3, QUEUED - 2 * (QUEUED // 3))
        wait(cluster, lambda: last_seq(cluster, "C") >= QUEUED and messages(cluster, "O") == 0)
        assert [int(payload) for _, payload in held(cluster, "C")] == list(range(QUEUED))


@pytest.mark.parametrize("copies", [{"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]}], ids=["mirror", "source"])
def test_each_message_is_stored_once_over_a_change_of_leader(
    kind: Kind, tmp_path: Path, copies: dict[str, object]
) -> None:
    origin = {"name": "O", "subjects": ["o.>"], "num_replicas": 3, "allow_direct": True}
    with Cluster(kind, 3, directory=tmp_path) as cluster:
        assert "error" not in api(cluster, "STREAM.CREATE.O", origin)
        assert "error" not in api(
            cluster, "STREAM.CREATE.C", {"name": "C", "num_replicas": 3, "allow_direct": True, **copies}
        )
        publish(cluster, 0, ROWS // 3)
        killed = leader(cluster, "C")
        killed.kill()
        publish(cluster, ROWS // 3, ROWS // 3)
        killed.start()
        cluster.wait_healthy()
        publish(cluster, 2 * ROWS // 3, ROWS - 2 * (ROWS // 3))
        wait(cluster, lambda: last_seq(cluster, "O") == last_seq(cluster, "C") >= ROWS)
        assert held(cluster, "C") == held(cluster, "O")
        assert [int(payload) for _, payload in held(cluster, "C")] == list(range(ROWS))


def wait(cluster: Cluster, condition: Callable[[], bool]) -> None:
    node = next(node for node in cluster if node.running.running)
    node.running.wait_until(condition, what="the copies had come up")
