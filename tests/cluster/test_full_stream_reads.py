"""Real processes: readers of replicated streams that drop their oldest messages get what they ask for."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from nats import connect
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.tasks import cancel_until_done

KEPT = 200
BATCH = 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@asynccontextmanager
async def busy(context: JetStreamContext, subject: str) -> AsyncIterator[None]:
    """Somebody publishes all the time, a few messages at once."""

    async def publish() -> None:
        while True:
            await asyncio.gather(*[context.publish(subject, b"x" * 100) for _ in range(5)])

    publishing = asyncio.create_task(publish())
    try:
        yield
    finally:
        await cancel_until_done([publishing])


def test_every_fetch_of_a_reader_that_starts_is_filled(cluster: Cluster) -> None:
    asyncio.run(fetch_from_a_full_stream(cluster.nodes[0].url))


async def fetch_from_a_full_stream(url: str) -> None:
    client = await connect(url, connect_timeout=PATIENCE_S)
    context = client.jetstream(timeout=PATIENCE_S)
    await context.add_stream(StreamConfig(name="FULL", subjects=["full.>"], num_replicas=3, max_msgs=KEPT))
    await asyncio.gather(*[context.publish("full.a", b"x" * 100) for _ in range(KEPT)])
    async with busy(context, "full.a"):
        for number in range(20):
            reader = await context.pull_subscribe("full.>", durable=f"c{number}", stream="FULL")  # all of it is new
            messages = await reader.fetch(BATCH, timeout=PATIENCE_S)
            assert len(messages) == BATCH
    await client.close()


def test_a_consumer_without_acks_reads_what_its_interest_keeps(cluster: Cluster) -> None:
    asyncio.run(fetch_without_acks(cluster.nodes[0].url))


async def fetch_without_acks(url: str) -> None:
    client = await connect(url, connect_timeout=PATIENCE_S)
    context = client.jetstream(timeout=PATIENCE_S)
    interest = RetentionPolicy.INTEREST
    await context.add_stream(StreamConfig(name="KEPT", subjects=["kept.>"], num_replicas=3, retention=interest))
    config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.NONE)
    await context.add_consumer("KEPT", config)
    for _ in range(10):
        await context.publish("kept.a", b"x")
    reader = await context.pull_subscribe_bind("c", "KEPT")
    assert len(await reader.fetch(10, timeout=PATIENCE_S)) == 10
    await client.close()
