"""Writing to real servers, which lose leaders, refuse, and see tasks die, repeat and race."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import (
    NotReproducibleError,
    ServerError,
    ServersUnavailableError,
    SupersededError,
    WriteRefusedError,
)
from pyspark_jetstream.write import target
from pyspark_jetstream.write.atomic import FencedWriter
from pyspark_jetstream.write.fence import publish_partition
from pyspark_jetstream.write.publisher import KEPT
from pyspark_jetstream.write.rows import Rows
from pyspark_jetstream.write.target import WritableStream
from pyspark_jetstream.write.window import WINDOW_ROWS, WindowedWriter
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.streams import delete, delete_messages
from tests.spark.write.writing import OPEN, create_target, fenced, pieces, publishers, stored, write


@pytest.fixture(autouse=True)
def _closed_publishers() -> Iterator[None]:
    yield
    for publisher in KEPT.values():
        publisher.close()
    for task in OPEN:
        task.close()
    KEPT.clear()
    OPEN.clear()


def killing_the_leader(parts: Iterator[Rows], cluster: Cluster, stream: str, after: int) -> Iterator[Rows]:
    """The pieces; before one of them the leader of the stream is killed."""
    for number, part in enumerate(parts):
        if number == after:
            leader_of(cluster, stream).kill()
        yield part


def leader_of(cluster: Cluster, stream: str) -> Server:
    with RawClient(cluster[0].address) as client:
        return cluster.named(client.api(f"STREAM.INFO.{stream}")["cluster"]["leader"])


@pytest.fixture
def whole_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster; nodes that a test has killed are started after it."""
    yield cluster
    for server in cluster:
        if server.process is None or not server.process.running:
            server.start()
    cluster.wait_healthy()


def test_at_least_once_stores_each_row_in_order(server: Server, client: RawClient) -> None:
    create_target(client, "PLAIN")
    task = publishers([server.url], "PLAIN")
    numbers = list(range(3 * WINDOW_ROWS + 7))
    assert WindowedWriter(task, "PLAIN").write(pieces("PLAIN", numbers, rows_max=WINDOW_ROWS)) == len(numbers)
    task.keep()
    assert stored([server.url], "PLAIN") == numbers
    assert len(KEPT) == 1  # the next task uses it
    again = publishers([server.url], "PLAIN")
    assert WindowedWriter(again, "PLAIN").write(pieces("PLAIN", [1])) == 1


def test_at_least_once_survives_the_leader(whole_cluster: Cluster) -> None:
    with RawClient(whole_cluster[0].address) as client:
        create_target(client, "ATLEAST", num_replicas=3)
    task = publishers(whole_cluster.urls, "ATLEAST")
    parts = killing_the_leader(pieces("ATLEAST", range(20_000), rows_max=1000), whole_cluster, "ATLEAST", 9)
    assert WindowedWriter(task, "ATLEAST").write(parts) == 20_000
    assert set(stored(whole_cluster.urls, "ATLEAST")) == set(range(20_000))


def test_exactly_once_survives_the_leader(whole_cluster: Cluster) -> None:
    with RawClient(whole_cluster[0].address) as client:
        create_target(client, "EXACTLY", num_replicas=3)
    parts = killing_the_leader(pieces("EXACTLY", range(20_000)), whole_cluster, "EXACTLY", 9)
    fenced(whole_cluster.urls, "EXACTLY").write(publish_partition(parts, 0))
    assert stored(whole_cluster.urls, "EXACTLY") == list(range(20_000))
    assert write(whole_cluster.urls, "EXACTLY", range(20_000)) == 0
    assert write(whole_cluster.urls, "EXACTLY", range(20_000, 20_010), epoch=1) == 10
    assert stored(whole_cluster.urls, "EXACTLY") == list(range(20_010))


def test_a_refusal_that_may_pass_is_repeated_until_the_retry_timeout(server: Server, client: RawClient) -> None:
    create_target(client, "FULL", max_msgs=10, discard="new")
    task = publishers([server.url], "FULL", retry_timeout_s=0.3)
    with pytest.raises(ServersUnavailableError, match=r"maximum messages exceeded \(err_code 10077\)"):
        WindowedWriter(task, "FULL").write(pieces("FULL", range(12)))
    create_target(client, "SMALL", max_msg_size=20)
    with pytest.raises(WriteRefusedError, match=r"message size exceeds maximum allowed \(err_code 10054\)"):
        WindowedWriter(publishers([server.url], "SMALL"), "SMALL").write(pieces("SMALL", range(12)))


