"""Mirrors and sources as nats-py uses them: a key-value mirror, an aggregate of two buckets, promotion."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StreamConfig, StreamSource

from tests.clients.nats_py import connection, run
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server

LOOK_S = 0.05


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  (stream info is asked for, nothing tells)
            await asyncio.sleep(LOOK_S)


async def bucket(client: Client, name: str, replicas: int) -> JetStreamContext:
    context = client.jetstream(timeout=PATIENCE_S)
    await context.create_key_value(KeyValueConfig(bucket=name, replicas=replicas, history=2))
    return context


async def has_messages(context: JetStreamContext, stream: str, count: int) -> bool:
    return (await context.stream_info(stream)).state.messages == count


def test_a_mirror_of_a_bucket_has_its_keys_and_revisions(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = await bucket(client, stream, replicas)
            keys = await context.key_value(stream)
            await context.add_stream(
                StreamConfig(
                    name=f"M{stream}",
                    mirror=StreamSource(name=f"KV_{stream}"),
                    num_replicas=replicas,
                    max_msgs_per_subject=2,
                    allow_rollup_hdrs=True,
                )
            )
            for number in range(5):
                await keys.put("k", str(number).encode())
            await keys.put("gone", b"1")
            await keys.purge("gone")
            await until(lambda: has_messages(context, f"M{stream}", 3))
            found = await context.get_last_msg(f"M{stream}", f"$KV.{stream}.k")
            assert (found.data, found.seq) == (b"4", (await keys.get("k")).revision)

    run(check)


def test_an_aggregate_of_two_buckets_has_the_keys_of_both(
    servers: Sequence[Server], stream: str, replicas: int
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            names = [f"{stream}_1", f"{stream}_2"]
            for name in names:
                context = await bucket(client, name, replicas)
            sources = [StreamSource(name=f"KV_{name}") for name in names]
            await context.add_stream(StreamConfig(name=f"A{stream}", sources=sources, num_replicas=replicas))
            for name in names:
                await (await context.key_value(name)).put("k", name.encode())
            await until(lambda: has_messages(context, f"A{stream}", 2))
            for name in names:
                assert (await context.get_last_msg(f"A{stream}", f"$KV.{name}.k")).data == name.encode()

    run(check)


def test_a_promoted_mirror_keeps_its_messages_and_goes_on(
    servers: Sequence[Server], stream: str, replicas: int
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas))
            mirror = StreamConfig(name=f"M{stream}", mirror=StreamSource(name=stream), num_replicas=replicas)
            await context.add_stream(mirror)
            for _ in range(10):
                await context.publish(f"{stream}.a", b"x")
            await until(lambda: has_messages(context, f"M{stream}", 10))
            await context.update_stream(
                StreamConfig(name=f"M{stream}", subjects=[f"own.{stream}"], num_replicas=replicas)
            )
            assert (await context.publish(f"own.{stream}", b"y")).seq == 11
            await context.publish(f"{stream}.a", b"not copied")
            assert (await context.publish(f"own.{stream}", b"z")).seq == 12

    run(check)
