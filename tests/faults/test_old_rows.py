"""A server that does not hear of the meta group: what was confirmed elsewhere it does not act against."""

import json
from collections.abc import Iterator

import pytest

from tests.faults import netns
from tests.faults.netns import Network, both_ways
from tests.faults.nodes import Node, Nodes
from tests.faults.test_detours import lead, meta_leader, wait_until
from tests.harness.raw import RawClient

ANSWERED_WITHIN_S = 8.0  # a lease, and what a busy machine adds


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    if (reason := netns.missing()) is not None:
        pytest.skip(f"OLD ROWS NOT RUN: {reason}")
    directory = tmp_path_factory.mktemp("old_rows")
    with Network(3) as network, Nodes("jetraft", network, 3, directory=directory) as made:
        yield made


@pytest.mark.parametrize("is_alone", [False, True], ids=["beside the meta leader", "from both"])
def test_a_stream_that_was_deleted_behind_a_cut_acknowledges_nothing(nodes: Nodes, is_alone: bool) -> None:  # noqa: FBT001  (a parameter of the test)
    n1, n2, n3 = nodes.all
    name = create_on(n1, f"Z{int(is_alone)}N")
    lead(n3, "META.LEADER.STEPDOWN", n2, lambda: meta_leader(n2) == "n2")
    with RawClient(n1.client_address) as client:
        assert client.acknowledged(name.lower(), b"kept")["seq"] == 1
    pairs = both_ways([n1.place], [n2.place, n3.place] if is_alone else [n2.place])
    nodes.network.cut(pairs)
    with RawClient(n3.client_address) as client:
        inbox = client.new_inbox()
        sid = client.subscribe(inbox)
        client.publish(f"$JS.API.STREAM.DELETE.{name}", b"", reply=inbox)
        (answer,) = client.messages(sid, 1, ANSWERED_WITHIN_S)
    assert json.loads(answer.payload).get("success") is True, answer.payload
    with RawClient(n1.client_address) as client:
        for _ in range(5):
            found = client.request(name.lower(), b"late")
            assert not found or not found[0].payload or "seq" not in json.loads(found[0].payload), found
    nodes.network.heal()
    wait_until(n1.healthy)


def create_on(node: Node, prefix: str) -> str:
    """The name of a stream whose only replica is on this node: made, as often as it takes."""
    with RawClient(node.client_address) as client:
        for number in range(30):
            name = f"{prefix}{number}"
            made = client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name.lower()], "num_replicas": 1})
            if made["cluster"]["leader"] == node.name:
                return name
    raise AssertionError(f"{node.name} gets no stream")
