"""A node of a cluster that has no JetStream: its clients use that of the others, and nothing is placed on it."""

import json
from collections.abc import Iterator

import pytest

from tests.harness.cluster import Cluster
from tests.harness.leafs import has_interest
from tests.harness.ports import HOST, free_port
from tests.harness.raw import RawClient
from tests.harness.server import Server

pytestmark = [pytest.mark.reference]


@pytest.fixture(scope="module", params=["jetraft", "reference"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(request.param, 4, directory=tmp_path_factory.mktemp("cluster"), without=1) as found:
        yield found


@pytest.fixture
def client(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.nodes[-1].address) as found:
        yield found


def test_it_says_that_it_has_none_and_is_healthy(cluster: Cluster, client: RawClient) -> None:
    assert "jetstream" not in client.info
    node = cluster.nodes[-1]
    assert node.healthy()
    page = node.get("/jsz")[1]
    assert page["disabled"] is True


def test_requests_publishes_and_pulls_of_its_clients_are_served(client: RawClient) -> None:
    made = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "num_replicas": 3})
    assert made["config"]["num_replicas"] == 3
    assert client.acknowledged("s.a", b"1")["seq"] == 1
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1
    assert client.api("INFO")["streams"] == 1
    config = {"durable_name": "d", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": config})
    pull = b'{"batch":1,"expires":5000000000}'
    message = client.request("$JS.API.CONSUMER.MSG.NEXT.S.d", pull)[0]
    assert (message.subject, message.payload) == ("s.a", b"1")
    client.request(message.reply, b"+ACK")
    assert client.api("CONSUMER.INFO.S.d")["num_ack_pending"] == 0
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    pushed = {"deliver_subject": inbox, "ack_policy": "none", "durable_name": "p"}
    client.api("CONSUMER.CREATE.S.p", {"stream_name": "S", "config": pushed})
    assert [one.payload for one in client.messages(sid, 1)] == [b"1"]
    assert client.api("STREAM.DELETE.S")["success"] is True


def test_each_request_has_one_answer(client: RawClient) -> None:
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    for _ in range(20):
        client.publish("$JS.API.STREAM.NAMES", b"", reply=inbox)
    answers = client.messages(sid, 20)
    client.api("INFO")
    assert len(answers) + len(client.messages(sid, 0)) == 20
    assert all("error" not in json.loads(answer.payload) for answer in answers)


def test_nothing_is_placed_on_it(client: RawClient) -> None:
    refused = client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"], "num_replicas": 4})
    assert refused["error"]["err_code"] == 10005


def test_without_a_node_that_has_it_nobody_answers(tmp_path_factory: pytest.TempPathFactory) -> None:
    port = free_port()
    directory, routes = tmp_path_factory.mktemp("alone"), (f"nats://{HOST}:{port}",)
    alone = Server("jetraft", directory=directory, cluster="C", cluster_port=port, routes=routes, jetstream=False)
    with alone as server, RawClient(server.address) as client:
        assert not has_interest(client, "$JS.API.INFO")
