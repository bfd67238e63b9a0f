"""JetStream as nats-py uses it: publish, pull, push, ordered, key-value, messages by sequence."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from nats.aio.client import Client
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
from nats.js.errors import (
    APIError,
    BadRequestError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
    NotFoundError,
)

from tests.clients.nats_py import connection, run
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server


async def make_stream(client: Client, name: str, replicas: int, **options: object) -> JetStreamContext:
    """A stream on `<name>.>` and the context to use it."""
    context = client.jetstream(timeout=PATIENCE_S)
    await context.add_stream(
        StreamConfig(name=name, subjects=[f"{name}.>"], num_replicas=replicas, **options)  # type: ignore[arg-type]  # fields of StreamConfig, by name
    )
    return context


def test_publishes_are_acknowledged_in_sequence(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = await make_stream(client, stream, replicas)
            acks = [await context.publish(f"{stream}.a", str(number).encode()) for number in range(20)]
            assert [ack.seq for ack in acks] == list(range(1, 21))
            assert {ack.stream for ack in acks} == {stream}
            info = await context.stream_info(stream)
            assert (info.state.messages, info.config.num_replicas) == (20, replicas)

    run(check)


def test_a_message_id_is_stored_once(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(client, stream, replicas)
            first = await context.publish(f"{stream}.a", b"1", headers={"Nats-Msg-Id": "x"})
            again = await context.publish(f"{stream}.a", b"1", headers={"Nats-Msg-Id": "x"})
            assert (first.seq, again.seq, again.duplicate) == (1, 1, True)

    run(check)


def test_a_wrong_expected_sequence_is_refused(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(client, stream, replicas)
            with pytest.raises(APIError) as caught:
                await context.publish(f"{stream}.a", b"", headers={"Nats-Expected-Last-Sequence": "7"})
            assert caught.value.err_code == 10071

    run(check)


def test_many_publishes_in_flight_are_all_acknowledged(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(client, stream, replicas)
            futures = [await context.publish_async(f"{stream}.a", str(number).encode()) for number in range(2000)]
            acks = await asyncio.gather(*futures)
            assert sorted(ack.seq for ack in acks) == list(range(1, 2001))

    run(check)


def test_publishing_to_no_stream_says_so(servers: Sequence[Server], stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            with pytest.raises(NoStreamResponseError):
                await client.jetstream().publish(f"nowhere.{stream}", b"")

    run(check)


def test_a_pull_consumer_gets_each_message_until_it_is_acked(
    servers: Sequence[Server], stream: str, replicas: int
) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = await make_stream(client, stream, replicas)
            for number in range(10):
                await context.publish(f"{stream}.a", str(number).encode())
            puller = await context.pull_subscribe(f"{stream}.a", durable="d", stream=stream)
            first = await puller.fetch(4, timeout=PATIENCE_S)
            assert [message.data for message in first] == [b"0", b"1", b"2", b"3"]
            for message in first[:3]:
                await message.ack_sync(timeout=PATIENCE_S)
            await first[3].nak()
            rest = [message for _ in range(7) for message in await puller.fetch(1, timeout=PATIENCE_S)]
            assert sorted(int(message.data) for message in rest) == list(range(3, 10))
            again = next(message for message in rest if message.data == b"3")
            assert again.metadata.num_delivered == 2
            for message in rest:
                await message.ack_sync(timeout=PATIENCE_S)
            info = await puller.consumer_info()
            assert info.ack_floor is not None
            assert (info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq) == (0, 0, 10)

    run(check)


def test_an_unacked_message_comes_again_after_ack_wait(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(client, stream, replicas)
            await context.publish(f"{stream}.a", b"x")
            settings = ConsumerConfig(ack_wait=0.3, max_deliver=2)
            puller = await context.pull_subscribe(f"{stream}.a", durable="d", stream=stream, config=settings)
            assert (await puller.fetch(1, timeout=PATIENCE_S))[0].metadata.num_delivered == 1
            assert (await puller.fetch(1, timeout=PATIENCE_S))[0].metadata.num_delivered == 2
            with pytest.raises(TimeoutError):
                await puller.fetch(1, timeout=0.8)

    run(check)


def test_terminate_and_in_progress_are_obeyed(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(client, stream, replicas)
            for number in range(2):
                await context.publish(f"{stream}.a", str(number).encode())
            settings = ConsumerConfig(ack_wait=3)
            puller = await context.pull_subscribe(f"{stream}.a", durable="d", stream=stream, config=settings)
            first, second = await puller.fetch(2, timeout=PATIENCE_S)
            await first.term()
            for _ in range(8):  # a second longer than the ack wait; in between the machine may stop for as long as that
                await asyncio.sleep(0.5)
                await second.in_progress()
            await second.ack_sync(timeout=PATIENCE_S)
            info = await puller.consumer_info()
            assert info.delivered is not None
            assert (info.num_ack_pending, info.num_redelivered, info.delivered.consumer_seq) == (0, 0, 2)

    run(check)


def test_filters_and_start_positions_choose_messages(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(client, stream, replicas)
            for subject in ("a", "b", "a", "b", "c"):
                await context.publish(f"{stream}.{subject}", b"")
            wanted = {
                "last": (ConsumerConfig(deliver_policy=DeliverPolicy.LAST), [5]),
                "per": (
                    ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject=f"{stream}.*"),
                    [3, 4, 5],
                ),
                "seq": (ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=4), [4, 5]),
                "two": (ConsumerConfig(filter_subjects=[f"{stream}.a", f"{stream}.c"]), [1, 3, 5]),
            }
            for name, (settings, expected) in wanted.items():
                settings.durable_name, settings.ack_policy = name, AckPolicy.EXPLICIT
                await context.add_consumer(stream, settings)
                puller = await context.pull_subscribe_bind(durable=name, stream=stream)
                found = [
                    message.metadata.sequence.stream
                    for message in await puller.fetch(len(expected), timeout=PATIENCE_S)
                ]
                assert found == expected, name

    run(check)


def test_a_push_consumer_delivers(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(client, stream, replicas)
            for number in range(5):
                await context.publish(f"{stream}.a", str(number).encode())
            subscription = await context.subscribe(f"{stream}.a", durable="p", stream=stream, manual_ack=True)
            for number in range(5):
                message = await subscription.next_msg(timeout=PATIENCE_S)
                assert message.data == str(number).encode()
                await message.ack_sync(timeout=PATIENCE_S)

    run(check)


def test_an_ordered_consumer_delivers_in_order(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = await make_stream(client, stream, replicas)
            subscription = await context.subscribe(f"{stream}.>", stream=stream, ordered_consumer=True)
            for number in range(200):
                await context.publish(f"{stream}.a", str(number).encode())
            found = [int((await subscription.next_msg(timeout=PATIENCE_S)).data) for _ in range(200)]
            assert found == list(range(200))

    run(check)


def test_messages_are_read_and_deleted_by_sequence(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = await make_stream(client, stream, replicas, allow_direct=True)
            for number in range(4):
                await context.publish(f"{stream}.{number % 2}", str(number).encode(), headers={"N": str(number)})
            message = await context.get_msg(stream, 2)
            assert (message.data, message.headers) == (b"1", {"N": "1"})
            assert (await context.get_last_msg(stream, f"{stream}.0")).seq == 3
            await context.delete_msg(stream, 2)
            with pytest.raises(NotFoundError):
                await context.get_msg(stream, 2)
            assert await context.purge_stream(stream, subject=f"{stream}.0")
            assert (await context.stream_info(stream)).state.messages == 1

    run(check)


def test_a_workqueue_forgets_what_was_acked(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(client, stream, replicas, retention=RetentionPolicy.WORK_QUEUE)
            for number in range(3):
                await context.publish(f"{stream}.a", str(number).encode())
            puller = await context.pull_subscribe(f"{stream}.a", durable="d", stream=stream)
            for message in await puller.fetch(3, timeout=PATIENCE_S):
                await message.ack_sync(timeout=PATIENCE_S)
            while (await context.stream_info(stream)).state.messages:
                await client.flush()

    run(check)


def test_a_full_stream_that_discards_new_refuses(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = await make_stream(
                client, stream, replicas, max_msgs=2, discard=DiscardPolicy.NEW, storage=StorageType.MEMORY
            )
            for _ in range(2):
                await context.publish(f"{stream}.a", b"")
            with pytest.raises(APIError) as caught:
                await context.publish(f"{stream}.a", b"")
            assert caught.value.err_code == 10077

    run(check)


def test_management_answers_carry_the_error_codes(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = await make_stream(client, stream, replicas)
            with pytest.raises(BadRequestError) as taken:
                await context.add_stream(name=stream, subjects=[f"other.{stream}"])
            assert taken.value.err_code == 10058
            with pytest.raises(NotFoundError) as none:
                await context.stream_info(f"{stream}_none")
            assert none.value.err_code == 10059
            with pytest.raises(NotFoundError) as consumer:
                await context.consumer_info(stream, "none")
            assert consumer.value.err_code == 10014
            assert await context.delete_stream(stream)

    run(check)


def test_a_bucket_keeps_values_revisions_and_deletes(servers: Sequence[Server], stream: str, replicas: int) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            bucket = await context.create_key_value(bucket=stream, history=5, replicas=replicas)
            assert await bucket.create("k", b"1") == 1
            await settled(bucket, "k", b"1")  # nats-py reads the key that it could not create
            with pytest.raises(KeyWrongLastSequenceError):
                await bucket.create("k", b"2")
            assert await bucket.update("k", b"2", last=1) == 2
            with pytest.raises(KeyWrongLastSequenceError):
                await bucket.update("k", b"3", last=1)
            await settled(bucket, "k", b"2")
            await bucket.put("other", b"x")
            watcher: Any = await bucket.watchall()  # nats-py has no types for it
            seen = {}
            while (entry := await watcher.updates(timeout=PATIENCE_S)) is not None:
                seen[entry.key] = entry.value
            assert seen == {"k": b"2", "other": b"x"}
            await watcher.stop()
            assert sorted(await bucket.keys()) == ["k", "other"]
            assert [entry.value for entry in await bucket.history("k")] == [b"1", b"2"]
            await bucket.delete("k")
            await settled(bucket, "k", None)
            assert (await bucket.status()).values == 4

    run(check)


async def settled(bucket: object, key: str, value: bytes | None) -> None:
    """Direct gets may be answered by a replica that is a moment behind: read until the value is there, or gone."""
    found: bytes | None = b"nothing was read yet"
    while found != value:
        try:
            found = (await bucket.get(key)).value  # type: ignore[attr-defined]  # a nats-py bucket
        except KeyNotFoundError as error:  # with the entry of the delete, if there is one
            found = b"nothing is there yet" if error.entry is None else None
