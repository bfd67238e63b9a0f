"""A disk that is nearly full: publishes are refused, all else goes on, and so do publishes when there is room."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

DISK_MIB = 160
LEFT_MIB = 40  # below the reserve of 64 MiB


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; needs the right to mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "jetraft-test", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED: a full disk; mounting a small one needs root: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[Path]:
    """The stores of three nodes, each on a file system of its own."""
    places = [tmp_path / name for name in ("n1", "n2", "n3")]
    mounted = []
    try:
        for place in places:
            place.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "jetraft-test", str(place)]
            done = subprocess.run(mount, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"NOT TESTED: a full disk; mounting small ones needs root: {done.stderr.strip()}")
            mounted.append(place)
        yield tmp_path
    finally:
        for place in mounted:
            subprocess.run(["umount", str(place)], check=True)


def test_a_leader_whose_disk_alone_is_full_hands_over_and_publishing_goes_on(small_disks: Path) -> None:
    with Cluster("jetraft", 3, directory=small_disks) as cluster, RawClient(cluster[0].address) as client:
        config = {"name": "FULL", "subjects": ["full.>"], "num_replicas": 3}
        created = client.api("STREAM.CREATE.FULL", config)
        leader = created["cluster"]["leader"]
        assert publish(client)["seq"] == 1

        (small_disks / leader / "ballast").write_bytes(bytes((DISK_MIB - LEFT_MIB) << 20))

        def leads() -> str:
            return str(client.api("STREAM.INFO.FULL").get("cluster", {}).get("leader", ""))

        cluster[0].running.wait_until(lambda: leads() not in {"", leader}, what="another node led")
        cluster[0].running.wait_until(lambda: publish(client).get("seq") == 2, what="publishing went on")
        for seq in range(3, 50):
            assert publish(client)["seq"] == seq


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

        refused = publish(client)

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

        node.running.wait_until(lambda: publish(client).get("seq") == 11, what="publishing went on")
        assert node.healthy()
