"""The system account of a cluster: every node answers for itself, and events of all nodes reach every node."""

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

CONFIG = """
accounts {
  SYS { users [{user: sys, password: x}] }
  A { users [{user: a, password: x}], jetstream: enabled }
}
system_account: SYS
"""
NAMES = ["n1", "n2", "n3"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with a system account."""
    with Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("system"), config=CONFIG) as running:
        yield running


def as_user(node: Server, user: str) -> RawClient:
    login: dict[str, Any] = {"user": user, "pass": "x", "name": f"{user} of {node.name}"}
    client = RawClient(node.address, **login)
    client.settle()
    return client


def answers(client: RawClient, subject: str, body: bytes = b"", *, count: int) -> list[dict[str, Any]]:
    """The answers to a request; asked again as long as interest has not reached every node."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = client.request(f"$SYS.REQ.{subject}", body, replies=count)
        if len(found) >= count or time.monotonic() > deadline:
            return [json.loads(message.payload) for message in found]


def names_of(found: list[dict[str, Any]]) -> list[str]:
    return sorted(answer["server"]["name"] for answer in found)


def test_every_node_answers_for_itself(cluster: Cluster) -> None:
    with as_user(cluster.nodes[0], "sys") as client:
        varz = answers(client, "SERVER.PING.VARZ", count=3)
        assert names_of(varz) == NAMES
        assert all(answer["data"]["server_name"] == answer["server"]["name"] for answer in varz)
        assert {answer["server"]["cluster"] for answer in varz} == {"C"}
        assert names_of(answers(client, "SERVER.PING", count=3)) == NAMES
        ids = {answer["server"]["name"]: answer["server"]["id"] for answer in varz}
        [answer] = answers(client, f"SERVER.{ids['n3']}.STATSZ", count=1)
        assert answer["server"]["name"] == "n3"
        assert answer["statsz"]["active_servers"] == 3
        assert sorted(route["name"] for route in answer["statsz"]["routes"]) == ["n1", "n2"]
        [answer] = answers(client, "SERVER.PING.VARZ", b'{"server_name":"n2","exact_match":true}', count=1)
        assert answer["server"]["name"] == "n2"


def test_a_request_for_the_leader_has_one_answer(cluster: Cluster) -> None:
    with as_user(cluster.nodes[1], "sys") as client:
        answer = answers(client, "SERVER.PING.JSZ", b'{"leader_only":true}', count=1)[0]
        assert answer["data"]["meta_cluster"]["leader"] == answer["server"]["name"]
        deadline = time.monotonic() + PATIENCE_S
        while roles(client) != ["FOLLOWER", "FOLLOWER", "LEADER"]:
            assert time.monotonic() < deadline, roles(client)


def roles(client: RawClient) -> list[str]:
    """What the nodes are in the meta group, the only one of the system account."""
    groups = [answer["data"]["SYS"] for answer in answers(client, "SERVER.PING.RAFTZ", count=3)]
    return sorted(group["state"] for found in groups for group in found.values())


def test_an_account_sees_its_clients_on_all_nodes_and_who_it_is_once(cluster: Cluster) -> None:
    with as_user(cluster.nodes[0], "a") as client, as_user(cluster.nodes[2], "a"):
        rows = [answer["data"]["connections"] for answer in answers(client, "SERVER.PING.CONNZ", count=3)]
        assert sorted(row["name"] for part in rows for row in part) == ["a of n1", "a of n3"]
        [who] = answers(client, "USER.INFO", count=1)
        assert who["data"] == {"user": "a", "account": "A", "account_name": "A"}
        assert client.request("$SYS.REQ.SERVER.PING.VARZ")[0].status == "503"


@pytest.mark.parametrize("node", [0, 1, 2])
def test_routes_are_the_other_nodes(cluster: Cluster, node: int) -> None:
    _, page = cluster.nodes[node].get("/routez?subs=1")
    assert sorted(route["remote_name"] for route in page["routes"]) == sorted({*NAMES} - {NAMES[node]})
    ids = {other.get("/varz")[1]["server_id"] for other in cluster.nodes}
    assert {route["remote_id"] for route in page["routes"]} == ids - {page["server_id"]}
    assert all(route["subscriptions"] == len(route["subscriptions_list"]) for route in page["routes"])


def heard(client: RawClient, ending: str) -> dict[str, Any]:
    """The first event whose subject ends so."""
    while True:
        event = client.unclaimed.pop(0) if client.unclaimed else client.next_event(PATIENCE_S)
        assert event is not None, ending
        if isinstance(event, Message) and event.subject.endswith(ending):
            document: dict[str, Any] = json.loads(event.payload)
            return document


def test_events_of_all_nodes_are_heard(cluster: Cluster) -> None:
    with as_user(cluster.nodes[0], "sys") as client:
        answers(client, "SERVER.PING.IDZ", count=3)
        client.subscribe("$SYS.ACCOUNT.A.CONNECT")
        client.subscribe("$SYS.SERVER.*.SHUTDOWN")
        client.settle()
        deadline = time.monotonic() + PATIENCE_S
        while not any(isinstance(event, Message) for event in client.unclaimed):
            assert time.monotonic() < deadline, "no event of another node"
            with as_user(cluster.nodes[2], "a"):
                client.unclaimed += [event for event in client.settle() if isinstance(event, Message)]
        told = heard(client, ".CONNECT")
        assert (told["server"]["name"], told["client"]["name"]) == ("n3", "a of n3")
        cluster.nodes[2].running.signal(signal.SIGTERM)
        assert heard(client, ".SHUTDOWN")["name"] == "n3"
