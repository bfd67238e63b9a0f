"""Streams that are made by a template when the first message comes, on one node and on three."""

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG: Final = "jetstream { legacy_api: true }"
TEMPLATE: Final = {"name": "T", "config": {"subjects": ["CLIENT.*"], "max_msgs": 1000}, "max_streams": 3}
MESSAGES: Final = 200


@pytest.fixture(params=[1, 3])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sequence[Server]]:
    if request.param == 1:
        with Server("jetraft", directory=tmp_path, config=CONFIG) as server:
            yield [server]
    else:
        with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster:
            yield cluster.nodes


def create(client: RawClient, replicas: int, **more: Any) -> dict[str, Any]:
    config = {**TEMPLATE["config"], "num_replicas": replicas}  # type: ignore[dict-item]
    return client.api("STREAM.TEMPLATE.CREATE.T", {**TEMPLATE, "config": config, **more})


def stored(client: RawClient, stream: str) -> list[bytes]:
    state = client.api(f"STREAM.INFO.{stream}")["state"]
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        message = client.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})["message"]
        found.append(base64.b64decode(message["data"]))
    return found


def test_the_first_message_makes_the_stream_and_is_stored_in_it_before_all_others(nodes: Sequence[Server]) -> None:
    with RawClient(nodes[0].address) as client, RawClient(nodes[-1].address) as other:
        made = create(client, len(nodes))
        assert made["type"] == "io.nats.jetstream.api.v1.stream_template_create_response"
        assert (made["config"]["max_streams"], made["streams"]) == (3, [])
        assert client.api("STREAM.NAMES")["streams"] in ([], None)
        inbox = other.new_inbox()
        sid = other.subscribe(inbox)
        for number in range(MESSAGES):  # all at once, before anybody has made the stream
            other.publish("CLIENT.acme", b"%d" % number, reply=inbox)
        acks = [json.loads(answer.payload) for answer in other.messages(sid, MESSAGES)]
        assert [ack["seq"] for ack in acks] == list(range(1, MESSAGES + 1))
        assert {ack["stream"] for ack in acks} == {"CLIENT_acme"}
        assert stored(client, "CLIENT_acme") == [b"%d" % number for number in range(MESSAGES)]
        config = client.api("STREAM.INFO.CLIENT_acme")["config"]
        assert (config["subjects"], config["max_msgs"], config["num_replicas"]) == (["CLIENT.acme"], 1000, len(nodes))
        for node in nodes:  # each node brings publishes to the leader, and each is stored once
            with RawClient(node.address) as publisher:
                assert publisher.acknowledged("CLIENT.acme", b"x")["stream"] == "CLIENT_acme"
        assert client.api("STREAM.INFO.CLIENT_acme")["state"]["last_seq"] == MESSAGES + len(nodes)


def test_a_template_makes_no_more_streams_than_it_may_and_takes_them_with_it(nodes: Sequence[Server]) -> None:
    with RawClient(nodes[0].address) as client:
        create(client, len(nodes))
        for name in ("a", "b", "c"):
            assert client.acknowledged(f"CLIENT.{name}", b"x")["seq"] == 1
        refused = client.acknowledged("CLIENT.d", b"x")
        assert refused["error"]["err_code"] == 10027
        shown = client.api("STREAM.TEMPLATE.INFO.T")
        assert shown["streams"] == ["CLIENT_a", "CLIENT_b", "CLIENT_c"]
        assert client.api("STREAM.TEMPLATE.NAMES")["streams"] == ["T"]
        assert client.api("STREAM.DELETE.CLIENT_b")["success"]
        assert client.acknowledged("CLIENT.d", b"x")["seq"] == 1  # there is room again
        client.api("STREAM.CREATE.KEPT", {"name": "KEPT", "subjects": ["kept"]})
        assert client.api("STREAM.TEMPLATE.DELETE.T")["success"]
        assert client.api("STREAM.NAMES")["streams"] == ["KEPT"]
        assert client.api("STREAM.TEMPLATE.INFO.T")["error"]["err_code"] == 10068
        found = client.request("CLIENT.a", b"x")
        assert found[0].status.startswith("503")  # nobody takes it any more


def test_what_a_template_may_not_be_is_refused(nodes: Sequence[Server]) -> None:
    with RawClient(nodes[0].address) as client:

        def refused(subject: str, body: object) -> object:
            return client.api(subject, body)["error"]["err_code"]

        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        assert refused("STREAM.TEMPLATE.CREATE.X", TEMPLATE) == 10073
        assert refused("STREAM.TEMPLATE.CREATE.T", {**TEMPLATE, "max_streams": 0}) == 10066
        assert refused("STREAM.TEMPLATE.CREATE.T", {**TEMPLATE, "config": {"name": "N", "subjects": ["a"]}}) == 10066
        assert refused("STREAM.TEMPLATE.CREATE.T", {**TEMPLATE, "config": {}}) == 10066
        assert refused("STREAM.TEMPLATE.CREATE.T", {**TEMPLATE, "config": {"subjects": ["s.*"]}}) == 10065
        assert refused("STREAM.TEMPLATE.CREATE.T", None) == 10003
        create(client, 1)
        assert refused("STREAM.TEMPLATE.CREATE.T", TEMPLATE) == 10066
        assert refused("STREAM.TEMPLATE.CREATE.U", {**TEMPLATE, "name": "U"}) == 10065
        assert refused("STREAM.CREATE.C", {"name": "C", "subjects": ["CLIENT.x"]}) == 10065
        assert refused("STREAM.UPDATE.S", {"name": "S", "subjects": ["CLIENT.x"]}) == 10065
        forged = {"name": "F", "subjects": ["f"], "metadata": {"jetraft.template": "T"}}
        assert refused("STREAM.CREATE.F", forged) == 10052
        client.acknowledged("CLIENT.x", b"x")
        assert refused("STREAM.UPDATE.CLIENT_x", {"name": "CLIENT_x", "subjects": ["CLIENT.x"]}) == 10052


