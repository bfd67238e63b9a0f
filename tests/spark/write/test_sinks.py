"""Writing as Spark sees it: batches, queries, what a user reads when something is wrong, kills of driver and leader."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.streams import create, publish
from tests.spark.write import driver_job
from tests.spark.write.writing import create_target, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.spark]

QUERY_TIMEOUT_S = 300


def save(frame: "DataFrame", server: Server, stream: str, **options: Any) -> None:
    frame.write.format("jetstream").options(servers=server.url, stream=stream, **options).mode("append").save()


def numbers(spark: "SparkSession", stream: str, count: int) -> "DataFrame":
    """Rows as `stored` reads them."""
    return spark.range(count).selectExpr(
        f"concat('{stream}.s', id % 3) AS subject",
        "CAST(id AS STRING) AS data",
        "CASE WHEN id % 2 = 0 THEN map('number', array(CAST(id AS STRING))) END AS headers",
    )


def exactly(stream: str) -> dict[str, str]:
    return {"delivery": "exactly-once", "fenceSubject": f"fence.{stream}"}


def failure(frame: "DataFrame", server: Server, stream: str, **options: Any) -> str:
    from pyspark.errors import PySparkException  # noqa: PLC0415  (needs pyspark)

    with pytest.raises(PySparkException) as raised:
        save(frame, server, stream, **options)
    return str(raised.value)


def test_a_batch_is_appended(spark: "SparkSession", server: Server, client: RawClient) -> None:
    create_target(client, "APPENDED")
    frame = numbers(spark, "APPENDED", 3000)
    save(frame, server, "APPENDED")
    assert Counter(stored([server.url], "APPENDED")) == Counter(range(3000))
    for _ in range(2):
        save(frame, server, "APPENDED", **exactly("APPENDED"), writeId="job", writeEpoch=7)
    assert Counter(stored([server.url], "APPENDED")) == Counter(list(range(3000)) * 2)
    assert "micro-batch 6 was written, and so was 7" in failure(
        frame, server, "APPENDED", **exactly("APPENDED"), writeId="job", writeEpoch=6
    )


def test_message_ids_are_kept_by_the_stream(spark: "SparkSession", server: Server, client: RawClient) -> None:
    create_target(client, "IDS")
    frame = spark.range(50).selectExpr("CAST(id % 10 AS STRING) AS msg_id", "'1' AS data")
    save(frame, server, "IDS", subject="IDS.x")
    assert stored([server.url], "IDS") == [1] * 10


def test_what_is_wrong_is_named_when_the_write_is_planned(
    spark: "SparkSession", server: Server, client: RawClient
) -> None:
    create(client, "WRONG")
    good = numbers(spark, "WRONG", 1)
    assert "column 'data' is missing" in failure(good.select("subject"), server, "WRONG")
    assert "needs allow_atomic" in failure(good, server, "WRONG", **exactly("WRONG"))
    assert "stream 'NONE' does not exist" in failure(good, server, "NONE")
    assert "unknown option 'delivry'" in failure(good, server, "WRONG", delivry="x")
    assert "column 'subject': 'OTHER.s0' is not a subject" in failure(numbers(spark, "OTHER", 1), server, "WRONG")
    assert client.api("STREAM.INFO.WRONG")["state"]["messages"] == 0


def test_a_query_whose_task_dies_goes_on_without_repeating_a_row(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "SOURCE", subjects=["SOURCE.>"])
    create_target(client, "DIES")
    die_after_some_rows(spark, server, client, "SOURCE", "DIES", directory=tmp_path)
    half = client.api("STREAM.INFO.DIES")["state"]["messages"]
    copied(spark, server, "SOURCE", "DIES", directory=tmp_path)
    assert 1000 <= half < 4000  # batches of 999 rows, and their fences; Spark ends the rows of a failed task early
    state = client.api("STREAM.INFO.DIES", {"subjects_filter": "fence.>"})["state"]
    assert state["messages"] == 4000 + sum(state["subjects"].values())
    assert payloads(spark, server.url, "DIES", "DIES.x") == Counter(range(4000))


def test_a_micro_batch_that_lost_rows_of_its_source_is_continued_once_on_demand(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415  (needs pyspark)

    create(client, "SHRINKS", subjects=["SHRINKS.>"])
    create_target(client, "OTHER")
    die_after_some_rows(spark, server, client, "SHRINKS", "OTHER", directory=tmp_path)
    client.api("STREAM.PURGE.SHRINKS", {"seq": 501})
    reading = {"failOnDataLoss": "false"}
    with pytest.raises(PySparkException, match="acceptChangedRows=0 continues once"):
        copied(spark, server, "SHRINKS", "OTHER", directory=tmp_path, reading=reading)
    copied(spark, server, "SHRINKS", "OTHER", directory=tmp_path, reading=reading, acceptChangedRows="0")
    assert payloads(spark, server.url, "OTHER", "OTHER.x") == Counter(range(4000))
    publish(client, "SHRINKS", 10, payload=lambda number: b"%d" % (4000 + number))
    copied(spark, server, "SHRINKS", "OTHER", directory=tmp_path, reading=reading)
    assert payloads(spark, server.url, "OTHER", "OTHER.x") == Counter(range(4010))


def die_after_some_rows(  # noqa: PLR0913  (who copies what)
    spark: "SparkSession", server: Server, client: RawClient, source: str, target: str, *, directory: Path
) -> None:
    """Publish 4,000 rows and copy them; the task ends at row 3,500, after it has stored some of them."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  (needs pyspark)

    # So wide that Spark hands its batches of 500 rows to the task one by one, and does not collect them first.
    publish(client, source, 4000, payload=lambda number: b"%200d" % number)
    dying = "CASE WHEN TRIM(CAST(data AS STRING)) = '3500' THEN raise_error('the task dies') ELSE data END AS data"
    with pytest.raises(PySparkException, match="the task dies"):
        copied(spark, server, source, target, directory=directory, data=dying)


