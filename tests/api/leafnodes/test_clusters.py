"""Leaf nodes of a cluster, and a leaf node that is a cluster: messages arrive once, requests are carried out once."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.harness.cluster import Cluster
from tests.harness.leafs import listener, real, real_messages, remote, wait_heard, wait_interest, wait_linked
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import free_port
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server


@attrs.frozen
class Site:
    """A cluster, and a server at the other end of its leaf node connections."""

    cluster: Cluster
    other: Server

    def client(self, number: int) -> RawClient:
        return RawClient(self.cluster.nodes[number].address)


@pytest.fixture(scope="module", params=["jetraft", "reference"])
def hub_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A leaf node of either kind that is connected to the first node of a cluster."""
    directory: Path = tmp_path_factory.mktemp("hubs")
    port = free_port()
    with Cluster("jetraft", 3, directory=directory, config="jetstream { domain: hub }\n") as cluster:
        first = cluster.nodes[0]
        first.stop()
        first.config = "jetstream { domain: hub }\n" + listener(port)
        first.start()
        cluster.wait_healthy()
        (directory / "leaf").mkdir()
        config = "jetstream { domain: leaf }\n" + remote(port)
        with Server(request.param, directory=directory / "leaf", name="leaf", config=config) as leaf:
            yield Site(cluster, leaf)


def test_a_leaf_node_of_one_node_exchanges_messages_with_all(hub_cluster: Site) -> None:
    with hub_cluster.client(1) as second, hub_cluster.client(2) as third, RawClient(hub_cluster.other.address) as leaf:
        wait_linked(second, leaf)
        sids = [second.subscribe("x"), third.subscribe("x"), leaf.subscribe("y")]
        wait_heard(leaf, [second, third])
        for client in (second, third):
            wait_heard(client, [leaf])
        leaf.publish("x", b"from the leaf")
        second.publish("y", b"from a node")
        leaf.publish("x", b"last")
        third.publish("y", b"last")
        for client, sid in zip((second, third), sids, strict=False):
            assert real_messages(client, sid, 2) == [b"from the leaf", b"last"]
        assert sorted(real_messages(leaf, sids[2], 2)) == [b"from a node", b"last"]


def test_a_publish_from_a_leaf_node_is_stored_once_wherever_the_leader_is(hub_cluster: Site) -> None:
    with hub_cluster.client(1) as node, RawClient(hub_cluster.other.address) as leaf:
        wait_linked(node, leaf)
        suffix = node.inbox[-4:]
        for number in range(3):
            name = f"S{number}{suffix}"
            made = node.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], "num_replicas": 1})
            assert "error" not in made, made
            wait_interest(leaf, f"{name}.a")
            before = leaf.acknowledged(f"{name}.a", b"0")["seq"]
            for count in range(1, 6):
                ack = leaf.acknowledged(f"{name}.a", b"%d" % count)
                assert (ack["seq"], ack["domain"]) == (before + count, "hub")
            (answer,) = leaf.request(f"$JS.hub.API.STREAM.INFO.{name}")
            assert json.loads(answer.payload)["state"]["messages"] == before + 5


def test_a_leaf_node_that_is_a_cluster_answers_once(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "hub").mkdir()
    hub_config = "jetstream { domain: hub }\n" + listener(port)
    leaf_config = "jetstream { domain: leaf }\n" + remote(port)
    with (
        Server("jetraft", directory=tmp_path / "hub", name="hub", config=hub_config) as hub,
        Cluster("jetraft", 3, directory=tmp_path, config=leaf_config) as cluster,
        RawClient(hub.address) as centre,
    ):
        edges = [RawClient(node.address) for node in cluster.nodes]
        for edge in edges:
            wait_linked(centre, edge)
        sids = [edge.subscribe("x") for edge in edges]
        wait_heard(centre, edges)
        wait_heard(edges[0], edges[1:])
        hub.running.wait_until(lambda: tellers(hub) == 1, what="one node tells the names of the domain", timeout_s=60)
        centre.publish("x", b"1")
        edges[0].publish("x", b"2")
        here = centre.subscribe("y")
        wait_heard(edges[0], [centre])
        edges[0].publish("y", b"3")
        assert real_messages(centre, here, 1) == [b"3"]
        for edge, sid in zip(edges, sids, strict=True):
            assert sorted(real_messages(edge, sid, 2)) == [b"1", b"2"]
        for number in range(3):
            config = {"name": f"S{number}", "subjects": [f"s{number}.*"], "num_replicas": 1}
            answers = centre.request(f"$JS.leaf.API.STREAM.CREATE.S{number}", json.dumps(config).encode())
            assert [json.loads(answer.payload).get("did_create") for answer in answers] == [True]
            answers = centre.request(f"$JS.leaf.API.STREAM.DELETE.S{number}")
            assert [json.loads(answer.payload).get("success") for answer in answers] == [True]
            assert centre.settle() == []
        for edge in edges:
            edge.close()


def tellers(hub: Server) -> int:
    """How many connections have told the hub the names of the domain `leaf`."""
    _, page = hub.get("/leafz?subs=1")
    return sum("$JS.leaf.API.INFO" in row["subscriptions_list"] for row in page["leafs"])


@pytest.mark.parametrize("hub_kind", ["jetraft", "reference"])
def test_a_queue_group_on_several_nodes_of_a_leaf_cluster_answers_once(hub_kind: Kind, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "hub").mkdir()
    hub_config = "jetstream { domain: hub }\n" + listener(port)
    leaf_config = "jetstream { domain: leaf }\n" + remote(port)
    with (
        Server(hub_kind, directory=tmp_path / "hub", name="hub", config=hub_config) as hub,
        Cluster("jetraft", 3, directory=tmp_path, config=leaf_config) as cluster,
        RawClient(hub.address) as centre,
    ):
        edges = [RawClient(node.address) for node in cluster.nodes]
        for edge in edges:
            wait_linked(centre, edge)
        sids = [edge.subscribe("service", "workers") for edge in edges]
        wait_heard(centre, edges)
        for number in range(30):
            centre.publish("service", b"%d" % number)
        wait_heard(edges[0], [centre])
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < 30:
            assert time.monotonic() < deadline, found
            for edge, sid in zip(edges, sids, strict=True):
                found += real(edge.messages(sid, 0))
        for edge, sid in zip(edges, sids, strict=True):
            edge.settle()
            found += real(edge.messages(sid, 0))
            edge.close()
        assert sorted(found, key=int) == [b"%d" % number for number in range(30)]
