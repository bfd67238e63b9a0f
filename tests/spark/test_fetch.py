"""Reading a range: from good replicas, and from replicas that lag, break off or lie. No Spark here."""

import struct
import time
from collections.abc import Callable, Iterator

import attrs
import pytest

from pyspark_jetstream import fetch, selection
from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import (
    DataLossError,
    ServersUnavailableError,
    StreamNotFoundError,
    StreamRecreatedError,
)
from pyspark_jetstream.fetch import RangeReader
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.plan import Range
from pyspark_jetstream.planner import Planner
from pyspark_jetstream.replicas import Server as Replica
from pyspark_jetstream.rows import to_batches
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server
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


@attrs.frozen
class Read:
    """The columns of what was read."""

    stream_seqs: list[int]
    subjects: list[str]
    headers: list[dict[str, list[str]] | None]
    payloads: list[bytes]


def read(wanted: Range, cache: ConnectionCache) -> Read:
    """All rows of a range, as one."""
    batches = [batch for part in RangeReader(wanted, cache) for batch in to_batches(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return Read(
        [row["stream_seq"] for row in rows],
        [row["subject"] for row in rows],
        [None if row["headers"] is None else dict(row["headers"]) for row in rows],
        [row["data"] for row in rows],
    )


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
    assert rows.subjects == [f"BYTES.s{number % 3}" for number in range(40)]
    assert rows.headers == [{"A": [str(number), "again"], "a": ["low"]} if number % 2 else None for number in range(40)]


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
    assert rows.headers == [{"N": [str(number)]} for number in range(200)]


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
        batches = [list(rows.stream_seqs) for rows in reader]
    assert batches == [list(range(1, 38)), list(range(38, 101))]
    assert [served.rows for served in reader.served.values()] == [37, 63]


@pytest.mark.parametrize("rows", [0, 37])
def test_a_replica_that_may_not_be_read_any_more_is_left_for_the_next_one(
    server: Server, client: RawClient, connections: ConnectionCache, rows: int
) -> None:
    """At once, or between two slices of an answer: its mandate has ended."""
    create(client, f"TURNED{rows}")
    publish(client, f"TURNED{rows}", 100)
    wanted = planned(server, f"TURNED{rows}", connections)
    with FakeReplica(server.url, turns_away_after=rows) as fake:
        reader = RangeReader(through(wanted, fake.url, server.url), connections)
        assert [seq for part in reader for seq in part.stream_seqs] == list(range(1, 101))
    assert [served.rows for served in reader.served.values()] == [rows, 100 - rows]


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


def forged(at: int, form: str, value: int) -> Callable[[bytearray], bytes]:
    """Change a number of each message in columns."""

    def change(message: bytearray) -> bytes:
        struct.pack_into(form, message, at, value)
        return bytes(message)

    return change


@pytest.mark.parametrize("kind", ["jetraft"], indirect=True)  # nats-server answers in rows
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (forged(0, "<Q", 0), "malformed"),
        (forged(16, "<Q", 2), "2 to 20 in the answer for 1"),
        (forged(24, "<Q", 19), "1 to 19 in the answer for 1"),
        (forged(56, "<q", 5), "created at 5 ns, not the planned one"),
        (forged(128, "<Q", 9), "out of order"),
    ],
    ids=["malformed", "another range", "a row past it", "another stream", "disorder"],
)
def test_columns_that_are_not_right_are_left_for_the_next_replica(  # noqa: PLR0913, PLR0917  (fixtures)
    kind: Kind,
    server: Server,
    client: RawClient,
    connections: ConnectionCache,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[bytearray], bytes],
    said: str,
) -> None:
    if client.api("STREAM.INFO.FORGED").get("error"):
        create(client, "FORGED")
        publish(client, "FORGED", 20)
    wanted = planned(server, "FORGED", connections)
    with FakeReplica(server.url, forge=change) as fake:
        assert read(through(wanted, fake.url, server.url), connections).stream_seqs == list(range(1, 21))
        assert len(fake.questions) == 1
    assert said in caplog.text