def test_templates_and_their_streams_survive_restarts_and_leader_changes(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster:
        with RawClient(cluster[0].address) as client:
            create(client, 3)
            assert client.acknowledged("CLIENT.a", b"1")["seq"] == 1
            for _ in range(3):
                client.api("STREAM.LEADER.STEPDOWN.CLIENT_a")
                client.acknowledged("CLIENT.a", b"more")
            client.api("META.LEADER.STEPDOWN")
            assert client.acknowledged("CLIENT.b", b"1")["seq"] == 1
        for node in cluster:
            node.kill()
        for node in cluster:
            node.start(wait=False)
        for node in cluster:
            node.wait_listening()
        cluster.wait_healthy()
        with RawClient(cluster[1].address) as client:
            shown = client.api("STREAM.TEMPLATE.INFO.T")
            assert shown["streams"] == ["CLIENT_a", "CLIENT_b"]
            assert client.acknowledged("CLIENT.a", b"5")["seq"] == 5
            assert client.acknowledged("CLIENT.c", b"1")["seq"] == 1
            cluster[0].kill()
            with RawClient(cluster[2].address) as another:
                assert another.acknowledged("CLIENT.a", b"6")["seq"] == 6


def test_no_ack_is_lost_and_nothing_is_stored_out_of_order_when_a_leader_is_killed(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster:
        with RawClient(cluster[0].address) as client:
            create(client, 3)
            client.acknowledged("CLIENT.a", b"0")
            leader = client.api("STREAM.INFO.CLIENT_a")["cluster"]["leader"]
        asked, *_ = (node for node in cluster if node.name != leader)
        with RawClient(asked.address) as client:
            for number in range(1, MESSAGES):
                if number == MESSAGES // 2:
                    cluster.named(leader).kill()
                client.acknowledged("CLIENT.a", b"%d" % number)  # again under its id, until it is there
            assert stored(client, "CLIENT_a") == [b"%d" % number for number in range(MESSAGES)]


def test_the_oldest_subjects_work_and_the_streams_answer_as_then(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=CONFIG) as server, RawClient(server.address) as client:

        def ask(subject: str, body: object = None) -> bytes:
            payload = b"" if body is None else json.dumps(body).encode()
            return client.request(f"$JS.{subject}", payload)[0].payload

        assert ask("TEMPLATE.T.CREATE", TEMPLATE) == b"+OK"
        assert json.loads(ask("TEMPLATES.LIST")) == ["T"]
        assert client.request("CLIENT.acme", b"x")[0].payload == b"+OK"
        shown = json.loads(ask("TEMPLATE.T.INFO"))
        assert (shown["streams"], shown["config"]["max_streams"]) == (["CLIENT_acme"], 3)
        assert ask("TEMPLATE.T.CREATE", {**TEMPLATE, "config": 5}).startswith(b"-ERR")
        assert ask("TEMPLATE.T.DELETE") == b"+OK"
        assert ask("TEMPLATE.T.INFO") == b"-ERR 'template not found'"
        assert client.api("STREAM.NAMES")["streams"] in ([], None)


def test_without_the_option_requests_of_then_are_not_answered(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server, RawClient(server.address) as client:
        inbox = client.new_inbox()
        client.subscribe(inbox)
        client.publish("$JS.API.STREAM.TEMPLATE.NAMES", b"", reply=inbox)
        assert client.rest(0.5) == []


def test_a_subject_that_is_no_text_makes_no_stream_and_does_no_harm(nodes: Sequence[Server]) -> None:
    with RawClient(nodes[0].address) as client:
        create(client, len(nodes))
        assert client.acknowledged("CLIENT.a", b"x")["seq"] == 1
        inbox = client.new_inbox()
        sid = client.subscribe(inbox)
        for _ in range(2):
            client.send(b"PUB CLIENT.\xff %s 1\r\nx\r\n" % inbox.encode())
            (answer,) = client.messages(sid, 1)
            assert json.loads(answer.payload)["error"]["err_code"] == 10096
        assert client.acknowledged("CLIENT.a", b"x")["seq"] == 2
        assert client.api("STREAM.NAMES")["streams"] == ["CLIENT_a"]
