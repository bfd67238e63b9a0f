"""Real processes: who has the ack of a publish finds the message in a mirror of the stream, at the first look.

The copy leaves before the ack, on the same ways, and a direct get at the mirror waits for what is on its way into it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.leafs import joined
from tests.harness.patience import until
from tests.harness.raw import RawClient

LOOKS = 100


def ask(client: RawClient, subject: str, body: object = None) -> bytes:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    (answer,) = client.request(subject, payload)
    return answer.payload


def look(client: RawClient) -> list[int]:
    """Publish with an ack, then read the mirror; returns the numbers that were not found at once."""
    missed = []
    for number in range(LOOKS):
        assert b'"seq"' in ask(client, "t.a", b"%d" % number)
        if ask(client, "$JS.API.DIRECT.GET.M.t.a") != b"%d" % number:
            missed.append(number)
    return missed


def caught_up(client: RawClient) -> bool:
    mirror = json.loads(ask(client, "$JS.API.STREAM.INFO.M")).get("mirror")
    return mirror is not None and mirror["lag"] == 0 and mirror["active"] >= 0


def make_mirror(client: RawClient, **mirror: object) -> None:
    config = {"name": "M", "allow_direct": True, "max_msgs_per_subject": 1, "mirror": {"name": "TEST", **mirror}}
    assert b'"error"' not in ask(client, "$JS.API.STREAM.CREATE.M", config)
    until(lambda: caught_up(client))


ORIGIN = {"name": "TEST", "subjects": ["t.>"], "max_msgs_per_subject": 1, "allow_direct": True}


def test_a_mirror_behind_a_leaf_node_connection(tmp_path: Path) -> None:
    with joined("jetraft", "jetraft", tmp_path) as pair, pair.clients() as (hub, leaf):
        assert b'"error"' not in ask(hub, "$JS.API.STREAM.CREATE.TEST", ORIGIN)
        make_mirror(leaf, external={"api": "$JS.hub.API", "deliver": ""})
        assert look(leaf) == []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path) as running:
        yield running


def test_a_mirror_in_a_cluster_seen_from_its_own_node_and_from_that_of_its_origin(cluster: Cluster) -> None:
    """(From a third node the ack and the copy take two ways, which have no order.)"""
    with RawClient(cluster.nodes[0].address) as client:
        assert b'"error"' not in ask(client, "$JS.API.STREAM.CREATE.TEST", {**ORIGIN, "num_replicas": 3})
        make_mirror(client)
        infos = [json.loads(ask(client, f"$JS.API.STREAM.INFO.{name}")) for name in ("TEST", "M")]
    for info in infos:
        with RawClient(cluster.named(info["cluster"]["leader"]).address) as client:
            assert look(client) == []
