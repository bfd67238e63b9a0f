"""The stream reader as Spark calls it, on real servers: several streams, patterns, idle queries, limits, domains."""

import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_jetstream import planner
from pyspark_jetstream.errors import StreamNotFoundError
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.source import BatchReader, StreamReader
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.streams import create, delete, publish

LIMIT = ReadAllAvailable()
IDLE_S = 2.0


def reader(server: Server, **options: str) -> StreamReader:
    return StreamReader(parse_options({"servers": server.url, "retryTimeout": "2s", **options}))


def rows(made: StreamReader | BatchReader, partitions: Any) -> list[tuple[str, int]]:
    """Stream and sequence of each row."""
    batches = [batch for partition in partitions for batch in made.read(partition)]
    return sorted((row["stream"], row["stream_seq"]) for batch in batches for row in batch.to_pylist())


def test_a_pattern_finds_streams_as_they_are_created(
    server: Server, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "DISCOVERY_S", 0.0)
    create(client, "P_ONE")
    create(client, "P_ZWEI")
    create(client, "Q_ONE")
    for name in ("P_ONE", "P_ZWEI", "Q_ONE"):
        publish(client, name, 3)
    made = reader(server, streams="P_*", columns="stream,stream_seq")
    start = made.initialOffset()
    end = made.latestOffset(start, LIMIT)
    assert rows(made, made.partitions(start, end)) == [(name, seq) for name in ("P_ONE", "P_ZWEI") for seq in (1, 2, 3)]
    create(client, "P_NEW")
    publish(client, "P_NEW", 2)
    publish(client, "P_ONE", 1)
    later = made.latestOffset(end, LIMIT)
    assert rows(made, made.partitions(end, later)) == [("P_NEW", 1), ("P_NEW", 2), ("P_ONE", 4)]
    delete(client, "P_ZWEI")
    with pytest.raises(StreamNotFoundError, match="stream 'P_ZWEI' does not exist"):
        made.latestOffset(later, LIMIT)
    made.stop()
    lenient = reader(server, streams="P_*", columns="stream,stream_seq", failOnDataLoss="false")
    after = lenient.latestOffset(later, LIMIT)
    assert sorted(after["streams"]) == ["P_NEW", "P_ONE"]
    assert lenient.partitions(later, after) == []
    lenient.stop()


def test_a_batch_read_of_several_streams_has_a_start_for_each(server: Server, client: RawClient) -> None:
    create(client, "BOTH_A")
    create(client, "BOTH_B")
    publish(client, "BOTH_A", 5)
    publish(client, "BOTH_B", 5)
    given = {"servers": server.url, "streams": "BOTH_A,BOTH_B", "startingOffsets": '{"BOTH_A": 4}'}
    made = BatchReader(parse_options({**given, "endingOffsets": '{"BOTH_B": 3}'}))
    assert rows(made, made.partitions()) == [("BOTH_A", 4), ("BOTH_A", 5), ("BOTH_B", 1), ("BOTH_B", 2)]


def test_an_idle_query_costs_about_a_request_in_two_seconds(server: Server, client: RawClient) -> None:
    create(client, "IDLE")
    publish(client, "IDLE", 5)
    made = reader(server, stream="IDLE", startingOffsets="latest")
    start = made.initialOffset()
    before, begun_s, asked = server.get("/varz")[1]["in_msgs"], time.monotonic(), 0
    while time.monotonic() < begun_s + IDLE_S:
        assert made.latestOffset(start, LIMIT) == start  # Spark asks again after 10 ms
        asked += 1
    took_s = time.monotonic() - begun_s
    requests = server.get("/varz")[1]["in_msgs"] - before
    assert 0 < requests < 8 + took_s  # the consumer and its pull, then a question each CHECK_S
    assert asked > 2
    publish(client, "IDLE", 1)
    deadline_s = time.monotonic() + PATIENCE_S
    while (end := made.latestOffset(start, LIMIT)) == start:
        assert time.monotonic() < deadline_s
    assert end["seq"] == 7
    made.stop()


def test_a_stream_is_reached_through_another_prefix_and_inbox(server: Server, client: RawClient) -> None:
    create(client, "PREFIXED")
    publish(client, "PREFIXED", 3)
    sid = client.subscribe("own.inbox.>")
    made = BatchReader(
        parse_options({"servers": server.url, "stream": "PREFIXED", "apiPrefix": "$JS.API", "inboxPrefix": "own.inbox"})
    )
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    assert sum(batch.num_rows for batch in batches) == 3
    assert len(client.messages(sid, 2)) >= 2
