"""SIGKILL of the leader under a replicated consumer: what was acknowledged stays so, everything else comes (again)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.harness.cluster import Cluster
from tests.harness.raw import Message, RawClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.server import Kind, Server

MESSAGES = 120
TAKEN = 50
CONFIRMED = 30
S = 10**9


def delivery(message: Message) -> tuple[int, int]:
    """(stream sequence, delivery count) of a delivered message."""
    tokens = message.reply.split(".")
    return int(tokens[5]), int(tokens[4])


def pull(client: RawClient, batch: int) -> list[Message]:
    body = json.dumps({"batch": batch, "no_wait": True, "expires": 2 * S}).encode()
    found = client.request("$JS.API.CONSUMER.MSG.NEXT.LC.c", body, replies=batch, until_status=True)
    return [message for message in found or [] if message.reply]


def leader_of(cluster: Cluster) -> Server:
    node = next(node for node in cluster if node.running.running)
    with RawClient(node.address) as client:
        info: dict[str, Any] = client.api("STREAM.INFO.LC")
    return cluster.named(info["cluster"]["leader"])


def test_acks_and_delivery_counts_survive_the_leader(kind: Kind, tmp_path: Path) -> None:
    with Cluster(kind, 3, directory=tmp_path) as cluster:
        with RawClient(cluster[0].address) as client:
            assert "error" not in client.api("STREAM.CREATE.LC", {"name": "LC", "subjects": ["lc"], "num_replicas": 3})
            for number in range(MESSAGES):
                assert client.acknowledged("lc", str(number).encode())["seq"] == number + 1
            config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 2 * S}
            created = client.api("CONSUMER.DURABLE.CREATE.LC.c", {"stream_name": "LC", "config": config})
            assert "error" not in created
        old = leader_of(cluster)
        other = next(node for node in cluster if node is not old)
        with RawClient(other.address) as client:
            taken = pull(client, TAKEN)
            assert [delivery(message) for message in taken] == [(seq, 1) for seq in range(1, TAKEN + 1)]
            for message in taken[:CONFIRMED]:
                assert client.request(message.reply, b"+ACK")
            old.kill()
            counts: dict[int, int] = {}

            def all_came() -> bool:
                for message in pull(client, MESSAGES):
                    seq, count = delivery(message)
                    counts[seq] = count
                    client.publish(message.reply, b"+ACK")
                return set(counts) >= set(range(CONFIRMED + 1, MESSAGES + 1))

            other.running.wait_until(all_came, what="everything that was not acknowledged came")
        assert min(counts) > CONFIRMED, "an acknowledged message came again"
        assert all(counts[seq] >= 2 for seq in range(CONFIRMED + 1, TAKEN + 1)), "a delivery was forgotten"
