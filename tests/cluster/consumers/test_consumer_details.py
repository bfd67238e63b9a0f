"""Details of consumers by every replica of a stream: where it is, when it was acknowledged last, who else has it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.cluster.consumers.test_leader_change import leader_of, pull
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.server import Kind, Server

ACKED, TAKEN, MESSAGES = 2, 4, 10


def stream_on(server: Server) -> dict[str, Any]:
    """The stream's row of a node's page."""
    page = server.get("/jsz?accounts=1&streams=1&consumers=1")[1]
    row: dict[str, Any] = page["account_details"][0]["stream_detail"][0]
    return row


def consumer_on(server: Server) -> dict[str, Any]:
    """The consumer's row of a node's page; empty as long as it has none."""
    with suppress(KeyError, IndexError):
        row: dict[str, Any] = stream_on(server)["consumer_detail"][0]
        return row
    return {}


def is_at(server: Server) -> bool:
    """Whether a node shows all that was delivered and acknowledged."""
    row = consumer_on(server)
    return bool(row) and (row["delivered"]["stream_seq"], row["ack_floor"]["stream_seq"]) == (TAKEN, ACKED)


def test_each_replica_shows_the_consumer_and_a_new_leader_knows_its_last_ack(kind: Kind, tmp_path: Path) -> None:
    with Cluster(kind, 3, directory=tmp_path) as cluster:
        with RawClient(cluster[0].address) as client:
            client.api("STREAM.CREATE.LC", {"name": "LC", "subjects": ["lc"], "num_replicas": 3})
            for _ in range(MESSAGES):
                client.acknowledged("lc", b"x")
            config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 60 * 10**9}
            client.api("CONSUMER.DURABLE.CREATE.LC.c", {"stream_name": "LC", "config": config})
            for message in pull(client, TAKEN)[:ACKED]:
                client.request(message.reply, b"+ACK")
        for node in cluster:
            node.running.wait_until(lambda node=node: is_at(node), what="the node shows what was acknowledged")  # type: ignore[misc]
            row = consumer_on(node)
            assert row["ack_floor"]["last_active"]
            assert row["num_ack_pending"] == TAKEN - ACKED
            found = stream_on(node)["cluster"]
            others = {replica["name"]: replica["current"] for replica in found["replicas"]}
            assert len(others) == 2
            assert others.get(found["leader"], True), "a follower knows that its leader has everything"

        old = leader_of(cluster)
        old.kill()
        other = next(node for node in cluster if node.running.running)
        with RawClient(other.address) as client:

            def info() -> dict[str, Any]:
                return client.api("CONSUMER.INFO.LC.c")

            other.running.wait_until(lambda: "error" not in info(), what="another node leads")
            assert info()["ack_floor"]["last_active"]
