"""Options through Spark itself: columns, filters, several streams, work queues, executors of their own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_jetstream import statistics
from tests.harness.forms import IS_LONG
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.streams import create, publish
from tests.spark.test_source import QUERY_TIMEOUT_S, failure, load, seqs, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def test_a_query_has_the_columns_and_subjects_that_it_names(
    spark: "SparkSession", server: Server, client: RawClient
) -> None:
    create(client, "NARROW")
    publish(client, "NARROW", 9)
    chosen = load(spark, server, "NARROW", columns="data,stream_seq", subject="NARROW.s1,NARROW.s2")
    assert chosen.columns == ["data", "stream_seq"]
    assert sorted((row.stream_seq, bytes(row.data)) for row in chosen.collect()) == [
        (seq, b"payload %d" % (seq - 1)) for seq in (2, 3, 5, 6, 8, 9)
    ]
    reader = spark.read.format("jetstream").options(servers=server.url, stream="NARROW")
    own = reader.schema("subject STRING, data BINARY").load()
    assert {row.subject for row in own.collect()} == {"NARROW.s0", "NARROW.s1", "NARROW.s2"}
    wrong = reader.schema("key STRING").load()
    assert "the source has no column key string; its columns are struct<stream_seq:bigint" in failure(wrong.collect)


def test_filters_of_where_limit_what_is_read(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "PUSHED")
    publish(client, "PUSHED", 300)
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = load(spark, server, "PUSHED", pushdown="true", statsDir=str(tmp_path))
        condition = "stream_seq > 100 AND stream_seq <= 160 AND subject = 'PUSHED.s1' AND length(data) > 1"
        assert seqs(frame.where(condition)) == [seq for seq in range(101, 161) if (seq - 1) % 3 == 1]
        moment = client.api("STREAM.MSG.GET.PUSHED", {"seq": 1})["message"]["time"]
        assert seqs(frame.where(f"time >= TIMESTAMP '{moment}'")) == list(range(1, 301))
        assert seqs(frame.where("time > TIMESTAMP '2999-01-01 00:00:00Z'")) == []
    finally:
        spark.conf.unset(PUSHDOWN)
    read = [one["rows"] for one in statistics(str(tmp_path))]
    assert sum(read) == 20 + 300


def test_several_streams_are_one_query(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    for name in ("MANY_A", "MANY_B"):
        create(client, name)
        publish(client, name, 10)
    found: list[tuple[str, int]] = []

    def each(frame: "DataFrame", _: int) -> None:
        found.extend((row.stream, row.stream_seq) for row in frame.collect())

    options: dict[str, Any] = {"servers": server.url, "streams": "MANY_*", "maxRecordsPerTrigger": 7}
    for expected in (10, 12):
        reader = spark.readStream.format("jetstream").options(**options).load()
        writer = reader.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(QUERY_TIMEOUT_S)
        assert sorted(found) == [(name, seq) for name in ("MANY_A", "MANY_B") for seq in range(1, expected + 1)]
        for name in ("MANY_A", "MANY_B"):
            publish(client, name, 2)


def test_a_work_queue_keeps_the_batch_that_spark_did_not_finish(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "QUEUE", retention="workqueue")
    publish(client, "QUEUE", 30)
    batches: dict[int, list[int]] = {}
    options = {"maxRecordsPerTrigger": 10, "durable": "spark", "statsDir": str(tmp_path / "stats")}

    def fails(frame: "DataFrame", batch_id: int) -> None:
        if batch_id == 1:
            raise RuntimeError("in the middle of a batch")
        batches[batch_id] = seqs(frame)

    def works(frame: "DataFrame", batch_id: int) -> None:
        assert batch_id not in batches
        batches[batch_id] = seqs(frame)

    first = start(spark, server, "QUEUE", tmp_path / "checkpoint", fails, **options)
    assert "in the middle of a batch" in failure(lambda: first.awaitTermination(QUERY_TIMEOUT_S))
    state = client.api("STREAM.INFO.QUEUE")["state"]
    assert state["messages"] >= 20
    assert state["last_seq"] == 30
    second = start(spark, server, "QUEUE", tmp_path / "checkpoint", works, **options)
    assert second.awaitTermination(QUERY_TIMEOUT_S)
    assert batches == {0: list(range(1, 11)), 1: list(range(11, 21)), 2: list(range(21, 31))}
    told = statistics(str(tmp_path / "stats"))
    assert {one["batch"] for one in told} == {"0", "1", "2"}
    assert sum(one["bytes"] for one in told) >= sum(len(b"payload %d" % number) for number in range(30))


CLUSTER_JOB = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.conftest import local_session
servers, directory = sys.argv[1:]
builder = SparkSession.builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
builder = builder.config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
spark = local_session(builder, Path(directory), master="local-cluster[2,1,512]")
frame = spark.read.format("jetstream").options(servers=servers, stream="EXECUTORS", minPartitions=4).load()
found = frame.rdd.mapPartitions(lambda rows: [(__import__("pyspark").SparkFiles.getRootDirectory(), len(list(rows)))])
found = found.collect()
print(sorted(rows for _, rows in found), len({place for place, _ in found}))
"""


@pytest.mark.long_form
@pytest.mark.skipif(not IS_LONG, reason="a master, two workers and two executors, each a Java of its own")
def test_executors_in_processes_of_their_own_read_too(server: Server, client: RawClient, tmp_path: Path) -> None:
    import pyspark  # noqa: PLC0415  (needs pyspark)

    create(client, "EXECUTORS")
    publish(client, "EXECUTORS", 400)
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    answer = subprocess.run(
        [sys.executable, "-c", CLUSTER_JOB, server.url, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=QUERY_TIMEOUT_S,
        check=False,
    )
    assert answer.stdout.splitlines()[-1:] == ["[100, 100, 100, 100] 2"], answer.stderr[-3000:]
