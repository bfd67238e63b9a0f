"""What survives: a killed driver, a killed replica."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.fetch import RangeReader
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.planner import Planner
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark import driver_job
from tests.spark.streams import create, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.campaign


QUERY_TIMEOUT_S = 300


@pytest.fixture
def connections() -> Iterator[ConnectionCache]:
    cache = ConnectionCache()
    yield cache
    cache.close()


@pytest.mark.spark
def test_a_driver_killed_in_a_micro_batch_loses_and_repeats_nothing(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "KILLED")
    publish(client, "KILLED", 500)
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver_job", server.url, "KILLED", str(tmp_path), "100", "2"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with job:
        assert job.stdout is not None
        line = job.stdout.readline()
        os.killpg(job.pid, signal.SIGKILL)
    assert line == b"written 2\n"
    assert not (tmp_path / "checkpoint" / "commits" / "2").exists()
    publish(client, "KILLED", 300)
    query = driver_job.start(spark, server.url, "KILLED", directory=tmp_path, rows_per_batch=150)
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    batches = {int(path.stem): json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert batches[2] == list(range(201, 301))
    assert sorted(seq for batch in batches.values() for seq in batch) == list(range(1, 801))


def test_a_range_is_read_whole_when_its_replica_is_killed_in_the_middle(
    cluster: Cluster, connections: ConnectionCache
) -> None:
    """The range has 60 MB: more than what the replica and the sockets hold for a reader."""
    with RawClient(cluster[0].address) as client:
        create(client, "MIDDLE", num_replicas=3)
        publish(client, "MIDDLE", 600, payload=lambda _: bytes(100_000))
    planner = Planner(parse_options({"servers": cluster[0].url, "stream": "MIDDLE"}), connections)
    view = planner.view()
    [partition] = planner.split(attrs.evolve(view, message_bytes=1), 1, view.end_seq)
    assert {candidate.name for candidate in partition.servers if candidate.has_replica} == {"n1", "n2", "n3"}
    reader = RangeReader(partition, connections)
    seqs: list[int] = []
    victim: Server | None = None
    try:
        for rows in reader:
            seqs += rows.stream_seqs
            if victim is None:
                victim = cluster.named(next(iter(reader.served)))
                victim.kill()
        assert victim is not None
        assert seqs == list(range(1, 601))
        assert 0 < reader.served[victim.name].rows < 600
        assert sum(served.rows for served in reader.served.values()) == 600
    finally:
        if victim is not None:
            victim.start()
            cluster.wait_healthy()


def test_partitions_are_spread_over_the_replicas(cluster: Cluster, connections: ConnectionCache) -> None:
    with RawClient(cluster[0].address) as client:
        create(client, "SPREAD", num_replicas=3)
        publish(client, "SPREAD", 90)
    options = parse_options({"servers": cluster[1].url, "stream": "SPREAD", "minPartitions": "3"})
    planner = Planner(options, connections)
    partitions = planner.split(planner.view(), 1, 91)
    served: list[str] = []
    for partition in partitions:
        reader = RangeReader(partition, connections)
        assert sum(len(rows) for rows in reader) == 30
        served += reader.served
    assert sorted(served) == ["n1", "n2", "n3"]


@pytest.mark.spark
def test_a_query_goes_on_when_the_leader_is_killed(spark: "SparkSession", cluster: Cluster, tmp_path: Path) -> None:
    with RawClient(cluster[0].address) as client:
        create(client, "ONGOING", num_replicas=3)
        publish(client, "ONGOING", 600)
        leader = cluster.named(client.api("STREAM.INFO.ONGOING")["cluster"]["leader"])
    seqs: list[int] = []

    def each(frame: "DataFrame", batch_id: int) -> None:
        seqs.extend(row.stream_seq for row in frame.select("stream_seq").collect())
        if batch_id == 1:
            leader.kill()

    reader = spark.readStream.format("jetstream").options(
        servers=",".join(cluster.urls),
        stream="ONGOING",
        maxRecordsPerTrigger=100,
        minPartitions=3,
        statsDir=str(tmp_path / "stats"),
    )
    writer = reader.load().writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    leader.start()
    cluster.wait_healthy()
    assert sorted(seqs) == list(range(1, 601))
    told = [json.loads(path.read_text()) for path in (tmp_path / "stats").glob("*.json")]
    assert sum(task["rows"] for task in told) == 600
    assert len({task["server"] for task in told}) == 3