def test_a_subject_of_another_stream_or_of_none_is_an_error(server: Server, client: RawClient) -> None:
    create_target(client, "MINE")
    create_target(client, "THEIRS")
    with pytest.raises(WriteRefusedError, match="belongs to stream 'THEIRS', not to 'MINE'"):
        WindowedWriter(publishers([server.url], "MINE"), "MINE").write(pieces("THEIRS", [1]))
    with pytest.raises(ServersUnavailableError, match="503 no responders"):
        WindowedWriter(publishers([server.url], "MINE", retry_timeout_s=0.3), "MINE").write(pieces("NONE", [1]))


class KilledError(Exception):
    """The task ends here."""


def dying(parts: Iterator[Rows], after: int) -> Iterator[Rows]:
    """The pieces up to one; then the task is killed."""
    for number, part in enumerate(parts):
        if number == after:
            raise KilledError
        yield part


def test_a_task_that_runs_again_publishes_what_is_missing(server: Server, client: RawClient) -> None:
    create_target(client, "AGAIN")
    with pytest.raises(KilledError):
        fenced([server.url], "AGAIN").write(publish_partition(dying(pieces("AGAIN", range(5000)), 4), 0))
    begun = stored([server.url], "AGAIN")
    assert begun == list(range(3 * 999))  # the fourth was staged, and the fifth asked for
    assert write([server.url], "AGAIN", range(5000)) == 5000 - len(begun)
    assert stored([server.url], "AGAIN") == list(range(5000))
    assert client.api("STREAM.INFO.AGAIN", {"subjects_filter": "fence.>"})["state"]["subjects"] == {
        "fence.AGAIN.q.0": 6
    }
    assert write([server.url], "AGAIN", [], epoch=1) == 0
    assert client.api("STREAM.INFO.AGAIN", {"subjects_filter": "fence.>"})["state"]["subjects"] == {
        "fence.AGAIN.q.0": 1
    }


@contextlib.contextmanager
def drained(server: Server, stream: str) -> Iterator[list[int]]:
    """Somebody takes the rows of a stream, and leaves the fences; yields how many rows each time."""
    taken: list[int] = []
    ended = threading.Event()

    def drain() -> None:
        with RawClient(server.address) as other:
            while not ended.wait(0.02):
                taken.append(other.api(f"STREAM.PURGE.{stream}", {"filter": f"{stream}.>"})["purged"])

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join(PATIENCE_S)


def subjects_of(client: RawClient, stream: str, below: str) -> dict[str, int]:
    """How many messages each subject has."""
    state = client.api(f"STREAM.INFO.{stream}", {"subjects_filter": f"{below}.{stream}.>".lstrip(".")})["state"]
    return state.get("subjects") or {}


@pytest.mark.parametrize("rollup", [True, False])
def test_a_stream_with_room_for_few_messages_is_written_as_it_is_drained(
    server: Server, client: RawClient, *, rollup: bool
) -> None:
    name = f"NARROW{rollup}".upper()
    create_target(client, name, max_msgs=40, discard="new", allow_rollup_hdrs=rollup)
    with drained(server, name) as taken:
        assert write([server.url], name, range(1000), rollup=rollup) == 1000
    assert sum(taken) + sum(subjects_of(client, name, "").values()) == 1000


@pytest.mark.parametrize("rollup", [True, False])
def test_fences_of_other_partitions_and_micro_batches_do_not_fill_a_stream(
    server: Server, client: RawClient, *, rollup: bool
) -> None:
    name = f"FENCES{rollup}".upper()
    create_target(client, name, max_msgs=12, discard="new", allow_rollup_hdrs=rollup)
    with drained(server, name):
        for epoch in range(6):
            for partition in range(3):
                numbers = range(10 * partition, 10 * partition + 7)
                assert write([server.url], name, numbers, epoch, rollup=rollup, partition=partition) == len(numbers)
        assert write([server.url], name, range(7), 5, rollup=rollup) == 0  # the newest fences are there


def test_a_stream_that_has_no_room_beside_its_fences_is_named(server: Server, client: RawClient) -> None:
    create_target(client, "FENCED", max_msgs=3, discard="new")
    for partition in range(3):
        write([server.url], "FENCED", [], partition=partition)
    with pytest.raises(ServersUnavailableError, match=r"maximum messages exceeded.*3 of its messages are fences"):
        write([server.url], "FENCED", [1], partition=3, retry_timeout_s=4.0)


def only_fences(ask: Any) -> Any:
    """Requests for one message, for fences: those of rows are an error."""

    def asked(stream: WritableStream, stream_seq: int) -> Any:
        found = ask(stream, stream_seq)
        assert found["subject"].startswith("fence.")
        return found

    return asked


def test_many_stored_rows_are_read_back(
    server: Server, client: RawClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "PROGRESS_S", 0.0)
    create_target(client, "BACK")
    count = 25_000
    assert write([server.url], "BACK", range(count)) == count
    monkeypatch.setattr(WritableStream, "_message", only_fences(WritableStream._message))
    assert write([server.url], "BACK", range(count - 1, -1, -1)) == 0
    assert f"of {count} stored rows are read back" in caplog.text


