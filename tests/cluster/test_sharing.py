"""Three nodes: services, streams and JetStream of one account, used by another on every node."""

import time
from pathlib import Path

from tests.cluster.test_accounts import as_user, one
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient

CONFIG = """
accounts {
  A { users [{user: a, password: x}], jetstream: enabled
      exports [
        {service: "$JS.API.>", response_type: stream}, {service: "$JS.ACK.>"}
        {service: "orders.>"}, {service: "questions.>"}, {stream: "news.>"}
      ] }
  B { users [{user: b, password: x}], jetstream: enabled, mappings { "ask": "a.questions.mapped" }
      imports [
        {service: {account: A, subject: "$JS.API.>"}, to: "a.api.>"}, {service: {account: A, subject: "$JS.ACK.>"}}
        {service: {account: A, subject: "orders.>"}, to: "a.orders.>"}
        {service: {account: A, subject: "questions.>"}, to: "a.questions.>"}
        {stream: {account: A, subject: "news.>"}, prefix: "a"}
      ] }
}
"""
STREAM = {"name": "ORDERS", "subjects": ["orders.>"], "num_replicas": 3, "storage": "file"}
CONSUMER = {"stream_name": "ORDERS", "config": {"durable_name": "work", "name": "work", "ack_policy": "explicit"}}
RETRY_S = 0.3


def until_received(sender: RawClient, subject: str, receiver: RawClient, sid: str) -> Message:
    """Publish until it is received: nodes learn of interest a moment later. What came twice is read as well."""
    deadline = time.monotonic() + PATIENCE_S
    found: list[Message] = []
    while not found:
        assert time.monotonic() < deadline, f"{subject} did not arrive"
        sender.publish(subject, b"first")
        found = receiver.messages(sid, 1, timeout_s=RETRY_S)
    sender.publish(subject, b"last")
    while found[-1].payload != b"last":
        assert time.monotonic() < deadline, f"{subject} did not arrive again"
        found += receiver.messages(sid, 1)
    return found[-1]


def test_accounts_use_what_another_exports_on_every_node(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster:
        owner = as_user(next(iter(cluster)), "a")
        assert owner.api("STREAM.CREATE.ORDERS", STREAM)["did_create"] is True
        owner.api("CONSUMER.CREATE.ORDERS.work", CONSUMER)
        users = [as_user(node, "b") for node in cluster]
        for number, user in enumerate(users, start=1):
            acknowledged = user.acknowledged(f"a.orders.{number}", b"%d" % number)
            assert (acknowledged["stream"], acknowledged["seq"]) == ("ORDERS", number)
        for number, user in enumerate(users, start=1):
            assert b"ORDERS" in one(user.request("a.api.STREAM.NAMES")).payload
            pulled = one(user.request("a.api.CONSUMER.MSG.NEXT.ORDERS.work", b'{"batch":1}'))
            assert (pulled.subject, pulled.payload) == (f"orders.{number}", b"%d" % number)
            assert b"Nats-Request-Info" not in pulled.hdr
            assert one(user.request(pulled.reply, b"+ACK")).payload == b""
        assert owner.api("CONSUMER.INFO.ORDERS.work")["ack_floor"]["stream_seq"] == 3
        for client in (owner, *users):
            client.close()


def test_requests_and_streams_reach_the_other_account_on_other_nodes(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster:
        nodes = list(cluster)
        responder, publisher = as_user(nodes[1], "a"), as_user(nodes[2], "a")
        asked = responder.subscribe("questions.>", "g")
        for node in nodes:
            requester = as_user(node, "b")
            news = requester.subscribe("a.news.*", f"g-{node.name}")
            until_received(requester, "ask", responder, asked)
            inbox = requester.new_inbox()
            answers = requester.subscribe(inbox)
            requester.publish("ask", b"question", reply=inbox)
            question = one(responder.messages(asked, 1))
            assert (question.subject, question.payload) == ("questions.mapped", b"question")
            assert b'Nats-Request-Info: {"acc":"B","rtt":' in question.hdr
            responder.publish(question.reply, b"answer")
            responder.publish(question.reply, b"too many")
            responder.settle()
            assert [message.payload for message in requester.messages(answers, 1)] == [b"answer"]
            assert until_received(publisher, "news.x", requester, news).subject == "a.news.x"
            requester.close()
        for client in (responder, publisher):
            client.close()
