"""Key-value gets of nats-py while replicas start, are filled, are wiped or fail: none says "not found"."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import nats.errors
import pytest
from nats import connect
from nats.js.errors import KeyNotFoundError

from tests.harness import patience
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.small_disk import small_disks
from tests.harness.tasks import cancel_until_done

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.harness.server import Server

pytestmark = pytest.mark.campaign

BUCKET = "B"
STREAM = f"KV_{BUCKET}"
KEYS = 60
LOOK_S = 0.02
GETS_MIN = 100  # of each node, after what was done to it


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes of its own: they are killed. Not nats-server: it is asked in tests/conformance."""
    with Cluster("jetraft", 3, directory=tmp_path) as started:
        yield started


class Reader:
    """Gets keys of a bucket at one node, for as long as the test lasts, and counts what it is told."""

    def __init__(self, node: Server) -> None:
        self._node = node
        self.told: Counter[str] = Counter()
        self.values = 0  # since `begin`

    async def run(self) -> None:
        """Connect again whenever the node has gone."""
        while True:
            with contextlib.suppress(OSError, nats.errors.Error):
                client = await connect(self._node.url, error_cb=_quiet, allow_reconnect=False, connect_timeout=2)
                try:
                    await self._read(client)
                finally:
                    await client.close()
            await asyncio.sleep(LOOK_S)

    async def _read(self, client: Any) -> None:
        bucket = await client.jetstream(timeout=2).key_value(BUCKET)
        number = 0
        while not client.is_closed:
            number = (number + 7) % KEYS
            try:
                entry = await bucket.get(f"k{number}")
            except KeyNotFoundError:
                self.told["not found"] += 1
            except (TimeoutError, nats.errors.Error) as error:
                self.told[type(error).__name__] += 1
            else:
                self.told["value" if entry.value == b"v%d" % number else "another value"] += 1
                self.values += 1
            await asyncio.sleep(LOOK_S / 4)


async def _quiet(_error: Exception) -> None:
    pass


@contextlib.asynccontextmanager
async def reading(cluster: Cluster, *, replicas: int) -> AsyncIterator[list[Reader]]:
    """A bucket of so many replicas with all its keys, read at every node."""
    client = await connect(cluster[0].url, error_cb=_quiet, connect_timeout=10)
    bucket = await client.jetstream(timeout=10).create_key_value(bucket=BUCKET, replicas=replicas, direct=True)
    for number in range(KEYS):
        await bucket.put(f"k{number}", b"v%d" % number)
    readers = [Reader(node) for node in cluster]
    tasks = [asyncio.ensure_future(reader.run()) for reader in readers]
    try:
        await until(lambda: all(reader.values > GETS_MIN for reader in readers))
        yield readers
        for reader in readers:
            reader.values = 0
        await until(lambda: all(reader.values > GETS_MIN for reader in readers))
    finally:
        await client.close()
        await cancel_until_done(tasks)


async def until(is_so: Callable[[], bool]) -> None:
    """Look until something is so."""
    async with asyncio.timeout(2 * PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  (a client library tells nobody)
            await asyncio.sleep(LOOK_S)


def check(readers: list[Reader]) -> None:
    """Values, and nothing that is wrong. Gets that nobody answered are no answers."""
    told = sum((reader.told for reader in readers), Counter[str]())
    assert told["value"] > 3 * GETS_MIN
    assert not told["not found"], told
    assert not told["another value"], told


def test_all_nodes_are_killed_and_start(cluster: Cluster) -> None:
    async def play() -> None:
        async with reading(cluster, replicas=3) as readers:
            for node in cluster:
                node.kill()
            for node in cluster:
                await asyncio.to_thread(node.start, wait=False)
            await asyncio.to_thread(cluster.wait_healthy)
        check(readers)

    asyncio.run(play())


def test_nodes_are_restarted_one_after_the_other(cluster: Cluster) -> None:
    async def play() -> None:
        async with reading(cluster, replicas=3) as readers:
            for node in cluster:
                await asyncio.to_thread(node.restart)
                await asyncio.to_thread(cluster.wait_healthy)
        check(readers)

    asyncio.run(play())


def test_a_bucket_gets_more_replicas(cluster: Cluster) -> None:
    async def play() -> None:
        async with reading(cluster, replicas=1) as readers:
            await asyncio.to_thread(_scale, cluster)
            await asyncio.to_thread(cluster.wait_healthy)
        check(readers)

    asyncio.run(play())


def _scale(cluster: Cluster) -> None:
    with RawClient(cluster[0].address) as client:
        config = client.api(f"STREAM.INFO.{STREAM}")["config"]
        assert "config" in client.api(f"STREAM.UPDATE.{STREAM}", {**config, "num_replicas": 3})


def test_a_node_comes_back_with_an_empty_disk(cluster: Cluster) -> None:
    async def play() -> None:
        async with reading(cluster, replicas=3) as readers:
            node = cluster[2]
            node.kill()
            shutil.rmtree(node.directory)
            node.directory.mkdir()
            await asyncio.to_thread(node.start)
            await asyncio.to_thread(cluster.wait_healthy)
        check(readers)

    asyncio.run(play())


def test_a_replica_whose_log_has_failed_is_not_read(tmp_path: Path) -> None:
    """Its disk is full: what it has stays as it is, and the others go on."""
    cluster = Cluster("jetraft", 3, directory=tmp_path)
    small = cluster[2]
    with small_disks([small.directory], SMALL_KIB), cluster, RawClient(cluster[0].address) as client:
        body = {"name": "S", "subjects": ["s.*"], "num_replicas": 3, "allow_direct": True}
        assert "config" in client.api("STREAM.CREATE.S", body)
        _lead_elsewhere(client, small)
        assert _publish(client, "s.k", b"old")
        for _ in range(2 * SMALL_KIB // 20):
            client.request("s.filler", b"x" * 20_000)
        assert _publish(client, "s.k", b"new")
        for sound in (cluster[0], cluster[1]):
            with RawClient(sound.address) as at_sound:
                patience.until(partial(_reads_new, at_sound))
        answers = Counter[bytes]()
        with RawClient(small.address) as at_small:
            for _ in range(100):
                answers[_get(at_small)] += 1
        assert set(answers) <= {b"new", b"503"}, answers
        assert answers[b"new"]


SMALL_KIB = 24 << 10


def _publish(client: RawClient, subject: str, payload: bytes) -> bool:
    (ack,) = client.request(subject, payload)
    return "seq" in json.loads(ack.payload)


def _get(client: RawClient) -> bytes:
    """The value, by a replica of the client's node if it has one that answers; or the status."""
    (answer,) = client.request("$JS.API.DIRECT.GET.S.s.k")
    return answer.payload or answer.status.encode()


def _reads_new(client: RawClient) -> bool:
    return _get(client) == b"new"


def _lead_elsewhere(client: RawClient, node: Server) -> None:
    for _ in range(20):
        if client.api("STREAM.INFO.S")["cluster"]["leader"] not in ("", node.name):
            return
        client.api("STREAM.LEADER.STEPDOWN.S")
    raise AssertionError("the small disk always leads")