def test_a_caller_that_stops_in_the_middle_leaves_nothing_for_the_next(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "STOPS")
    publish(client, "STOPS", 30, payload=lambda _: bytes(100_000))
    wanted = planned(server, "STOPS", connections)
    parts = iter(RangeReader(wanted, connections))
    next(parts)
    assert read(wanted, connections).stream_seqs == list(range(1, 31)), "on another connection"
    del parts
    assert read(wanted, connections).stream_seqs == list(range(1, 31))


def test_a_message_too_large_for_columns_comes_between_them(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "LARGE")
    sizes = [10, 1_000_000, 20, 950_000, 950_000, 30]
    publish(client, "LARGE", 6, payload=lambda number: bytes(sizes[number]))
    rows = read(planned(server, "LARGE", connections), connections)
    assert [len(payload) for payload in rows.payloads] == sizes


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("subject", ["CHOSEN.s1", "CHOSEN.s1,CHOSEN.s2", "CHOSEN.*,OTHER.>", "CHOSEN.none"])
def test_only_rows_of_the_chosen_subjects_are_read_and_the_gaps_are_no_loss(  # noqa: PLR0913, PLR0917  (fixtures)
    server: Server,
    client: RawClient,
    connections: ConnectionCache,
    monkeypatch: pytest.MonkeyPatch,
    subject: str,
    direct: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    name = f"CHOSEN_{'direct' if direct else 'leader'}_{len(subject)}"
    create(client, name, subjects=[f"{name}.>"], allow_direct=direct)
    publish(client, name, 200)
    monkeypatch.setattr(selection, "FILTERED_ROWS_FIRST", 10)
    monkeypatch.setattr(selection, "SPARE_ROWS", 1)
    delete_messages(client, name, 5, 200)
    wanted = planned(server, name, connections, subject=subject.replace("CHOSEN", name))
    rows = read(attrs.evolve(wanted, start_seq=3, end_seq=190), connections)
    tokens = {"CHOSEN.s1": [1], "CHOSEN.s1,CHOSEN.s2": [1, 2], "CHOSEN.*,OTHER.>": [0, 1, 2], "CHOSEN.none": []}
    kept = [seq for seq in range(3, 190) if (seq - 1) % 3 in tokens[subject] and seq != 5]
    assert rows.stream_seqs == kept


def test_rows_of_a_chosen_subject_that_retention_may_have_taken_are_a_loss(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "CHOSEN_LOST")
    publish(client, "CHOSEN_LOST", 60)
    wanted = planned(server, "CHOSEN_LOST", connections, subject="CHOSEN_LOST.s1")
    assert client.api("STREAM.PURGE.CHOSEN_LOST", {"seq": 21})["purged"] == 20
    with pytest.raises(DataLossError, match=r"1 to 20 are no longer in the stream.*chosen subjects may be among them"):
        read(wanted, connections)
    lenient = planned(server, "CHOSEN_LOST", connections, subject="CHOSEN_LOST.s1", failOnDataLoss="false")
    assert read(attrs.evolve(lenient, start_seq=1), connections).stream_seqs == list(range(23, 60, 3))


def test_a_lagging_replica_is_not_accepted_for_a_chosen_subject(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "CHOSEN_LAG")
    publish(client, "CHOSEN_LAG", 60)
    wanted = planned(server, "CHOSEN_LAG", connections, subject="CHOSEN_LAG.s1")
    with FakeReplica(server.url, applied_seq=40) as fake:
        assert read(through(wanted, fake.url, server.url), connections).stream_seqs == list(range(2, 60, 3))
        assert fake.questions[0]["next_by_subj"] == "CHOSEN_LAG.s1"


def test_a_stream_that_was_deleted_is_named_at_once(
    server: Server, client: RawClient, connections: ConnectionCache
) -> None:
    create(client, "DELETED")
    publish(client, "DELETED", 10)
    wanted = planned(server, "DELETED", connections, retryTimeout="300")
    delete(client, "DELETED")
    with pytest.raises(StreamNotFoundError, match="stream 'DELETED' does not exist"):
        read(wanted, connections)
