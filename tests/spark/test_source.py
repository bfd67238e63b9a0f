"""The source as Spark sees it: found by name, batch reads, streaming reads, and the errors a user gets."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.streams import create, delete, delete_messages, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark]

QUERY_TIMEOUT_S = 300
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load(spark: "SparkSession", server: Server, stream: str, **options: Any) -> "DataFrame":
    """A batch read."""
    return spark.read.format("jetstream").options(servers=server.url, stream=stream, **options).load()


def seqs(frame: "DataFrame") -> list[int]:
    return sorted(row.stream_seq for row in frame.select("stream_seq").collect())


def start(
    spark: "SparkSession",
    server: Server,
    stream: str,
    checkpoint: Path,
    each: "Callable[[DataFrame, int], None]",
    **options: Any,
) -> "StreamingQuery":
    """A streaming query to the stream's present end."""
    reader = spark.readStream.format("jetstream").options(servers=server.url, stream=stream, **options)
    writer = reader.load().writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def run(spark: "SparkSession", server: Server, stream: str, checkpoint: Path, **options: Any) -> list[list[int]]:
    """The sequences of each micro-batch until the stream's present end."""
    batches: list[list[int]] = []
    query = start(spark, server, stream, checkpoint, lambda frame, _: batches.append(seqs(frame)), **options)
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    return batches


def failure(action: Callable[[], object]) -> str:
    """What a user reads when this fails."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  (needs pyspark)

    with pytest.raises(PySparkException) as raised:
        action()
    return str(raised.value)


def test_spark_finds_the_source_without_registration(spark: "SparkSession", server: Server, client: RawClient) -> None:
    create(client, "FOUND")
    frame = load(spark, server, "FOUND")
    assert frame.schema.simpleString() == (
        "struct<stream_seq:bigint,time:timestamp,subject:string,headers:map<string,array<string>>,data:binary>"
    )
    assert frame.collect() == []


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, pyspark_jetstream; print(sorted({'pyarrow', 'pyspark', 'socket', 'attrs'} & set(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=True,
    )
    assert answer.stdout.strip() == b"[]"


def test_explicit_registration_works_too(spark: "SparkSession", server: Server, client: RawClient) -> None:
    import pyspark_jetstream  # noqa: PLC0415  (needs pyspark)

    create(client, "REGISTERED")
    publish(client, "REGISTERED", 3)
    other = spark.newSession()
    pyspark_jetstream.register(other)
    assert seqs(load(other, server, "REGISTERED")) == [1, 2, 3]


def test_a_batch_read_is_what_was_published(spark: "SparkSession", server: Server, client: RawClient) -> None:
    create(client, "BATCH")
    publish(
        client,
        "BATCH",
        600,
        payload=lambda number: bytes([number % 256, 0, 255]) * (number % 7),
        headers=lambda number: [("Plane", str(number)), ("Plane", "two"), ("b", "")] if number % 2 else [],
    )
    delete_messages(client, "BATCH", 1, 300, 600)
    rows = {row.stream_seq: row for row in load(spark, server, "BATCH", minPartitions=3).collect()}
    assert sorted(rows) == [seq for seq in range(1, 601) if seq not in {1, 300, 600}]
    for seq, row in rows.items():
        number = seq - 1
        assert bytes(row.data) == bytes([number % 256, 0, 255]) * (number % 7)
        assert row.subject == f"BATCH.s{number % 3}"
        assert row.headers == ({"Plane": [str(number), "two"], "b": [""]} if number % 2 else None)
    stored = client.api("STREAM.MSG.GET.BATCH", {"seq": 77})["message"]["time"]
    [time_us] = load(spark, server, "BATCH").where("stream_seq = 77").selectExpr("unix_micros(time) AS us").collect()
    whole, _, fraction = stored.removesuffix("Z").partition(".")
    expected_us = (datetime.fromisoformat(whole + "+00:00") - EPOCH) // timedelta(microseconds=1)
    assert time_us.us == expected_us + int(fraction[:6].ljust(6, "0") or 0)


def test_a_batch_read_starts_and_ends_where_it_is_told(
    spark: "SparkSession", server: Server, client: RawClient
) -> None:
    create(client, "BOUNDS")
    for _ in range(4):  # messages that are stored together may have one time
        publish(client, "BOUNDS", 10)
    times = [client.api("STREAM.MSG.GET.BOUNDS", {"seq": seq})["message"]["time"] for seq in (11, 31)]
    assert seqs(load(spark, server, "BOUNDS", startingOffsets="10", endingOffsets='{"seq": 20}')) == list(range(10, 20))
    assert seqs(load(spark, server, "BOUNDS", startingOffsets="latest")) == []
    assert seqs(load(spark, server, "BOUNDS", endingOffsets="5000", failOnDataLoss="false")) == list(range(1, 41))
    beyond = "5000 is beyond the end of stream 'BOUNDS', whose last is 40"
    assert f"endingOffsets {beyond}" in failure(load(spark, server, "BOUNDS", endingOffsets="5000").collect)
    assert f"startingOffsets {beyond}" in failure(load(spark, server, "BOUNDS", startingOffsets="5000").collect)
    between = load(
        spark, server, "BOUNDS", startingOffsets=json.dumps({"time": floor(times[0])}), endingOffsets=floor(times[1])
    )
    stored = {seq: floor(client.api("STREAM.MSG.GET.BOUNDS", {"seq": seq})["message"]["time"]) for seq in range(1, 41)}
    assert seqs(between) == [seq for seq, time in stored.items() if floor(times[0]) <= time < floor(times[1])] != []


def floor(time: str) -> str:
    """The time cut to microseconds, as options have it."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    return f"{whole}.{fraction[:6].ljust(6, '0')}Z"


