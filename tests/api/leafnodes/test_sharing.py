"""Leaf nodes of accounts that import from each other: what the leaf nodes of one hub are told, get and send."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.harness.leafs import RawLeaf, listener
from tests.harness.ports import free_port
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]

ACCOUNTS = """
accounts {
  A { users: [{user: a, password: p}], exports: [{stream: "e.>"}, {service: "s"}] }
  B {
    users: [{user: b, password: p}]
    imports: [
      {stream: {account: A, subject: "e.>"}, prefix: "from"}
      {service: {account: A, subject: "s"}, to: "q"}
    ]
  }
}
"""
USERS = "authorization { users: [{user: la, password: p, account: A}, {user: lb, password: p, account: B}] }"


@attrs.frozen
class Hub:
    """A server with a leaf node of each account."""

    server: Server
    port: int

    def leaf(self, user: str) -> RawLeaf:
        return RawLeaf(self.port, user=user, password="p", server_id=f"id{user}", name=user, headers=True)

    def client(self, user: str) -> RawClient:
        client = RawClient(self.server.address, connect=False)
        client.connect(**{"user": user, "pass": "p"})
        return client


@pytest.fixture(params=["jetraft", "reference"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hub]:
    kind: Kind = request.param
    port = free_port()
    with Server(kind, directory=tmp_path, name="hub", config=ACCOUNTS + listener(port, USERS)) as server:
        yield Hub(server, port)


def messages(lines: list[str]) -> list[str]:
    """The heads and bodies of messages among lines."""
    return [line for line in lines if not line.startswith(("LS+", "LS-", "INFO"))]


def test_a_leaf_node_is_told_of_imported_services_and_of_subscriptions_of_importers(hub: Hub) -> None:
    with hub.client("b") as importer, hub.leaf("la") as exporting, hub.leaf("lb") as importing:
        exporting.lines()
        importing.until("LS+ q")
        sid = importer.subscribe("from.e.x")
        importer.messages(sid, 0)
        assert exporting.until("LS+ e.x")
        importer.send(f"UNSUB {sid}\r\n".encode())
        assert exporting.until("LS- e.x")


def test_a_message_comes_once_to_a_leaf_node_of_the_importer(hub: Hub) -> None:
    with hub.client("a") as exporter, hub.leaf("la") as exporting, hub.leaf("lb") as importing:
        importing.until("LS+ q")
        importing.send(b"LS+ from.e.x\r\nLS+ from.e.*\r\nLS+ from.e.y q 2\r\n")
        importing.lines()
        exporting.until("LS+ e.y q")
        exporter.publish("e.x", b"1")
        exporter.publish("e.y", b"2")
        exporter.settle()
        assert messages(importing.lines()) == ["LMSG from.e.x 1", "1", "LMSG from.e.y | q 1", "2"]
        assert messages(exporting.lines()) == []


def test_a_message_of_a_leaf_node_crosses_once_by_a_stream_import(hub: Hub) -> None:
    with hub.client("b") as importer, hub.leaf("la") as exporting, hub.leaf("lb") as importing:
        sid = importer.subscribe("from.e.x")
        importing.send(b"LS+ from.e.x\r\n")
        importing.lines()
        exporting.send(b"LMSG e.x 1\r\n1\r\n")
        assert "LMSG e.x 1" not in exporting.lines()
        assert [(m.subject, m.payload) for m in importer.messages(sid, 1)] == [("from.e.x", b"1")]
        assert messages(importing.lines()) == ["LMSG from.e.x 1", "1"]
        assert importer.messages(sid, 0) == []


def test_a_requester_behind_a_leaf_node_is_answered_once(hub: Hub) -> None:
    with hub.client("a") as responder, hub.leaf("lb") as importing:
        sid = responder.subscribe("s")
        responder.settle()
        importing.until("LS+ q")
        importing.send(b"LS+ inbox\r\nLMSG q inbox 1\r\nq\r\n")
        (request,) = responder.messages(sid, 1)
        assert (request.subject, request.payload) == ("s", b"q")
        assert request.headers == [("Nats-Request-Info", '{"acc":"B"}')]
        assert request.reply.startswith("_R_.")
        responder.publish(request.reply, b"a")
        responder.publish(request.reply, b"late")
        responder.settle()
        assert messages(importing.lines()) == ["LMSG inbox 1", "a"]


def test_a_responder_behind_a_leaf_node_answers_a_requester_in_another_account(hub: Hub) -> None:
    with hub.client("b") as requester, hub.leaf("la") as exporting:
        exporting.lines()
        exporting.send(b"LS+ s\r\n")
        exporting.lines()
        sid = requester.subscribe("inbox")
        requester.publish("q", b"q", reply="inbox")
        requester.settle()
        (request,) = [event for event in exporting.settle() if isinstance(event, Message)]
        reply = request.sid  # HMSG of this protocol has no subscription id
        assert (request.subject, request.payload, reply[:4]) == ("s", b"q", "_R_.")
        exporting.send(f"LMSG {reply} 1\r\na\r\n".encode())
        assert [m.payload for m in requester.messages(sid, 1)] == [b"a"]
