"""STREAM.MSG.GET through every node: it shows what was acknowledged before it was sent, after elections too."""

import contextlib
import json
import time

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Kind

WRITES = 40


@pytest.fixture(params=["jetraft"], scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    """Not nats-server, whose leader answers without asking anybody."""
    return request.param  # type: ignore[no-any-return]  # a pytest parameter is untyped


def last_of(client: RawClient, stream: str, subject: str) -> int:
    """The sequence of the last message; asked again while there is no leader."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = client.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        if "message" in found:
            return int(found["message"]["seq"])
        assert time.monotonic() < deadline, found


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_get_at_any_node_shows_what_was_acknowledged_before_it(cluster: Cluster, replicas: int) -> None:
    name = f"OWN{replicas}"
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node.address)) for node in cluster]
        body = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas}
        assert "config" in clients[0].api(f"STREAM.CREATE.{name}", body)
        for number in range(WRITES):
            acked = clients[number % 3].acknowledged(f"{name}.key", b"%d" % number)
            for client in clients:
                assert last_of(client, name, f"{name}.key") == acked["seq"]


def test_answers_come_in_order_with_what_changes_the_stream(cluster: Cluster) -> None:
    """A client that does not wait sends gets, a purge and gets again, to a follower and to the leader."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node.address)) for node in cluster]
        for number, client in enumerate(clients):
            name = f"ORDER{number}"
            body = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3}
            assert "config" in client.api(f"STREAM.CREATE.{name}", body)
            for _ in range(30):
                client.acknowledged(f"{name}.x", b"x")
            inbox = client.new_inbox()
            sid = client.subscribe(inbox)
            for seq in range(1, 31):
                client.publish(f"$JS.API.STREAM.MSG.GET.{name}", b'{"seq":%d}' % seq, reply=inbox)
            client.publish(f"$JS.API.STREAM.PURGE.{name}", reply=inbox)
            client.publish(f"$JS.API.STREAM.MSG.GET.{name}", b'{"seq":1}', reply=inbox)
            answers = [json.loads(answer.payload) for answer in client.messages(sid, 32)]
            assert [answer.get("message", {}).get("seq") for answer in answers[:30]] == list(range(1, 31))
            assert answers[30]["purged"] == 30
            assert answers[31]["error"]["err_code"] == 10037


def test_a_leader_that_was_stopped_for_a_while_does_not_answer_with_what_it_remembers(cluster: Cluster) -> None:
    """It keeps its connections, takes a get that waited in its socket, and knows nothing of its successor."""
    with contextlib.ExitStack() as stack:
        clients = {node.name: stack.enter_context(RawClient(node.address)) for node in cluster}
        some = next(iter(clients.values()))
        created = some.api("STREAM.CREATE.PAUSED", {"name": "PAUSED", "subjects": ["paused.>"], "num_replicas": 3})
        before = some.acknowledged("paused.key", b"before")["seq"]
        leader = next(node for node in cluster if node.name == created["cluster"]["leader"])
        other = next(client for name, client in clients.items() if name != leader.name)
        old = clients[leader.name]
        assert last_of(old, "PAUSED", "paused.key") == before
        leader.freeze()
        try:
            inbox = old.new_inbox()
            sid = old.subscribe(inbox)
            after = other.acknowledged("paused.key", b"after")["seq"]
            old.publish("$JS.API.STREAM.MSG.GET.PAUSED", b'{"last_by_subj":"paused.key"}', reply=inbox)
        finally:
            leader.thaw()
        (answer,) = old.messages(sid, 1)
        found = json.loads(answer.payload)
        assert after > before
        assert found.get("message", {}).get("seq") == after, found
