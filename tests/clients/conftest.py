"""The client suites run against one node and against three; stream names are the test's own."""

from collections.abc import Iterator, Sequence

import pytest

from tests.harness.cluster import Cluster
from tests.harness.server import Kind, Server


@pytest.fixture(params=["one node", "three nodes"], scope="module")
def servers(
    request: pytest.FixtureRequest, kind: Kind, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[Server]]:
    """The running servers, one or three of them."""
    directory = tmp_path_factory.mktemp("servers")
    if request.param == "one node":
        with Server(kind, directory=directory) as server:
            yield [server]
    else:
        with Cluster(kind, 3, directory=directory) as cluster:
            yield cluster.nodes


@pytest.fixture
def replicas(servers: Sequence[Server]) -> int:
    """As many replicas as there are servers."""
    return len(servers)


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """A stream name that no other test uses."""
    return "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
