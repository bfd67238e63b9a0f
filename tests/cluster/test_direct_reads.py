"""Reads from replicas that may be a moment behind: a client that says how far they have to be reads its own writes."""

import contextlib
import json

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Kind

WRITES = 60


@pytest.fixture(params=["jetraft"], scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    """Not nats-server: it does not know the header."""
    return request.param  # type: ignore[no-any-return]  # a pytest parameter is untyped


def test_whichever_replica_answers_a_client_reads_what_it_has_just_written(cluster: Cluster) -> None:
    body = {"name": "OWN", "subjects": ["own.>"], "num_replicas": 3, "allow_direct": True}
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node.address)) for node in cluster]
        assert "config" in clients[0].api("STREAM.CREATE.OWN", body)
        for number in range(WRITES):
            written = b"%d" % number
            (ack,) = clients[0].request("own.key", written)
            needed = [("Jetraft-Min-Last-Seq", str(json.loads(ack.payload)["seq"]))]
            for client in clients:
                (answer,) = client.request("$JS.API.DIRECT.GET.OWN.own.key", headers=needed)
                assert (answer.status, answer.payload) == ("", written)


def test_a_position_that_does_not_come_is_refused_with_the_replicas_own(cluster: Cluster) -> None:
    body = {"name": "BEHIND", "subjects": ["behind"], "num_replicas": 3, "allow_direct": True}
    with RawClient(cluster[1].address) as client:
        assert "config" in client.api("STREAM.CREATE.BEHIND", body)
        client.request("behind", b"x")
        (answer,) = client.request("$JS.API.DIRECT.GET.BEHIND.behind", headers=[("Jetraft-Min-Last-Seq", "99")])
    assert answer.status == "412 Replica Behind"
    assert answer.headers in ([("Jetraft-Last-Seq", "0")], [("Jetraft-Last-Seq", "1")])


LINEARIZABLE = [("Jetraft-Consistency", "linearizable")]


def test_a_linearizable_read_has_what_anyone_was_told_to_be_written_before(cluster: Cluster) -> None:
    """Not by a sequence that the reader knows of: another client has written."""
    body = {"name": "LIN", "subjects": ["lin.>"], "num_replicas": 3, "allow_direct": True}
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node.address)) for node in cluster]
        assert "config" in clients[0].api("STREAM.CREATE.LIN", body)
        for number in range(WRITES):
            written = b"%d" % number
            clients[0].request("lin.key", written)
            for client in clients:
                (answer,) = client.request("$JS.API.DIRECT.GET.LIN.lin.key", headers=LINEARIZABLE)
                assert (answer.status, answer.payload) == ("", written)
        assert clients[0].api("STREAM.MSG.DELETE.LIN", {"seq": WRITES})["success"]
        for client in clients:  # a removal has no sequence
            (answer,) = client.request("$JS.API.DIRECT.GET.LIN", b'{"seq":%d}' % WRITES, headers=LINEARIZABLE)
            assert answer.status == "404 Message Not Found"


def test_a_replica_that_cannot_ask_the_others_refuses_a_linearizable_read(cluster: Cluster) -> None:
    body = {"name": "ALONE", "subjects": ["alone"], "num_replicas": 3, "allow_direct": True}
    body["metadata"] = {"jetraft.linearizable_reads": "true"}
    with RawClient(cluster[0].address) as client:
        assert "config" in client.api("STREAM.CREATE.ALONE", body)
        (ack,) = client.request("alone", b"x")
        assert json.loads(ack.payload)["seq"] == 1
        (answer,) = client.request("$JS.API.DIRECT.GET.ALONE.alone")
        assert answer.payload == b"x"
        for node in cluster.nodes[1:]:
            node.freeze()
        try:
            (answer,) = client.request("$JS.API.DIRECT.GET.ALONE.alone")
            assert answer.status == "412 Read Not Confirmed"
            (answer,) = client.request("$JS.API.DIRECT.GET.ALONE.alone", headers=[("Jetraft-Consistency", "eventual")])
            assert answer.payload == b"x", "a request may ask for less than its stream says"
        finally:
            for node in cluster.nodes[1:]:
                node.thaw()
        cluster.wait_healthy()
