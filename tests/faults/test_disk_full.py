"""A disk that is nearly full: publishes are refused, all else goes on, and so do publishes when there is room."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.harness.small_disk import small_disks

DISK_MIB = 160
LEFT_MIB = 40  # below the reserve of 64 MiB


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    place = tmp_path / "disk"
    with small_disks([place], DISK_MIB << 10):
        yield place


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Path]:
    """The stores of three nodes, each on a file system of its own."""
    with small_disks([tmp_path / name for name in ("n1", "n2", "n3")], DISK_MIB << 10):
        yield tmp_path


def test_a_leader_whose_disk_alone_is_full_hands_over_and_publishing_goes_on(stores: Path) -> None:
    with Cluster("jetraft", 3, directory=stores) as cluster, RawClient(cluster[0].address) as client:
        config = {"name": "FULL", "subjects": ["full.>"], "num_replicas": 3}
        created = client.api("STREAM.CREATE.FULL", config)
        leader = created["cluster"]["leader"]
        assert publish(client)["seq"] == 1

        (stores / leader / "ballast").write_bytes(bytes((DISK_MIB - LEFT_MIB) << 20))

        def leads() -> str:
            return str(client.api("STREAM.INFO.FULL").get("cluster", {}).get("leader", ""))

        cluster[0].running.wait_until(lambda: leads() not in {"", leader}, what="another node led")
        cluster[0].running.wait_until(lambda: publish(client).get("seq") == 2, what="publishing went on")
        for seq in range(3, 50):
            assert publish(client)["seq"] == seq


def first_refusal(client: RawClient) -> dict[str, object]:
    """The room is looked at a few times a second, so some publishes may still be taken."""
    deadline = time.monotonic() + PATIENCE_S
    while "error" not in (answer := publish(client)):
        assert time.monotonic() < deadline
    return answer


def publish(client: RawClient) -> dict[str, object]:
    return client.acknowledged("full.a", b"x" * 1000)


def test_publishing_stops_before_the_disk_is_full_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    with Server("jetraft", directory=small_disk) as node, RawClient(node.address) as client:
        config = {"name": "FULL", "subjects": ["full.>"], "allow_direct": True}
        memory = {"name": "MEMORY", "subjects": ["memory.>"], "storage": "memory"}
        assert "error" not in client.api("STREAM.CREATE.FULL", config)
        assert "error" not in client.api("STREAM.CREATE.MEMORY", memory)
        for seq in range(1, 11):
            assert publish(client)["seq"] == seq
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes((DISK_MIB - LEFT_MIB) << 20))

        refused = first_refusal(client)

        assert refused["error"] == {
            "code": 500,
            "err_code": 10047,
            "description": "insufficient storage resources available",
        }
        assert client.api("STREAM.MSG.DELETE.FULL", {"seq": 3})["success"] is True
        assert client.api("STREAM.PURGE.FULL", {"seq": 3})["purged"] == 2
        assert "error" not in client.api("STREAM.MSG.GET.FULL", {"seq": 4})
        assert client.acknowledged("memory.a", b"x")["seq"] == 1
        consumer = {"stream_name": "FULL", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        assert "error" not in client.api("CONSUMER.DURABLE.CREATE.FULL.D", consumer)

        ballast.unlink()

        node.running.wait_until(lambda: "seq" in publish(client), what="publishing went on")
        node.wait_healthy()
