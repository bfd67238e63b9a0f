"""The link between two of three servers is cut; the third sees both. Clients of either go on."""

import json
import secrets
import time
from collections.abc import Iterator

import pytest

from tests.faults import netns
from tests.faults.netns import Network, both_ways
from tests.faults.nodes import Node, Nodes
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient

CONFIG = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "allow_direct": True}
COUNT = 50


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    if (reason := netns.missing()) is not None:
        pytest.skip(f"DETOURS NOT RUN: {reason}")
    with Network(3) as network, Nodes("jetraft", network, 3, directory=tmp_path_factory.mktemp("detours")) as made:
        with RawClient(made.all[0].client_address) as client:
            assert "error" not in client.api("STREAM.CREATE.S", CONFIG)
        yield made


@pytest.fixture
def cut(nodes: Nodes) -> Iterator[list[tuple[int, int]]]:
    """n2 leads the stream and the meta group, and n1 has lost its link to it."""
    n1, n2, n3 = nodes.all
    lead(n3, "STREAM.LEADER.STEPDOWN.S", n2, lambda: n2.leads("S"))
    lead(n3, "META.LEADER.STEPDOWN", n2, lambda: meta_leader(n2) == "n2")
    pairs = both_ways([n1.place], [n2.place])
    nodes.network.cut(pairs)
    wait_until(lambda: "offline" in json.dumps(n2.get("/jsz")[1]) and is_offline(n2, "n1"))
    yield pairs
    nodes.network.heal()
    wait_until(lambda: not is_offline(n2, "n1"))


def test_a_publish_at_a_node_without_a_link_to_the_leader_is_acknowledged(
    nodes: Nodes, cut: list[tuple[int, int]]
) -> None:
    n1, n2, _ = nodes.all
    with RawClient(n1.client_address) as client:
        before = int(client.api("STREAM.INFO.S")["state"]["messages"])
        acks = [client.acknowledged("s.x", b"%d" % number) for number in range(COUNT)]
        after = client.api("STREAM.INFO.S")
    assert [ack["seq"] for ack in acks] == list(range(before + 1, before + COUNT + 1))
    assert after["cluster"]["leader"] == "n2"
    assert is_offline(n2, "n1")


def test_requests_of_the_api_and_pulls_take_that_way(nodes: Nodes, cut: list[tuple[int, int]]) -> None:
    n1, n2, _ = nodes.all
    with RawClient(n1.client_address) as client:
        for number in range(COUNT):
            client.acknowledged("s.pulled", b"%d" % number)
        consumer = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.pulled"}
        made = client.api("CONSUMER.CREATE.S.c.s.pulled", {"stream_name": "S", "config": consumer})
        assert made["name"] == "c"
        assert client.api("STREAM.NAMES")["streams"] == ["S"]
        found = client.request("$JS.API.CONSUMER.MSG.NEXT.S.c", json.dumps({"batch": COUNT}).encode(), replies=COUNT)
        assert [message.payload for message in found] == [b"%d" % number for number in range(COUNT)]
        for message in found:
            client.publish(message.reply, b"+ACK")
        client.settle()
        wait_until(lambda: client.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 0)
        assert client.api("CONSUMER.DELETE.S.c")["success"]
        made = client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
        assert "error" not in made, made
        assert client.acknowledged("t", b"x")["stream"] == "T"
        assert client.api("STREAM.DELETE.T")["success"]
    assert is_offline(n2, "n1")


def test_core_messages_arrive_once_before_during_and_after(nodes: Nodes, cut: list[tuple[int, int]]) -> None:
    n1, n2, _ = nodes.all
    with RawClient(n1.client_address) as sending, RawClient(n2.client_address) as receiving:
        sid = receiving.subscribe("core.>")
        receiving.settle()
        wait_until(lambda: received(sending, receiving) > 0)
        for number in range(COUNT):
            sending.publish(f"core.{number}")
        sending.settle()
        found = receiving.messages(sid, COUNT, PATIENCE_S)
        subjects = [message.subject for message in found if not message.payload]
        assert subjects == [f"core.{number}" for number in range(COUNT)]
        nodes.network.heal(cut)
        wait_until(lambda: not is_offline(n2, "n1"))
        wait_until(lambda: received(sending, receiving) > 0)
        assert received(sending, receiving) == 1


def received(sending: RawClient, receiving: RawClient) -> int:
    """How often a message arrives that is sent once; 0 when it did not arrive within half a second."""
    probe = secrets.token_bytes(8)
    sending.publish("core.probe", probe)
    sending.settle()
    events = [receiving.next_event(0.5), *receiving.settle()]
    return sum(isinstance(event, Message) and event.payload == probe for event in events)


def lead(through: Node, subject: str, node: Node, leads: object) -> None:
    """Have a node lead a group."""
    assert callable(leads)
    deadline = time.monotonic() + PATIENCE_S
    while not leads():
        with RawClient(through.client_address) as client:
            client.api(subject, {"placement": {"preferred": node.name}})
        assert time.monotonic() < deadline
        time.sleep(0.1)


def meta_leader(node: Node) -> str:
    _, body = node.get("/jsz")
    return str(((body or {}).get("meta_cluster") or {}).get("leader"))


def is_offline(node: Node, name: str) -> bool:
    """Whether the meta leader has no link with a node."""
    _, body = node.get("/jsz")
    peers = ((body or {}).get("meta_cluster") or {}).get("replicas") or []
    return any(peer["name"] == name and peer.get("offline") for peer in peers)


def wait_until(holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