def copied(  # noqa: PLR0913  (who copies what)
    spark: "SparkSession",
    server: Server,
    source: str,
    target: str,
    *,
    directory: Path,
    data: str = "data",
    reading: dict[str, str] | None = None,
    **writing: str,
) -> None:
    """Copy one stream to another exactly once, to the end of the source."""
    given = {"servers": server.url, "stream": source, "minPartitions": "1", **(reading or {})}
    rows = spark.readStream.format("jetstream").options(**given).load().selectExpr(data)
    options = {"subject": f"{target}.x", "checkpointLocation": str(directory / "checkpoint"), **exactly(target)}
    writer = rows.writeStream.format("jetstream").options(servers=server.url, stream=target, **options, **writing)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        assert writer.trigger(availableNow=True).start().awaitTermination(QUERY_TIMEOUT_S)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def payloads(spark: "SparkSession", servers: str, stream: str, prefix: str) -> Counter[int]:
    frame = spark.read.format("jetstream").options(servers=servers, stream=stream).load()
    found = frame.where(f"startswith(subject, '{prefix}')").selectExpr("CAST(CAST(data AS STRING) AS INT) AS number")
    return Counter(row.number for row in found.collect())


@pytest.mark.timeout(900)  # two Javas and a cluster, beside other tests on two cores
def test_killed_drivers_and_leaders_change_no_row(spark: "SparkSession", cluster: Cluster, tmp_path: Path) -> None:
    servers = ",".join(cluster.urls)
    with RawClient(cluster[0].address) as client:
        create(client, "FROM", num_replicas=3)
        create_target(client, "INTO", num_replicas=3)
        publish(client, "FROM", 30_000, payload=lambda number: b"%d" % number)
        job = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.write.driver_job", servers, "FROM", "INTO", str(tmp_path), "12000"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_for_messages(client, "INTO", 14_000)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait(PATIENCE_S)
        leader = cluster.named(client.api("STREAM.INFO.INTO")["cluster"]["leader"])
    query = driver_job.start(spark, servers, "FROM", "INTO", directory=tmp_path, rows_per_batch=5000)
    leader.kill()
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        leader.start()
        cluster.wait_healthy()
    assert payloads(spark, servers, "INTO", "INTO.") == Counter(range(30_000))


def wait_for_messages(client: RawClient, stream: str, count: int) -> None:
    deadline = time.monotonic() + 5 * PATIENCE_S  # a Java starts first
    while client.api(f"STREAM.INFO.{stream}")["state"]["messages"] < count:
        assert time.monotonic() < deadline
