"""Rows per second from a stream into Spark.

    python -m tests.spark.bench [--kind reference] [--rows 500000] [--bytes 128] [--nodes 1]

Prints rates of wall time: a task's reading alone (one process, no Spark, with its processor time per row), a batch read
into the noop sink, and the streaming query with 250,000 rows a trigger, whole triggers counted.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.fetch import RangeReader
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.planner import Planner
from pyspark_jetstream.rows import to_batches
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.conftest import local_session
from tests.spark.streams import create, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STREAM = "BENCH"
ROWS_PER_TRIGGER = 250_000


def main() -> None:
    """Start servers, fill a stream, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kind", choices=["reference", "jetraft"], default="reference")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--bytes", type=int, default=128)
    parser.add_argument("--nodes", type=int, choices=[1, 3], default=1)
    given = parser.parse_args()
    payload = os.urandom(given.bytes)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        one = given.nodes == 1
        cluster = Server(given.kind, directory=directory) if one else Cluster(given.kind, 3, directory=directory)
        with cluster as started:
            nodes = [started] if isinstance(started, Server) else list(started)
            with RawClient(nodes[0].address) as client:
                create(client, STREAM, num_replicas=given.nodes)
                publish(client, STREAM, given.rows, payload=lambda _: payload)
            servers = ",".join(node.url for node in nodes)
            show("one task, no Spark", given.rows, lambda: read_alone(servers, given.rows), here=True)
            spark = session(directory)
            options = {"servers": servers, "stream": STREAM}
            frame = spark.read.format("jetstream").options(**options).load()
            frame.limit(1).collect()  # Python workers and classes are loaded now
            show("batch read, noop sink", given.rows, lambda: noop(frame))
            stream = spark.readStream.format("jetstream").options(**options, maxRecordsPerTrigger=ROWS_PER_TRIGGER)
            writer = (
                stream.load().writeStream.format("noop").option("checkpointLocation", str(directory / "checkpoint"))
            )
            show(
                "streaming, noop sink",
                given.rows,
                lambda: writer.trigger(availableNow=True).start().awaitTermination(),
            )
            spark.stop()


def session(directory: Path) -> SparkSession:
    """A session whose workers find this checkout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    return local_session(SparkSession.builder, directory, java="")


def read_alone(servers: str, rows: int) -> None:
    """What a task does, in this process."""
    connections = ConnectionCache()
    planner = Planner(parse_options({"servers": servers, "stream": STREAM}), connections)
    read = 0
    for partition in planner.split(planner.view(), 1, rows + 1):
        for batch in RangeReader(partition.value, connections):
            read += sum(part.num_rows for part in to_batches(batch))
    assert read == rows
    connections.close()


def noop(frame: "DataFrame") -> None:
    """Run the query and throw the rows away."""
    frame.write.format("noop").mode("overwrite").save()


def show(what: str, rows: int, action: Callable[[], object], *, here: bool = False) -> None:
    """Time an action and print its rate; with `here`, its processor time too, as it is all spent in this process."""
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    action()
    seconds, cpu_seconds = time.perf_counter() - started_s, time.process_time() - cpu_started_s
    cpu = f", {1e6 * cpu_seconds / rows:.1f} us CPU a row" if here else ""
    sys.stdout.write(f"{what:24} {rows / seconds:12,.0f} rows/s{cpu}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
