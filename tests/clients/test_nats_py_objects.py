"""Object stores as ADR-20 has them, through nats-py."""

import asyncio
import base64
import hashlib
import io
import json
import os
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from nats.js.api import ObjectLink, ObjectMeta, ObjectMetaOptions, ObjectStoreConfig
from nats.js.errors import (
    APIError,
    BadObjectMetaError,
    DigestMismatchError,
    LinkIsABucketError,
    NotFoundError,
    ObjectAlreadyExists,
    ObjectDeletedError,
    ObjectNotFoundError,
)

from tests.clients.nats_py import connection, run
from tests.harness.forms import examples
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server

LARGE_BYTES: Final = int(os.environ.get("JETRAFT_OBJECT_MIB", examples(16, long=64))) << 20  # 128 chunks and more


def meta_subject(bucket: str, name: str) -> str:
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


async def infos(watcher: Any) -> list[tuple[str, bool]]:
    """What a watcher shows up to the mark that it has come up: name, and whether it is deleted."""
    found = []
    while (info := await watcher.updates(timeout=PATIENCE_S)) is not None:
        found.append((info.name, bool(info.deleted)))
    return found


def test_an_object_of_many_chunks_comes_back_and_its_replacement_leaves_no_chunks(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream()
            store: Any = await context.create_object_store(stream, config=ObjectStoreConfig(replicas=replicas))
            data = random.Random(1).randbytes(1 << 20)
            options = ObjectMetaOptions(max_chunk_size=10_000)
            info = await store.put("o", data, meta=ObjectMeta(name="o", description="d", options=options))
            assert (info.size, info.chunks) == (1 << 20, 105)
            assert (await store.get("o")).data == data
            await store.put("o", b"short")
            assert (await store.get("o")).data == b"short"
            assert (await context.stream_info(f"OBJ_{stream}")).state.messages == 2
            into = io.BytesIO()
            await store.get("o", writeinto=into)
            assert into.getvalue() == b"short"
            empty = await store.put("empty", b"")
            assert (empty.size, (await store.get("empty")).data) == (0, b"")

    run(check)


def test_what_is_deleted_is_listed_and_its_chunks_are_gone(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream()
            store: Any = await context.create_object_store(stream, config=ObjectStoreConfig(replicas=replicas))
            with pytest.raises(NotFoundError):
                await store.list()
            watcher = await store.watch()
            assert await infos(watcher) == []
            for name in ("a", "b"):
                await store.put(name, name.encode())
            await store.delete("a")
            with pytest.raises(ObjectNotFoundError):
                await store.get("a")
            assert (await store.get_info("a", show_deleted=True)).deleted
            assert sorted((info.name, bool(info.deleted)) for info in await store.list()) == [("a", True), ("b", False)]
            assert [info.name for info in await store.list(ignore_deletes=True)] == ["b"]
            seen = [await watcher.updates(timeout=PATIENCE_S) for _ in range(3)]
            assert [(info.name, bool(info.deleted)) for info in seen] == [("a", False), ("b", False), ("a", True)]
            await watcher.stop()
            state = (await context.stream_info(f"OBJ_{stream}")).state
            assert state.messages == 3, "two metas, one chunk"
            only_new = await store.watch(updates_only=True)
            await store.put("c", b"c")
            assert (await only_new.updates(timeout=PATIENCE_S)).name == "c"
            await only_new.stop()
            old = await store.watch(include_history=True, ignore_deletes=True)
            assert await infos(old) == [("b", False), ("c", False)]
            await old.stop()

    run(check)


def test_metas_change_without_their_chunks(servers: Sequence[Server], replicas: int, stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            store: Any = await client.jetstream().create_object_store(
                stream, config=ObjectStoreConfig(replicas=replicas)
            )
            await store.put("a", b"1")
            await store.put("b", b"2")
            await store.update_meta("a", ObjectMeta(name="a", description="new", headers={"h": "v"}))
            info = await store.get_info("a")
            assert (info.description, info.headers) == ("new", {"h": "v"})
            assert (await store.get("a")).data == b"1"
            with pytest.raises(ObjectAlreadyExists):
                await store.update_meta("a", ObjectMeta(name="b"))
            with pytest.raises(ObjectDeletedError):
                await store.update_meta("none", ObjectMeta(name="none"))

    run(check)


def test_links_lead_to_objects_and_not_to_buckets(servers: Sequence[Server], replicas: int, stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream()
            config = ObjectStoreConfig(replicas=replicas)
            store: Any = await context.create_object_store(stream, config=config)
            other = f"{stream}_other"
            aim: Any = await context.create_object_store(other, config=config)
            await aim.put("o", b"there")
            for name, link in (("to object", {"bucket": other, "name": "o"}), ("to bucket", {"bucket": other})):
                meta = {"name": name, "bucket": stream, "nuid": name.replace(" ", ""), "options": {"link": link}}
                await context.publish(
                    meta_subject(stream, name), json.dumps(meta).encode(), headers={"Nats-Rollup": "sub"}
                )
            assert (await store.get_info("to object")).options.link == ObjectLink(bucket=other, name="o")
            assert (await store.get("to object")).data == b"there"
            with pytest.raises(LinkIsABucketError):
                await store.get("to bucket")

    run(check)


def test_a_damaged_object_is_noticed_and_a_damaged_meta_too(
    servers: Sequence[Server], replicas: int, stream: str
) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream()
            store: Any = await context.create_object_store(stream, config=ObjectStoreConfig(replicas=replicas))
            info = await store.put("o", b"right")
            await context.publish(f"$O.{stream}.C.{info.nuid}", b"one chunk more")
            with pytest.raises(DigestMismatchError):
                await store.get("o")
            await context.publish(meta_subject(stream, "m"), b"no meta", headers={"Nats-Rollup": "sub"})
            with pytest.raises(BadObjectMetaError):
                await store.get_info("m")

    run(check)


def test_a_sealed_store_is_read_and_not_written(servers: Sequence[Server], replicas: int, stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            store: Any = await client.jetstream().create_object_store(
                stream, config=ObjectStoreConfig(replicas=replicas)
            )
            await store.put("o", b"1")
            await store.seal()
            assert (await store.status()).sealed
            assert (await store.get("o")).data == b"1"
            with pytest.raises(APIError):
                await store.put("p", b"2")
            with pytest.raises(APIError):
                await store.delete("o")

    run(check)


class Pattern(io.RawIOBase):
    """So many bytes that are made as they are read."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._block = random.Random(2).randbytes(1 << 16)
        self.digest = hashlib.sha256()

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._left, len(self._block))
        buffer[:count] = self._block[:count]
        self.digest.update(self._block[:count])
        self._left -= count
        return count


class Sum(io.RawIOBase):
    """Forgets what is written, but for its digest and size."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += len(data)
        return len(data)


@pytest.mark.long_form
@pytest.mark.timeout(1800)
def test_a_large_object_comes_back(servers: Sequence[Server], replicas: int, stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            config = ObjectStoreConfig(replicas=replicas)
            store: Any = await client.jetstream().create_object_store(stream, config=config)
            given, taken = Pattern(LARGE_BYTES), Sum()
            info = await store.put("large", given)
            assert info.size == LARGE_BYTES
            await store.get("large", writeinto=taken)
            assert (taken.size, taken.digest.digest()) == (LARGE_BYTES, given.digest.digest())

    asyncio.run(check())
