"""What happens in a cluster is a line in the log of the node that it concerns."""

import signal
from pathlib import Path
from typing import Any

from tests.harness.cluster import Cluster
from tests.harness.log_lines import wait_for_event
from tests.harness.raw import RawClient
from tests.harness.server import Server

FORM = "json"
CONFIG = f"log_format: {FORM}\n"
STREAM: dict[str, Any] = {"name": "ORDERS", "subjects": ["orders"], "num_replicas": 3, "max_msgs": 100}
OF_STREAM: dict[str, Any] = {"account": "$G", "stream": "ORDERS"}
ROUND = 3000  # messages that leave the log of the others with each purge


def api(node: Server, subject: str, body: object = None) -> dict[str, Any]:
    with RawClient(node.address) as client:
        return client.api(subject, body)


def publish_and_purge(node: Server) -> None:
    with RawClient(node.address) as client:
        for _ in range(ROUND):
            client.publish("orders", b"payload-1" * 100)
        client.settle()
        client.acknowledged("orders", b"payload-1")
        assert "error" not in client.api("STREAM.PURGE.ORDERS")


def leader_of(cluster: Cluster, among: list[Server]) -> Server:
    info = api(among[0], "STREAM.INFO.ORDERS")
    return cluster.named(str(info["cluster"]["leader"]))


def test_leaders_members_and_replicas_are_told_of(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster:
        made = api(cluster[0], "STREAM.CREATE.ORDERS", STREAM)
        leader = cluster.named(made["cluster"]["leader"])
        for node in cluster:
            for other in cluster:
                if other is not node:
                    wait_for_event(node.running, FORM, "member_linked", node=other.name)
            wait_for_event(node.running, FORM, "meta_leader")
        assert any("cluster_founded" in "\n".join(node.running.lines) for node in cluster)
        wait_for_event(leader.running, FORM, "stream_leader", **OF_STREAM, node=leader.name)

        api(leader, "STREAM.LEADER.STEPDOWN.ORDERS")
        ended = wait_for_event(leader.running, FORM, "stream_leader_ended", **OF_STREAM, node=leader.name)
        assert "in term" in ended["reason"]

        away = next(node for node in cluster if node is not leader_of(cluster, [leader]))
        rest = [node for node in cluster if node is not away]
        away.stop()
        for node in rest:
            gone = wait_for_event(node.running, FORM, "member_unlinked", node=away.name)
            assert gone["reason"]
        for _ in range(3):
            publish_and_purge(rest[0])
        away.start()
        cluster.wait_healthy()
        behind = wait_for_event(away.running, FORM, "replica_behind", **OF_STREAM)
        assert behind["entries"] > 0
        assert behind["msg"].startswith("stream $G > ORDERS: this replica is ")
        wait_for_event(away.running, FORM, "replica_caught_up", **OF_STREAM)

        meta = str(((cluster[0].get("/jsz")[1] or {}).get("meta_cluster") or {}).get("leader"))
        victim = next(node for node in cluster if node.name != meta)
        victim.running.signal(signal.SIGKILL)
        with RawClient(cluster.named(meta).address) as client:
            client.request("$JS.API.SERVER.REMOVE", b'{"peer": "%s"}' % victim.name.encode())
        wait_for_event(cluster.named(meta).running, FORM, "member_removed", node=victim.name)

        leader = leader_of(cluster, [cluster.named(meta)])
        last = next(node for node in cluster if node not in (victim, leader))
        last.running.signal(signal.SIGKILL)
        wait_for_event(leader.running, FORM, "stream_leader_lost", **OF_STREAM)
        wait_for_event(leader.running, FORM, "meta_leader_lost")
        for node in cluster:
            assert "payload-1" not in "\n".join(node.running.lines)