def test_micro_batches_keep_to_the_limit_and_to_the_end(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "LIMIT")
    publish(client, "LIMIT", 250)
    batches = run(spark, server, "LIMIT", tmp_path, maxRecordsPerTrigger=100)
    assert batches == [list(range(1, 101)), list(range(101, 201)), list(range(201, 251))]


def test_a_restarted_query_goes_on_where_it_was(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "ONWARD")
    publish(client, "ONWARD", 30)
    assert run(spark, server, "ONWARD", tmp_path) == [list(range(1, 31))]
    assert run(spark, server, "ONWARD", tmp_path) == []
    publish(client, "ONWARD", 12)
    assert run(spark, server, "ONWARD", tmp_path) == [list(range(31, 43))]


def test_available_now_leaves_what_is_published_meanwhile(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "NOW")
    publish(client, "NOW", 100)
    batches: list[list[int]] = []

    def each(frame: "DataFrame", _: int) -> None:
        publish(client, "NOW", 10)
        batches.append(seqs(frame))

    query = start(spark, server, "NOW", tmp_path, each, maxRecordsPerTrigger=60)
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert batches == [list(range(1, 61)), list(range(61, 101))]


def test_a_running_query_reads_what_arrives_and_shows_how_far_the_stream_is(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "RUNNING")
    publish(client, "RUNNING", 20)
    reader = spark.readStream.format("jetstream").options(
        servers=server.url, stream="RUNNING", statsDir=str(tmp_path / "stats")
    )
    query = reader.load().writeStream.format("memory").queryName("running").start()
    try:
        query.processAllAvailable()
        publish(client, "RUNNING", 20)
        query.processAllAvailable()
        assert seqs(spark.table("running")) == list(range(1, 41))
        progress = [entry for entry in query.recentProgress if entry["numInputRows"]]
        assert [entry["numInputRows"] for entry in progress] == [20, 20]
        assert json.loads(progress[-1]["sources"][0]["endOffset"])["seq"] == 41
        assert json.loads(progress[-1]["sources"][0]["latestOffset"])["seq"] == 41
    finally:
        query.stop()
    told = [json.loads(path.read_text()) for path in (tmp_path / "stats").glob("*.json")]
    assert sum(task["rows"] for task in told) == 40
    assert {task["server"] for task in told} == {"n1"}


def test_lost_rows_stop_a_query_or_are_passed_over(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "LOST")
    publish(client, "LOST", 20)
    assert run(spark, server, "LOST", tmp_path / "a") == run(spark, server, "LOST", tmp_path / "b") != []
    publish(client, "LOST", 20)
    assert client.api("STREAM.PURGE.LOST", {"seq": 31})["purged"] == 30
    message = failure(lambda: run(spark, server, "LOST", tmp_path / "a"))
    assert "21 to 30 are no longer in stream 'LOST'" in message
    assert run(spark, server, "LOST", tmp_path / "b", failOnDataLoss="false") == [list(range(31, 41))]


