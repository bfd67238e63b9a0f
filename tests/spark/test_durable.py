"""Durable consumers hold the messages of interest and work-queue streams until Spark has committed them.

The stream reader is called as Spark calls it: so a restart in the middle of a batch is one at a known place.
"""

import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_jetstream import durable
from pyspark_jetstream.errors import BadOptionError, DurableConsumerError
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.source import StreamReader
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.streams import create, publish

Offset = dict[str, Any]
LIMIT = ReadAllAvailable()


def reader(server: Server, stream: str, **options: str) -> StreamReader:
    given = {"servers": server.url, "stream": stream, "retryTimeout": "2s", "durable": "spark", **options}
    return StreamReader(parse_options(given))


def seqs(made: StreamReader, start: Offset, end: Offset) -> list[int]:
    """The rows of a micro-batch."""
    batches = [batch for partition in made.partitions(start, end) for batch in made.read(partition)]
    return [seq for batch in batches for seq in batch.column("stream_seq").to_pylist()]


def stored(client: RawClient, stream: str) -> tuple[int, int]:
    state = client.api(f"STREAM.INFO.{stream}")["state"]
    return state["first_seq"], state["messages"]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_keeps_what_spark_has_not_committed_also_over_a_restart_in_a_batch(
    server: Server, client: RawClient, monkeypatch: pytest.MonkeyPatch, retention: str
) -> None:
    name = f"HELD_{retention}"
    monkeypatch.setattr(durable, "PULL_MESSAGES", 7)  # so that pulls go beyond the ends of batches
    monkeypatch.setattr(durable, "ACK_WAIT_NS", 200_000_000)
    create(client, name, retention=retention)
    if retention == "workqueue":
        publish(client, name, 30)
    first = reader(server, name, maxRecordsPerTrigger="10")
    start = first.initialOffset()
    if retention == "interest":
        publish(client, name, 30)  # without the consumer these would be dropped
    one = first.latestOffset(start, LIMIT)
    assert seqs(first, start, one) == list(range(1, 11))
    assert stored(client, name) == (1, 30)
    two = first.latestOffset(one, LIMIT)
    first.commit(one)  # Spark says so when it has planned the next batch
    assert stored(client, name) == (11, 20)
    assert seqs(first, one, two) == list(range(11, 21))
    first.stop()  # the driver dies in the second batch: Spark repeats it with the logged offsets

    second = reader(server, name, maxRecordsPerTrigger="10")
    assert seqs(second, one, two) == list(range(11, 21))
    assert stored(client, name) == (11, 20)
    three = second.latestOffset(two, LIMIT)
    assert seqs(second, two, three) == list(range(21, 31))
    assert client.api(f"CONSUMER.INFO.{name}.spark")["num_ack_pending"] > 0
    second.commit(two)
    # What the first driver had pulled is delivered again after its ack wait; nothing of the third batch is gone.
    assert 10 <= stored(client, name)[1] <= 14
    assert all("error" not in client.api(f"STREAM.MSG.GET.{name}", {"seq": seq}) for seq in range(21, 31))
    deadline_s = time.monotonic() + PATIENCE_S
    while stored(client, name)[1] and time.monotonic() < deadline_s:
        second.commit(three)
    assert stored(client, name) == (31, 0)
    second.stop()
    assert client.api(f"CONSUMER.INFO.{name}.spark")["config"]["metadata"]["spark.source"] == "pyspark_jetstream"


def test_only_the_chosen_subjects_are_held(server: Server, client: RawClient) -> None:
    create(client, "HELD_CHOSEN", retention="interest")
    made = reader(server, "HELD_CHOSEN", subject="HELD_CHOSEN.s1")
    start = made.initialOffset()
    publish(client, "HELD_CHOSEN", 30)
    end = made.latestOffset(start, LIMIT)
    assert seqs(made, start, end) == list(range(2, 31, 3))
    publish(client, "HELD_CHOSEN", 30)
    later = made.latestOffset(end, LIMIT)
    made.commit(end)
    assert stored(client, "HELD_CHOSEN") == (32, 10)
    # 31 was never kept, and it is no row of the query: no loss.
    assert seqs(made, end, later) == list(range(32, 61, 3))
    made.stop()


def test_a_query_whose_consumer_is_gone_stops_or_makes_it_again(server: Server, client: RawClient) -> None:
    create(client, "HELD_GONE", retention="interest")
    made = reader(server, "HELD_GONE")
    start = made.initialOffset()
    made.stop()
    assert client.api("CONSUMER.DELETE.HELD_GONE.spark")["success"]
    made = reader(server, "HELD_GONE")
    with pytest.raises(
        DurableConsumerError, match="consumer 'spark' of stream 'HELD_GONE' does not exist: messages fr"
    ):
        made.latestOffset(start, LIMIT)
    made.stop()
    made = reader(server, "HELD_GONE", failOnDataLoss="false")
    assert made.latestOffset(start, LIMIT) == start
    assert client.api("CONSUMER.INFO.HELD_GONE.spark")["config"]["ack_policy"] == "all"
    made.stop()


def test_a_consumer_of_another_kind_is_not_used(server: Server, client: RawClient) -> None:
    create(client, "HELD_OTHER")
    config = {"durable_name": "spark", "ack_policy": "none"}
    answer = client.api("CONSUMER.CREATE.HELD_OTHER.spark", {"stream_name": "HELD_OTHER", "config": config})
    assert "error" not in answer
    made = reader(server, "HELD_OTHER")
    with pytest.raises(DurableConsumerError, match="needs no acknowledgements"):
        made.initialOffset()
    made.stop()


def test_a_work_queue_is_read_from_its_start(server: Server, client: RawClient) -> None:
    create(client, "HELD_LATEST", retention="workqueue")
    made = reader(server, "HELD_LATEST", startingOffsets="latest")
    with pytest.raises(BadOptionError, match="'durable' needs 'earliest'"):
        made.initialOffset()
    made.stop()
    with pytest.raises(BadOptionError, match="'streams' has a pattern"):
        parse_options({"servers": "a", "streams": "A_*", "durable": "spark"})
