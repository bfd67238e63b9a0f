"""The walk-throughs of JetStream's first documents (2020) with today's names: on nats-server, on one node and on three.

Each step is what one command asked: the ORDERS stream with its consumers NEW, DISPATCH and MONITOR, up to a backup that
is restored, and a log shipper that acknowledges a hundred lines with the last of them. The answers to each request are
compared between the servers in tests/conformance/scenes/walkthroughs.py.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from tests.clients.nats_py import connection, run
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Kind, Server

YEAR_S = 365 * 24 * 3600
CHUNK = 64 * 1024
LINES = 300
HUNDRED = 100


@pytest.fixture(params=["jetraft one", "jetraft three", "reference one"], scope="module")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Server]]:
    """The running servers."""
    named, _, size = request.param.partition(" ")
    kind: Kind = named
    directory = tmp_path_factory.mktemp("servers")
    if size == "one":
        with Server(kind, directory=directory) as server:
            yield [server]
    else:
        with Cluster(kind, 3, directory=directory) as cluster:
            yield cluster.nodes


@attrs.frozen(kw_only=True)
class Shop:
    """The connections of the walk-through: who publishes orders, and who watches."""

    client: Client
    context: JetStreamContext

    async def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """One request of the API, which succeeds."""
        payload = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads((await self.client.request(f"$JS.API.{subject}", payload, PATIENCE_S)).data)
        assert "error" not in answer, answer
        return answer

    async def following(self, stream: str, consumer: str) -> Msg:
        """`nats consumer next`."""
        subscription = await self.context.pull_subscribe_bind(consumer, stream)
        (found,) = await subscription.fetch(1, timeout=PATIENCE_S)
        await subscription.unsubscribe()
        return found

    async def backup(self, stream: str) -> tuple[dict[str, Any], bytes]:
        """`nats stream backup`: the answer and the archive."""
        inbox = self.client.new_inbox()
        chunks = await self.client.subscribe(inbox)
        await self.client.flush()
        answer = await self.api(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, "chunk_size": CHUNK})
        found = b""
        while (chunk := await chunks.next_msg(PATIENCE_S)).data:
            found += chunk.data
            if chunk.reply:
                await self.client.publish(chunk.reply)
        return answer, found

    async def restore(self, stream: str, taken: dict[str, Any], archive: bytes) -> dict[str, Any]:
        """`nats stream restore`: the info of the stream."""
        begun = await self.api(f"STREAM.RESTORE.{stream}", {"config": taken["config"], "state": taken["state"]})
        for at in range(0, len(archive), CHUNK):
            await self.client.request(begun["deliver_subject"], archive[at : at + CHUNK], PATIENCE_S)
        answer: dict[str, Any] = json.loads((await self.client.request(begun["deliver_subject"], b"", PATIENCE_S)).data)
        assert "error" not in answer, answer
        return answer


def test_orders_are_received_dispatched_watched_and_come_back_from_a_backup(servers: Sequence[Server]) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            shop = Shop(client=client, context=client.jetstream(timeout=PATIENCE_S))
            monitor, samples = await open_shop(shop, len(servers))
            await work(shop, monitor, samples)
            await come_back(shop)

    run(check)


async def open_shop(shop: Shop, replicas: int) -> tuple[Any, Any]:
    """`nats stream add ORDERS`, and its three consumers; what MONITOR is sent, and the samples of acks."""
    context, client = shop.context, shop.client
    config = StreamConfig(
        name="ORDERS",
        subjects=["ORDERS.*"],
        retention=RetentionPolicy.LIMITS,
        max_age=YEAR_S,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        num_replicas=replicas,
    )
    await context.add_stream(config)
    for name, subject in (("NEW", "ORDERS.received"), ("DISPATCH", "ORDERS.processed")):
        wanted = ConsumerConfig(
            durable_name=name,
            filter_subject=subject,
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            max_deliver=20,
            sample_freq="100",
        )
        await context.add_consumer("ORDERS", wanted)
    monitor = await client.subscribe("monitor.ORDERS")
    samples = await client.subscribe("$JS.EVENT.METRIC.CONSUMER.ACK.ORDERS.>")
    await client.flush()
    watching = ConsumerConfig(
        durable_name="MONITOR",
        deliver_subject="monitor.ORDERS",
        ack_policy=AckPolicy.NONE,
        deliver_policy=DeliverPolicy.LAST,
    )
    await context.add_consumer("ORDERS", watching)
    assert sorted((await shop.api("CONSUMER.NAMES.ORDERS"))["consumers"]) == ["DISPATCH", "MONITOR", "NEW"]
    return monitor, samples


async def work(shop: Shop, monitor: Any, samples: Any) -> None:
    """An order is published, taken by NEW, processed, taken by DISPATCH, and completed."""
    context = shop.context
    for number in (1, 2):
        ack = await context.publish("ORDERS.received", b"order %d" % number)
        assert (ack.stream, ack.seq) == ("ORDERS", number)
    received = await shop.following("ORDERS", "NEW")
    assert (received.subject, received.data) == ("ORDERS.received", b"order 1")
    await received.ack_sync(PATIENCE_S)
    sample = json.loads((await samples.next_msg(PATIENCE_S)).data)
    assert sample["type"] == "io.nats.jetstream.metric.v1.consumer_ack"
    assert (sample["consumer"], sample["stream_seq"], sample["deliveries"]) == ("NEW", 1, 1)
    assert sample["ack_time"] > 0
    await context.publish("ORDERS.processed", b"order 1")
    processed = await shop.following("ORDERS", "DISPATCH")
    await processed.in_progress()
    await processed.nak()
    again = await shop.following("ORDERS", "DISPATCH")
    assert (again.metadata.sequence.stream, again.metadata.num_delivered) == (3, 2)
    await again.ack_sync(PATIENCE_S)
    assert json.loads((await samples.next_msg(PATIENCE_S)).data)["deliveries"] == 2
    await context.publish("ORDERS.completed", b"order 1")
    seen = [await monitor.next_msg(PATIENCE_S) for _ in range(4)]
    assert [(found.subject, found.data) for found in seen] == [
        ("ORDERS.received", b"order 1"),
        ("ORDERS.received", b"order 2"),
        ("ORDERS.processed", b"order 1"),
        ("ORDERS.completed", b"order 1"),
    ]
    info = await context.consumer_info("ORDERS", "NEW")
    assert info.ack_floor is not None
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (1, 0, 1)


async def come_back(shop: Shop) -> None:
    """A message is removed for good, the stream is backed up and deleted, and is there again; work goes on."""
    context = shop.context
    await context.delete_msg("ORDERS", 2)
    await context.publish("ORDERS.received", b"order 3", headers={"Customer": "acme"})
    taken, archive = await shop.backup("ORDERS")
    assert taken["state"]["messages"] == 4
    before = await shop.api("STREAM.MSG.GET.ORDERS", {"seq": 5})
    await context.delete_stream("ORDERS")
    restored = await shop.restore("ORDERS", taken, archive)
    state = restored["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"], state["consumer_count"]) == (4, 1, 5, 3)
    assert await shop.api("STREAM.MSG.GET.ORDERS", {"seq": 5}) == before, "with its time and its headers"
    order = await shop.following("ORDERS", "NEW")
    assert (order.data, order.header) == (b"order 3", {"Customer": "acme"}), "NEW goes on where it was"
    assert (await context.publish("ORDERS.received", b"order 4")).seq == 6
    await context.purge_stream("ORDERS")
    info = await context.stream_info("ORDERS")
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (0, 7, 6)
    await context.delete_stream("ORDERS")


def test_a_log_shipper_acknowledges_a_hundred_lines_with_the_last_of_them(servers: Sequence[Server]) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(
                name="LOGS", subjects=["logs.>"], max_age=24 * 3600, num_replicas=len(servers), max_bytes=1 << 20
            )
            await context.add_stream(config)
            await asyncio.gather(
                *(context.publish(f"logs.host{number % 2}.app", b"line %d" % number) for number in range(LINES))
            )
            wanted = ConsumerConfig(
                durable_name="SHIP", ack_policy=AckPolicy.ALL, max_ack_pending=2 * HUNDRED, filter_subject="logs.>"
            )
            shipper = await context.pull_subscribe("logs.>", durable="SHIP", stream="LOGS", config=wanted)
            shipped: list[bytes] = []
            while len(shipped) < LINES:
                lines = await shipper.fetch(HUNDRED, timeout=PATIENCE_S)
                assert [line.metadata.sequence.stream for line in lines] == list(
                    range(len(shipped) + 1, len(shipped) + len(lines) + 1)
                )
                shipped += [line.data for line in lines]
                await lines[-1].ack_sync(PATIENCE_S)
                info = await context.consumer_info("LOGS", "SHIP")
                assert info.ack_floor is not None
                assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, len(shipped))
            assert sorted(shipped) == sorted(b"line %d" % number for number in range(LINES))
            await context.purge_stream("LOGS", subject="logs.host1.>", keep=2)
            info = await context.stream_info("LOGS", subjects_filter="logs.>")
            assert info.state.subjects == {"logs.host0.app": LINES // 2, "logs.host1.app": 2}

    run(check)