def test_a_stream_made_again_stops_a_query_or_is_read_from_its_start(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "REMADE")
    publish(client, "REMADE", 20)
    assert run(spark, server, "REMADE", tmp_path / "a") == run(spark, server, "REMADE", tmp_path / "b") != []
    delete(client, "REMADE")
    create(client, "REMADE")
    publish(client, "REMADE", 30)
    assert "was deleted and created again" in failure(lambda: run(spark, server, "REMADE", tmp_path / "a"))
    options = {"failOnDataLoss": "false", "maxRecordsPerTrigger": 20}
    assert run(spark, server, "REMADE", tmp_path / "b", **options) == [list(range(1, 21)), list(range(21, 31))]


def test_an_idle_query_waits_on_a_consumer_that_is_gone_when_it_stops(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "WAITS")
    frame = spark.readStream.format("jetstream").options(servers=server.url, stream="WAITS").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    consumers_of(client, "WAITS", 1)
    query.stop()
    consumers_of(client, "WAITS", 0)


def consumers_of(client: RawClient, stream: str, count: int) -> None:
    """Wait until the stream has so many."""
    deadline_s = time.monotonic() + PATIENCE_S
    while len(client.api(f"CONSUMER.NAMES.{stream}")["consumers"] or ()) != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "X", "startingOffset": "1"}, "unknown option 'startingoffset'; did you mean 'startingOffsets'?"),
        ({"stream": "X", "startingOffsets": "soon"}, "option 'startingOffsets': expected earliest, latest"),
        ({"stream": "X", "failOnDataLoss": "maybe"}, "option 'failOnDataLoss': expected true or false, got 'maybe'"),
        ({}, "option 'stream' is required"),
    ],
)
def test_options_that_are_not_understood_fail_at_load(
    spark: "SparkSession", server: Server, options: dict[str, str], message: str
) -> None:
    reader = spark.read.format("jetstream").options(servers=server.url, **options)
    assert message in failure(reader.load)


def test_the_sentence_of_an_error_comes_before_the_traceback(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "TOLD")
    publish(client, "TOLD", 1)
    reader = spark.read.format("jetstream").options(servers=server.url, stream="TOLD", columns="what")
    row = spark.createDataFrame([("elsewhere", "1")], "subject STRING, data STRING")
    writer = row.write.format("jetstream").options(servers=server.url, stream="TOLD")
    actions: dict[str, Callable[[], object]] = {
        "BadOptionError: option 'columns'": reader.load,  # as it is made
        "StreamNotFoundError: stream 'TOLD_NOT'": load(spark, server, "TOLD_NOT").collect,  # as it is planned
        "BadOptionError: mode 'overwrite'": writer.mode("overwrite").save,
        "RowError: column 'subject': 'elsewhere' is": lambda: writer.mode("append").save(),  # in a task
        "StreamNotFoundError: stream 'TOLD_NEITHER'": lambda: run(spark, server, "TOLD_NEITHER", tmp_path),
    }
    for sentence, action in actions.items():
        told, _, traceback = failure(action).partition("Traceback (most recent call last)")
        assert f"pyspark_jetstream.errors.{sentence}" in told
        assert sentence in traceback


def test_a_write_without_a_mode_names_append(spark: "SparkSession", server: Server, client: RawClient) -> None:
    create(client, "MODELESS")
    rows = spark.createDataFrame([("MODELESS.x", "1")], "subject STRING, data STRING")
    assert '"Append"' in failure(rows.write.format("jetstream").options(servers=server.url, stream="MODELESS").save)


def test_options_of_the_other_kind_of_read_are_refused(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "KINDS")
    batch = load(spark, server, "KINDS", maxRecordsPerTrigger=5)
    assert "'maxRecordsPerTrigger' is for streaming reads" in failure(batch.collect)
    stream = lambda: run(spark, server, "KINDS", tmp_path, endingOffsets="5")  # noqa: E731  (an action)
    assert "'endingOffsets' is for batch reads" in failure(stream)


def test_a_stream_that_does_not_exist_is_named(spark: "SparkSession", server: Server) -> None:
    assert "stream 'NOWHERE' does not exist" in failure(load(spark, server, "NOWHERE").collect)
