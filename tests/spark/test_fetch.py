"""Reading a range: from good replicas, and from replicas that lag, break off or lie. No Spark here."""

import time
from collections.abc import Iterator

import attrs
import pytest

from pyspark_jetstream import fetch
from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import DataLossError, ServersUnavailableError, StreamRecreatedError
from pyspark_jetstream.fetch import RangeReader
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.plan import Range
from pyspark_jetstream.planner import Planner
from pyspark_jetstream.replicas import Server as Replica
from pyspark_jetstream.wire import Rows
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.fake_replica import FakeReplica
from tests.spark.streams import create, delete, delete_messages, publish


@pytest.fixture
def connections() -> Iterator[ConnectionCache]:
    cache = ConnectionCache()
    yield cache
    cache.close()


def planned(server: Server, stream: str, cache: ConnectionCache, **options: str) -> Range:
    """The whole stream as one range, to be read from the real server."""
    parsed = parse_options({"servers": server.url, "stream": stream, "retryTimeout": "2", **options})
    planner = Planner(parsed, cache)
    view = planner.view()
    return Range(
        start_seq=view.first_seq,
        end_seq=view.end_seq,
        created=view.created,
        planned_time_ns=view.last_time_ns,
        allow_direct=view.allow_direct,
        servers=planner.directory.candidates(view.replicas),
        options=parsed,
    )


def through(wanted: Range, *urls: str) -> Range:
    """The same range, to be read from these servers in this order."""
    return attrs.evolve(wanted, servers=tuple(Replica(url=url, name=url) for url in urls))


def read(wanted: Range, cache: ConnectionCache) -> Rows:
    """All rows of a range, as one."""
    everything = Rows()
    for rows in RangeReader(wanted, cache):
        for row in zip(*rows.columns(), strict=True):
            everything.append(*row)
    return everything


def test_every_published_byte_comes_back(server: Server, client: RawClient, connections: ConnectionCache) -> None:
    blob = bytes(range(256)) * 20
    create(client, "BYTES")
    publish(
        client,
        "BYTES",
        40,
        payload=lambda number: blob[number:] if number % 4 else b"",
        headers=lambda number: [("A", str(number)), ("a", "low"), ("A", "again")] if number % 2 else [],
    )
    rows = read(planned(server, "BYTES", connections), connections)
    assert rows.stream_seqs == list(range(1, 41))
    assert rows.payloads == [blob[number:] if number % 4 else b"" for number in range(40)]
    assert rows.subjects == [b"BYTES.s%d" % (number % 3) for number in range(40)]
    assert rows.headers == [b"A: %d\r\na: low\r\nA: again\r\n" % number if number % 2 else b"" for number in range(40)]


def test_a_range_of_several_batches_is_read_whole(
    server: Server, client: RawClient, connections: ConnectionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "BATCH_ROWS", 70)
    monkeypatch.setattr(fetch, "BATCH_BYTES", 2000)
    create(client, "SEVERAL")
    publish(client, "SEVERAL", 500)
    assert read(planned(server, "SEVERAL", connections), connections).stream_seqs == list(range(1, 501))


def test_rows_past_the_range_are_dropped(server: Server, client: RawClient, connections: ConnectionCache) -> None:
    create(client, "PAST")
    publish(client, "PAST", 30)
    delete_messages(client, "PAST", 5, 6, 7)
    wanted = attrs.evolve(planned(server, "PAST", connections), end_seq=11)
    assert read(wanted, connections).stream_seqs == [1, 2, 3, 4, 8, 9, 10]


@pytest.mark.parametrize("direct", [True, False], ids=["replicas", "leader"])
def test_deleted_messages_anywhere_are_no_loss(
    server: Server, client: RawClient, connections: ConnectionCache, *, direct: bool
) -> None:
    name = f"DELETED_{direct}"
    create(client, name, allow_direct=direct)
    publish(client, name, 300)
    delete_messages(client, name, 2, 3, 150, 299, 300)
    rows = read(planned(server, name, connections), connections)
    assert rows.stream_seqs == [seq for seq in range(1, 301) if seq not in {2, 3, 150, 299, 300}]


def test_a_stream_without_direct_get_is_read_through_its_leader(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "INDIRECT", allow_direct=False)
    publish(client, "INDIRECT", 200, headers=lambda number: [("N", str(number))])
    rows = read(planned(server, "INDIRECT", connections), connections)
    assert rows.stream_seqs == list(range(1, 201))
    assert rows.payloads == [b"payload %d" % number for number in range(200)]
    assert rows.headers == [b"N: %d\r\n" % number for number in range(200)]


LAGGING = pytest.mark.parametrize("manner", ["refuses", "reports", "silently"])


def behaviour(manner: str) -> dict[str, bool]:
    """How a replica that lags goes about it; a stock server says nothing."""
    return {manner: True} if manner != "silently" else {}


@LAGGING
def test_a_replica_that_lags_is_not_accepted(
    server: Server, client: RawClient, connections: ConnectionCache, manner: str
) -> None:
    name = f"LAG_{manner}"
    create(client, name)
    publish(client, name, 100)
    wanted = planned(server, name, connections)
    with FakeReplica(server.url, applied_seq=60, **behaviour(manner)) as fake:
        rows = read(through(wanted, fake.url, server.url), connections)
        assert fake.demanded == [100]
    assert rows.stream_seqs == list(range(1, 101))