@pytest.mark.parametrize("allow_direct", [True, False])
def test_rows_that_no_replica_has_at_once_are_asked_of_the_leader(
    server: Server, client: RawClient, monkeypatch: pytest.MonkeyPatch, *, allow_direct: bool
) -> None:
    name = f"LEADER{allow_direct}".upper()
    create_target(client, name, allow_direct=allow_direct)
    monkeypatch.setattr(WritableStream, "_from_replica", lambda *_: {})  # one that has applied nothing yet
    write([server.url], name, range(200))
    assert write([server.url], name, range(199, -1, -1)) == 0
    delete_messages(client, name, 5)
    with pytest.raises(NotReproducibleError, match="acceptChangedRows=0 continues once"):
        write([server.url], name, range(199, -1, -1))


def test_rows_in_another_order_are_told_from_other_rows(server: Server, client: RawClient) -> None:
    create_target(client, "ORDER")
    with pytest.raises(KilledError):
        fenced([server.url], "ORDER").write(publish_partition(dying(pieces("ORDER", range(3500)), 3), 0))
    begun = len(stored([server.url], "ORDER"))
    with pytest.raises(NotReproducibleError, match="of which 999 are not in it now"):
        write([server.url], "ORDER", range(999, 3500))
    assert len(stored([server.url], "ORDER")) == begun
    assert write([server.url], "ORDER", range(3499, -1, -1)) == 3500 - begun
    assert sorted(stored([server.url], "ORDER")) == list(range(3500))
    delete_messages(client, "ORDER", 5)
    with pytest.raises(NotReproducibleError, match="no longer in the stream"):
        write([server.url], "ORDER", range(3500))


def test_a_batch_whose_ack_is_lost_is_not_stored_twice(
    server: Server, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_target(client, "LOST")
    answer = FencedWriter._answer
    answered: list[int] = []

    def once_lost(writer: FencedWriter, *given: Any) -> Any:
        found = answer(writer, *given)
        answered.append(1)
        if len(answered) == 2:
            raise ServerError("the connection is lost before the ack")
        return found

    monkeypatch.setattr(FencedWriter, "_answer", once_lost)
    assert write([server.url], "LOST", range(4000)) == 4000 - 999
    assert stored([server.url], "LOST") == list(range(4000))


def test_a_zombie_that_has_staged_half_cannot_commit_later(server: Server, client: RawClient) -> None:
    create_target(client, "ZOMBIE")
    servers = [server.url]
    connections = ConnectionCache()
    zombie = publish_partition(pieces("ZOMBIE", range(100)), 3)
    next(zombie)
    effect = zombie.send(None)  # it has seen that nothing is stored, and is about to publish all
    late = fenced(servers, "ZOMBIE", connections=connections)
    late._staged = late._stage(late._publishers.get(), effect.rows)  # type: ignore[union-attr]
    assert write(servers, "ZOMBIE", range(100), epoch=3) == 100
    assert write(servers, "ZOMBIE", [100], epoch=4) == 1
    assert late._publish(effect) is None  # type: ignore[arg-type]
    with pytest.raises(SupersededError):
        late.write(publish_partition(pieces("ZOMBIE", range(100)), 3))
    connections.close()
    assert stored(servers, "ZOMBIE") == list(range(101))


def test_attempts_at_the_same_time_store_one_copy(server: Server, client: RawClient) -> None:
    create_target(client, "RACE")
    caches = [ConnectionCache() for _ in range(3)]
    new: list[int] = []

    def attempt(cache: ConnectionCache) -> None:
        writer = fenced([server.url], "RACE", connections=cache)
        new.append(writer.write(publish_partition(pieces("RACE", range(8000)), 0)))

    threads = [threading.Thread(target=attempt, args=(cache,)) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    for cache in caches:
        cache.close()
    assert len(new) == 3
    assert sum(new) <= 8000  # an ack that comes after a look at the fence is not counted
    assert stored([server.url], "RACE") == list(range(8000))


def test_a_stream_that_was_created_again_takes_no_batch_of_a_task_from_before(
    server: Server, client: RawClient
) -> None:
    create_target(client, "SECOND")

    def recreating() -> Iterator[Rows]:
        for number, part in enumerate(pieces("SECOND", range(5000))):
            if number == 3:
                delete(client, "SECOND")
                create_target(client, "SECOND")
            yield part

    with pytest.raises(NotReproducibleError, match="the stream was purged or created again"):
        fenced([server.url], "SECOND").write(publish_partition(recreating(), 0))
    assert stored([server.url], "SECOND") == []
