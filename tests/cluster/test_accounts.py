"""Three nodes, two accounts with the same stream, subjects and consumer: what one does the other never sees."""

from pathlib import Path

from tests.harness.cluster import Cluster
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

CONFIG = """
accounts {
  A { users [{user: a, password: x}], jetstream: enabled }
  B { users [{user: b, password: x}], jetstream: enabled }
  C { users [{user: c, password: x}] }
}
"""
STREAM = {"name": "ORDERS", "subjects": ["orders.>"], "num_replicas": 3, "storage": "file", "allow_direct": True}
CONSUMER = {"stream_name": "ORDERS", "config": {"durable_name": "work", "name": "work", "ack_policy": "explicit"}}


def as_user(node: Server, user: str) -> RawClient:
    return RawClient(node.address, **{"user": user, "pass": "x"})  # type: ignore[arg-type]  # fields of CONNECT


def one(found: list[Message]) -> Message:
    (message,) = found
    return message


def test_two_accounts_with_the_same_names_share_nothing(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster:
        clients = {(node.name, user): as_user(node, user) for node in cluster for user in "abc"}
        heard = {place: client.subscribe("orders.>") for place, client in clients.items() if place[1] != "c"}
        told = {place: client.subscribe("$JS.EVENT.ADVISORY.STREAM.CREATED.>") for place, client in clients.items()}
        for client in clients.values():
            client.settle()
        for user, node in (("a", "n1"), ("b", "n2")):
            answer = clients[node, user].api("STREAM.CREATE.ORDERS", STREAM)
            assert answer["did_create"] is True, answer
            clients[node, user].api("CONSUMER.CREATE.ORDERS.work", CONSUMER)
        refused = clients["n3", "c"].api("STREAM.CREATE.ORDERS", STREAM)
        assert refused["error"]["err_code"] == 10039
        for number in range(1, 6):
            for user, node in (("a", "n2"), ("b", "n3")):
                text = f"{user}{number}".encode()
                acknowledged = clients[node, user].acknowledged("orders.new", text)
                assert (acknowledged["stream"], acknowledged["seq"]) == ("ORDERS", number)
        for user in "ab":
            client = clients["n3", user]
            info = client.api("STREAM.INFO.ORDERS")
            assert (info["state"]["messages"], info["state"]["consumer_count"]) == (5, 1)
            assert client.api("INFO")["streams"] == 1
            direct = one(client.request("$JS.API.DIRECT.GET.ORDERS", b'{"seq":3}'))
            assert direct.payload == f"{user}3".encode()
            pulled = client.request("$JS.API.CONSUMER.MSG.NEXT.ORDERS.work", b'{"batch":5}', replies=5)
            assert [message.payload for message in pulled] == [f"{user}{number}".encode() for number in range(1, 6)]
            for message in pulled:
                client.publish(message.reply)
            client.settle()
        assert one(clients["n1", "c"].request("orders.new", b"c")).status == "503"
        assert clients["n1", "c"].request("$JS.ACK.ORDERS.work.1.1.1.1.0")[0].status == "503"
        clients["n1", "a"].api("STREAM.DELETE.ORDERS")
        assert clients["n2", "a"].api("STREAM.INFO.ORDERS")["error"]["err_code"] == 10059
        assert clients["n2", "b"].api("STREAM.INFO.ORDERS")["state"]["messages"] == 5
        for (node, user), client in clients.items():
            created = client.messages(told[node, user], 0 if user == "c" else 1)
            assert len(created) == (user != "c")
            if user != "c":
                wanted = [f"{user}{number}".encode() for number in range(1, 6)]
                assert [message.payload for message in client.messages(heard[node, user], 5)] == wanted
            assert client.unclaimed == []
            client.close()
