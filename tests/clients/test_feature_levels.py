"""A cluster in which a server is of an older version: simulated by one that is kept at the first feature level."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.js.api import StreamConfig
from nats.js.errors import APIError

from tests.clients.nats_py import connection, run
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Kind, Server

OLDER = "jetstream { feature_level: 1 }"
CHAINED = StreamConfig(
    name="CHAINED",
    subjects=["chained"],
    num_replicas=3,
    deny_delete=True,
    deny_purge=True,
    metadata={"jetraft.chain": "sha256"},
)


@pytest.fixture
def cluster(kind: Kind, tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes, the last of which is kept back."""
    cluster = Cluster(kind, 3, directory=tmp_path)
    cluster.nodes[-1].config = OLDER
    with cluster:
        yield cluster


def again(server: Server, config: str | None) -> None:
    """Restart a server with another configuration."""
    server.stop()
    server.config = config
    server.start()


def test_a_feature_is_used_once_every_server_knows_it(cluster: Cluster) -> None:
    first, _, kept_back = cluster.nodes

    async def refused() -> None:
        async with connection(first.url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            with pytest.raises(APIError) as caught:
                await context.add_stream(CHAINED)
            expected = "jetraft.chain needs feature level 2: upgrade and start these servers first: n3"
            assert (caught.value.err_code, caught.value.description) == (10052, expected)
            await context.add_stream(name="PLAIN", num_replicas=3)

    async def granted() -> None:
        async with connection(first.url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(CHAINED)
            assert (await context.publish("chained", b"one")).seq == 1

    run(refused)
    again(kept_back, None)
    cluster.wait_healthy()
    run(granted)


def test_a_server_that_does_not_know_what_is_in_use_takes_no_part_until_it_is_upgraded(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    again(third, None)
    cluster.wait_healthy()

    async def publish(times: int) -> None:
        async with connection(first.url, second.url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(CHAINED)
            for _ in range(times):
                await context.publish("chained", b"on")

    run(publish, 3)
    again(third, OLDER)
    third.running.wait_for_line("the cluster uses feature level 2 and this server knows 1: it must be upgraded")
    assert not third.healthy()
    run(publish, 3)
    again(third, None)
    cluster.wait_healthy()
    for node in (first, second):
        node.wait_healthy()
