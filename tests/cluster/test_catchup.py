"""A replica that was away while the others trimmed what it lacks: it fetches a snapshot, and holds what they hold."""

from pathlib import Path

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

STREAM = "AWAY"
KEPT = 40
ROUND = 150
PAYLOAD_BYTES = 64 << 10  # a few rounds fill several blocks


def payload(seq: int) -> bytes:
    return (b"%d." % seq).ljust(PAYLOAD_BYTES, b"x")


def publish(node: Server, first_seq: int, count: int) -> int:
    """Publish and wait for every acknowledgement; returns the next sequence."""
    with RawClient(node.address) as client:
        for seq in range(first_seq, first_seq + count):
            assert client.acknowledged("away.x", payload(seq))["seq"] == seq
    return first_seq + count


def purge(node: Server) -> None:
    """Remove a message by purging: the leader takes a checkpoint then, and trims its log behind the one before."""
    with RawClient(node.address) as client:
        assert client.api(f"STREAM.PURGE.{STREAM}", {"keep": KEPT})["success"] is True


def cluster_of(node: Server) -> dict[str, object]:
    with RawClient(node.address) as client:
        described = client.api(f"STREAM.INFO.{STREAM}").get("cluster")
    return described if isinstance(described, dict) else {}


def all_current(node: Server) -> bool:
    replicas = cluster_of(node).get("replicas")
    return isinstance(replicas, list) and all(
        peer["current"] and not peer.get("offline") and not peer.get("lag") for peer in replicas
    )


def held_by(node: Server, last_seq: int) -> dict[int, bytes]:
    """Every message that this node gives out; it must be the only one that can be asked."""
    with RawClient(node.address) as client:
        return client.stored(STREAM, last_seq)


def test_a_replica_that_is_behind_the_log_of_the_others_catches_up_to_exactly_their_messages(tmp_path: Path) -> None:
    config = {
        "name": STREAM,
        "subjects": ["away.>"],
        "num_replicas": 3,
        "max_msgs": KEPT + 10,
        "allow_direct": True,
    }
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        with RawClient(cluster[0].address) as client:
            assert "error" not in client.api(f"STREAM.CREATE.{STREAM}", config)
        next_seq = publish(cluster[0], 1, 5)
        leader = cluster.named(str(cluster_of(cluster[0])["leader"]))
        away = next(node for node in cluster if node is not leader)
        away.stop()
        for _ in range(3):
            next_seq = publish(leader, next_seq, ROUND)
            purge(leader)
        next_seq = publish(leader, next_seq, 3)

        away.start()
        cluster.wait_healthy()
        leader.running.wait_until(lambda: all_current(leader), what="all replicas were current")

        assert "has caught up to" in away.running.tail(), "it fetched a snapshot"
        for node in cluster:
            if node is not away:
                node.kill()
        expected = {seq: payload(seq) for seq in range(next_seq - KEPT - 3, next_seq)}
        assert held_by(away, next_seq) == expected