@LAGGING
def test_when_every_replica_lags_the_task_fails_rather_than_skip_rows(
    server: Server, client: RawClient, connections: ConnectionCache, manner: str
) -> None:
    name = f"ALL_LAG_{manner}"
    create(client, name)
    publish(client, name, 100)
    wanted = planned(server, name, connections, retryTimeout="300ms")
    with (
        FakeReplica(server.url, applied_seq=60, **behaviour(manner)) as fake,
        pytest.raises(ServersUnavailableError, match=r"60|61"),
    ):
        read(through(wanted, fake.url), connections)


def test_a_lagging_replica_is_accepted_once_it_has_caught_up(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "CAUGHT")
    publish(client, "CAUGHT", 100)
    wanted = planned(server, "CAUGHT", connections)
    with FakeReplica(server.url, applied_seq=60, refuses=True, caught_up_after=2) as fake:
        assert read(through(wanted, fake.url), connections).stream_seqs == list(range(1, 101))
        assert len(fake.questions) == 3


def test_a_deleted_tail_is_believed_when_the_replica_states_how_far_it_is(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "TAIL")
    publish(client, "TAIL", 50)
    wanted = planned(server, "TAIL", connections)
    delete_messages(client, "TAIL", 48, 49, 50)
    with FakeReplica(server.url, applied_seq=50, refuses=True, reports=True) as fake:
        assert read(through(wanted, fake.url), connections).stream_seqs == list(range(1, 48))


def test_reading_goes_on_at_the_next_row_when_a_replica_dies_in_the_middle(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "DIES")
    publish(client, "DIES", 100)
    wanted = planned(server, "DIES", connections)
    with FakeReplica(server.url, break_after=37) as fake:
        reader = RangeReader(through(wanted, fake.url, server.url), connections)
        batches = [rows.stream_seqs for rows in reader]
    assert batches == [list(range(1, 38)), list(range(38, 101))]
    assert [served.rows for served in reader.served.values()] == [37, 63]


def test_a_silent_replica_is_left_for_the_next_one(
    server: Server, client: RawClient, connections: ConnectionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "STALL_S", 0.1)
    create(client, "SILENT")
    publish(client, "SILENT", 10)
    wanted = planned(server, "SILENT", connections)
    with FakeReplica(server.url, silent=True) as fake:
        assert read(through(wanted, fake.url, server.url), connections).stream_seqs == list(range(1, 11))


def test_rows_out_of_order_are_refused(server: Server, client: RawClient, connections: ConnectionCache) -> None:
    create(client, "ORDER")
    publish(client, "ORDER", 20)
    wanted = planned(server, "ORDER", connections)
    with FakeReplica(server.url, reverse=True) as fake:
        assert read(through(wanted, fake.url, server.url), connections).stream_seqs == list(range(1, 21))


def test_rows_that_retention_took_since_planning_are_a_loss(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "GONE", max_msgs=50)
    publish(client, "GONE", 50)
    wanted = planned(server, "GONE", connections)
    publish(client, "GONE", 20)
    with pytest.raises(DataLossError, match="1 to 20 are no longer in the stream, which now starts at 21"):
        read(wanted, connections)


def test_lost_rows_are_passed_over_when_the_user_says_so(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "SKIPPED", max_msgs=50)
    publish(client, "SKIPPED", 50)
    wanted = planned(server, "SKIPPED", connections, failOnDataLoss="false")
    publish(client, "SKIPPED", 20)
    assert read(wanted, connections).stream_seqs == list(range(21, 51))


def test_a_purge_of_the_whole_range_is_a_loss(server: Server, client: RawClient, connections: ConnectionCache) -> None:
    create(client, "PURGED")
    publish(client, "PURGED", 50)
    wanted = planned(server, "PURGED", connections)
    assert client.api("STREAM.PURGE.PURGED")["success"]
    with pytest.raises(DataLossError, match="1 to 50"):
        read(wanted, connections)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_rows_of_a_stream_created_since_planning_are_never_taken(
    server: Server, client: RawClient, connections: ConnectionCache, strict: str
) -> None:
    name = f"AGAIN_{strict}"
    create(client, name)
    publish(client, name, 50)
    wanted = planned(server, name, connections, failOnDataLoss=strict)
    delete(client, name)
    create(client, name)
    publish(client, name, 80)
    if strict == "true":
        with pytest.raises(StreamRecreatedError, match="created again"):
            read(wanted, connections)
    else:
        assert read(wanted, connections).stream_seqs == []


def test_giving_up_happens_at_the_deadline_and_names_the_servers(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "NOBODY")
    publish(client, "NOBODY", 5)
    wanted = planned(server, "NOBODY", connections, retryTimeout="200ms", connectTimeout="100ms")
    started_s = time.monotonic()
    with pytest.raises(ServersUnavailableError, match=r"nats://127\.0\.0\.1:1: cannot connect"):
        read(through(wanted, "nats://127.0.0.1:1"), connections)
    assert 0.2 <= time.monotonic() - started_s < PATIENCE_S, "the default is two minutes"
