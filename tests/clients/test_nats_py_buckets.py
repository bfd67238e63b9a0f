"""Key-value buckets as ADR-8 has them, through nats-py: what test_nats_py_jetstream leaves out."""

import asyncio
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from nats.js.api import KeyValueConfig, StreamSource
from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError

from tests.clients.nats_py import connection, run
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server


async def entries(watcher: Any) -> list[tuple[str, bytes | None, str | None]]:
    """What a watcher shows up to the mark that it has come up: key, value, operation."""
    found = []
    while (entry := await watcher.updates(timeout=PATIENCE_S)) is not None:
        found.append((entry.key, entry.value, entry.operation))
    return found


def test_history_is_kept_up_to_its_bound_with_what_was_done(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            config = KeyValueConfig(bucket=stream, history=3, replicas=replicas)
            bucket: Any = await client.jetstream().create_key_value(config)
            for value in (b"1", b"2", b"3"):
                await bucket.put("k", value)
            await bucket.delete("k")
            shown = [(entry.value, entry.operation, entry.revision) for entry in await bucket.history("k")]
            assert shown == [(b"2", None, 2), (b"3", None, 3), (None, "DEL", 4)] or shown[2][0] == b""
            await bucket.purge("k")
            assert [entry.operation for entry in await bucket.history("k")] == ["PURGE"]

    run(check)


def test_a_deleted_key_is_created_again_and_only_by_who_knows_its_last_revision_deleted(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            bucket: Any = await client.jetstream().create_key_value(KeyValueConfig(bucket=stream, replicas=replicas))
            await bucket.create("k", b"1")
            with pytest.raises(APIError):
                await bucket.delete("k", last=7)
            await bucket.delete("k", last=1)
            with pytest.raises(KeyNotFoundError):
                await bucket.get("k", revision=9)
            assert await bucket.create("k", b"2") == 3
            with pytest.raises(KeyWrongLastSequenceError):
                await bucket.create("k", b"3")

    run(check)


def test_watchers_show_deletes_histories_and_what_comes_later(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            config = KeyValueConfig(bucket=stream, history=5, replicas=replicas)
            bucket: Any = await client.jetstream().create_key_value(config)
            for key, value in (("a.1", b"1"), ("a.1", b"2"), ("b.1", b"3"), ("a.2", b"4")):
                await bucket.put(key, value)
            await bucket.delete("a.2")
            last = await bucket.watch("a.*")
            assert await entries(last) == [("a.1", b"2", None), ("a.2", b"", "DEL")]
            with_history = await bucket.watch("a.*", include_history=True)
            assert [key for key, _, _ in await entries(with_history)] == ["a.1", "a.1", "a.2", "a.2"]
            without = await bucket.watch("a.*", ignore_deletes=True)
            assert await entries(without) == [("a.1", b"2", None)]
            names = await bucket.watch("a.1", meta_only=True)
            assert await entries(names) == [("a.1", b"", None)]
            await bucket.put("a.3", b"5")
            for watcher in (last, with_history, without):
                entry = await watcher.updates(timeout=PATIENCE_S)
                assert (entry.key, entry.value, entry.revision) == ("a.3", b"5", 6)
            for watcher in (last, with_history, without, names):
                await watcher.stop()
            assert sorted(await bucket.keys()) == ["a.1", "a.3", "b.1"]
            assert await bucket.keys(filters=["b."]) == ["b.1"]

    run(check)


def test_old_delete_markers_are_purged_and_young_ones_kept(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            config = KeyValueConfig(bucket=stream, history=5, replicas=replicas)
            bucket: Any = await client.jetstream().create_key_value(config)
            for key in ("a", "b", "c"):
                await bucket.put(key, b"1")
            await bucket.delete("a")
            await bucket.purge("b")
            await bucket.purge_deletes(olderthan=60 * 60)
            assert (await bucket.status()).values == 3, "a marker for each, and c"
            await bucket.purge_deletes(olderthan=-1)
            assert (await bucket.status()).values == 1
            assert await bucket.keys() == ["c"]

    run(check)


def test_a_key_with_a_time_to_live_leaves_a_marker_that_goes_too(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            config = KeyValueConfig(bucket=stream, replicas=replicas, limit_marker_ttl=1)
            bucket: Any = await client.jetstream().create_key_value(config)
            watcher = await bucket.watchall()
            assert await entries(watcher) == []
            await bucket.create("k", b"1", msg_ttl=1)
            assert (await watcher.updates(timeout=PATIENCE_S)).value == b"1"
            marker = await watcher.updates(timeout=PATIENCE_S)
            assert (marker.key, marker.operation) == ("k", "PURGE")
            await watcher.stop()
            async with asyncio.timeout(PATIENCE_S):
                while (await bucket.status()).values:
                    pass

    run(check)


def test_a_mirror_of_a_bucket_has_its_keys(servers: Sequence[Server], replicas: int, stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream()
            bucket: Any = await context.create_key_value(KeyValueConfig(bucket=stream, replicas=replicas))
            await bucket.put("k", b"1")
            copy = f"KV_{stream}_copy"
            await context.add_stream(
                name=copy,
                mirror=StreamSource(name=f"KV_{stream}"),
                max_msgs_per_subject=1,
                num_replicas=replicas,
                allow_direct=True,
                mirror_direct=True,
            )
            await bucket.put("k", b"2")
            async with asyncio.timeout(PATIENCE_S):
                while (await context.stream_info(copy)).state.last_seq < 2:
                    pass
            assert (await context.get_last_msg(copy, f"$KV.{stream}.k")).data == b"2"
            assert (await bucket.get("k")).value == b"2", "whichever of the two answers"

    run(check)


def test_a_watcher_goes_on_where_it_was_when_its_connection_comes_back(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # nats-py leaves the broken transport
            async with (
                connection(servers[0].url) as writer,
                connection(servers[0].url, reconnect_time_wait=0) as client,
            ):
                config = KeyValueConfig(bucket=stream, history=64, replicas=replicas)
                bucket: Any = await writer.jetstream().create_key_value(config)
                for number in range(10):
                    await bucket.put("k", b"%d" % number)
                watching: Any = await client.jetstream().key_value(stream)
                watcher = await watching.watch("k", include_history=True)
                assert len(await entries(watcher)) == 10
                transport: Any = client._transport
                transport._io_writer.transport.abort()
                for number in range(10, 20):
                    await bucket.put("k", b"%d" % number)
                seen = [await watcher.updates(timeout=PATIENCE_S) for _ in range(10)]
                assert [entry.revision for entry in seen] == list(range(11, 21))
                await watcher.stop()

    run(check)
