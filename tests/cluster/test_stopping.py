"""A server that stops hands over what it leads, and tells those who wait for messages that it goes."""

import json
import signal
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

PULL = json.dumps({"batch": 3, "expires": 30_000_000_000}).encode()
LAME_DUCK = "lame_duck_duration: 30s\nlame_duck_grace_period: 10s\n"


def create(node: Server, replicas: int) -> str:
    """A stream with a consumer; returns the name of its leader."""
    config = {"durable_name": "C", "ack_policy": "explicit"}
    with RawClient(node.address) as client:
        created = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": replicas})
        consumer = client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    assert "error" not in consumer, consumer
    return str(created["cluster"]["leader"]) if "cluster" in created else node.name


def wait_for_messages(node: Server, client: RawClient) -> None:
    """A pull that the leader has: one that is still on its way when leadership moves is nobody's, and times out."""
    inbox = client.new_inbox()
    client.subscribe(inbox)
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", PULL, reply=inbox)
    with RawClient(node.address) as asking:
        node.running.wait_until(
            lambda: asking.api("CONSUMER.INFO.S.C").get("num_waiting") == 1,
            what="the leader has the pull",
        )


def first_message(client: RawClient) -> Message:
    while not isinstance(event := client.next_event(), Message):
        assert event is not None, "the connection ended without a word"
    return event


def test_who_waits_at_a_server_that_stops_hears_it_with_what_is_left_of_the_request(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        create(server, replicas=1)
        with RawClient(server.address) as client:
            wait_for_messages(server, client)
            server.running.signal(signal.SIGTERM)
            told = first_message(client)
        assert told.status == "409 Server Shutdown"
        assert told.headers == [("Nats-Pending-Messages", "3"), ("Nats-Pending-Bytes", "0")]
        assert server.running.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2], ids=["stop", "lame duck"])
def test_leadership_moves_before_the_server_goes(tmp_path: Path, number: int) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=LAME_DUCK) as cluster:
        leader = cluster.named(create(cluster[0], replicas=3))
        other = next(node for node in cluster if node is not leader)
        with RawClient(other.address) as client:
            wait_for_messages(other, client)
            leader.running.signal(number)
            assert first_message(client).status == "409 Leadership Change"
            assert client.acknowledged("s", b"x")["seq"] == 1
            info = client.api("STREAM.INFO.S")["cluster"]
            assert info["leader"] not in ("", leader.name)
        if number == signal.SIGUSR2:
            assert leader.running.running, "its clients have time to go elsewhere"
