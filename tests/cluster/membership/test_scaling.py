"""Replicas are added and removed while publishers go on: every acknowledged message is on every replica in the end."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

STREAM = "GROW"
CONFIG = {"name": STREAM, "subjects": ["grow.>"], "allow_direct": True}


class Publishing(threading.Thread):
    """Publishes one message after the other until told to stop; each is sent again until it is acknowledged."""

    def __init__(self, node: Server) -> None:
        super().__init__(daemon=True)
        self._node = node
        self.acked: dict[int, bytes] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        with RawClient(self._node.address) as client:
            while not self.stopping.is_set():
                number += 1
                self._publish(client, b"message %d" % number)

    def _publish(self, client: RawClient, payload: bytes) -> None:
        while not self.stopping.is_set():
            headers = [("Nats-Msg-Id", payload.decode())]
            answers = client.request("grow.x", payload, headers=headers)
            answer = json.loads(answers[0].payload) if answers and answers[0].payload else {}
            if seq := answer.get("seq"):
                self.acked[seq] = payload
                return


@contextmanager
def publishing(node: Server) -> Iterator[Publishing]:
    thread = Publishing(node)
    thread.start()
    try:
        yield thread
    finally:
        thread.stopping.set()
        thread.join()


def api(node: Server, subject: str, body: object = None) -> dict[str, object]:
    with RawClient(node.address) as client:
        return client.api(subject, body)


def members(node: Server) -> list[str]:
    """The names of the members that are current, the leader first; empty when one is not."""
    described = api(node, f"STREAM.INFO.{STREAM}").get("cluster")
    if not isinstance(described, dict) or not described.get("leader"):
        return []
    replicas = described.get("replicas") or []
    if any(not peer["current"] for peer in replicas):
        return []
    return [described["leader"], *(peer["name"] for peer in replicas)]


def resize(cluster: Cluster, node: Server, replicas: int) -> Sequence[str]:
    """Ask for that many replicas and wait until there are."""
    updated = api(node, f"STREAM.UPDATE.{STREAM}", {**CONFIG, "num_replicas": replicas})
    assert "error" not in updated, updated
    found: list[str] = []

    def there() -> bool:
        found[:] = members(node)  # asked once more it might name fewer: under load a member is late now and then
        return len(found) == replicas

    node.running.wait_until(there, what=f"{replicas} replicas were current")
    return found


def lacking(cluster: Cluster, name: str, acked: dict[int, bytes]) -> set[int]:
    """The acknowledged messages that this node does not give out while it is the only one that can be asked."""
    others = [node for node in cluster if node.name != name]
    for node in others:
        node.freeze()
    try:
        with RawClient(cluster.named(name).address) as client:
            held = client.stored(STREAM, max(acked))
    finally:
        for node in others:
            node.thaw()
    return {seq for seq, payload in acked.items() if held.get(seq) != payload}


def holds_all(cluster: Cluster, name: str, acked: dict[int, bytes]) -> bool:
    return not lacking(cluster, name, acked)


def stream_groups(node: Server) -> list[str]:
    groups = node.store_dir / "jetstream" / "groups"
    return [path.name for path in groups.iterdir() if path.name.startswith("S-")]


def wait_for_data_at(cluster: Cluster, holders: Sequence[str]) -> None:
    def at_holders_only() -> bool:
        return all(bool(stream_groups(node)) == (node.name in holders) for node in cluster)

    what = f"only {', '.join(holders)} held data"
    cluster[0].running.wait_until(at_holders_only, what=what)


def test_replicas_come_and_go_under_load_and_no_acknowledged_message_is_lost(tmp_path: Path) -> None:
    with Cluster("jetraft", 5, directory=tmp_path) as cluster:
        entry = cluster[0]
        assert "error" not in api(entry, f"STREAM.CREATE.{STREAM}", {**CONFIG, "num_replicas": 1})
        with publishing(entry) as publisher:
            for replicas in (3, 5, 3, 1, 3):
                holders = resize(cluster, entry, replicas)
                wait_for_data_at(cluster, holders)
        assert len(publisher.acked) > 10
        for name in holders:  # a follower hears a moment later what is committed, and not while the leader is frozen
            cluster.named(name).running.wait_until(
                partial(holds_all, cluster, name, publisher.acked), what=f"{name} held every acknowledged message"
            )
