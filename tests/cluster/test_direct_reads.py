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
