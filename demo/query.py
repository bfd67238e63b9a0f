"""The process of the Spark query: counts flights and adds up departure delays by window, carrier and origin.

A window is over the time at which a flight was stored, and its state is dropped when the watermark has passed it. The
query writes the windows that a micro-batch has changed to the stream DELAYS, exactly once, and replaces a file with the
table over all windows. A line on its standard input means that everything has been published: it processes the rest and
exits.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from demo.windows import FENCES, STREAM, Counts, Window, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ROW = "carrier STRING, origin STRING, dep_delay DOUBLE"
ROWS_PER_TRIGGER = 250_000
TRIGGER = "2 seconds"  # the fixed cost of a micro-batch is a quarter of one
WINDOW = "5 seconds"
WATERMARK = "30 seconds"  # the stream's times ascend: rows are late only by the clocks of its leaders
POLL_S = 0.2


def session() -> SparkSession:
    """A local session with two task slots, no listener but loopback, no console noise."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.appName("jetraft demo")
        .master("local[2]")
        .config("spark.ui.enabled", value=False)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", value=False)
        .getOrCreate()
    )


def read(spark: SparkSession, *, servers: str, directory: Path) -> "DataFrame":
    """The rows of the stream FLIGHTS, with the time at which each was stored."""
    return (
        spark.readStream.format("jetstream")
        .option("servers", servers)
        .option("stream", "FLIGHTS")
        .option("startingOffsets", "earliest")
        .option("columns", "time,data")
        .option("maxRecordsPerTrigger", ROWS_PER_TRIGGER)
        .option("queryName", "demo delays")
        .option("statsDir", str(directory / "stats"))
        .load()
    )


def windowed(rows: "DataFrame") -> "DataFrame":
    """Flights and delays by window of the time of storing, carrier and origin."""
    flights = rows.select("time", sql.from_json(sql.col("data").cast("string"), ROW).alias("row"))
    return (
        flights.select("time", "row.*")
        .withWatermark("time", WATERMARK)
        .groupBy(sql.window("time", WINDOW).alias("window"), "carrier", "origin")
        .agg(
            sql.count("*").alias("flights"),
            sql.count("dep_delay").alias("with_delay"),
            sql.sum("dep_delay").alias("delay_min"),
        )
    )


class Results:
    """The latest state of each window, in the stream DELAYS and in a file. The sink of the query."""

    def __init__(self, path: Path, servers: str) -> None:
        self._path = path
        self._servers = servers
        self._windows: dict[Window, Counts] = {}

    def take(self, batch: "DataFrame", batch_id: int) -> None:
        """Take the windows that a micro-batch has changed (output mode update): write them, and replace the file."""
        batch.persist()  # it is used twice
        for row in batch.collect():
            key = (row.window.start.isoformat(), row.carrier, row.origin)
            self._windows[key] = (row.flights, row.with_delay, row.delay_min or 0.0)
        write_back(batch, batch_id, self._servers)
        batch.unpersist()
        rows = [
            {"carrier": carrier, "origin": origin, **attrs.asdict(delays)}
            for (carrier, origin), delays in table(self._windows).items()
        ]
        write(self._path, {"batch": batch_id, "rows": rows})


def write_back(batch: "DataFrame", batch_id: int, servers: str) -> None:
    """Write a message for each row; a micro-batch that Spark repeats writes what is missing."""
    messages = batch.select(
        sql.concat_ws(".", sql.lit("delays"), "carrier", "origin").alias("subject"),
        sql.to_json(
            sql.struct(
                sql.col("window.start").cast("string").alias("window"),
                *("carrier", "origin", "flights", "with_delay", "delay_min"),
            )
        ).alias("data"),
    )
    writer = messages.write.format("jetstream").option("servers", servers).option("stream", STREAM)
    writer = writer.option("delivery", "exactly-once").option("fenceSubject", FENCES)
    writer.option("writeId", "demo-delays").option("writeEpoch", batch_id).mode("append").save()


def start(spark: SparkSession, *, servers: str, directory: Path) -> "StreamingQuery":
    """Start the query on the stream FLIGHTS; its windows land in the stream DELAYS, its table in result.json."""
    results = Results(directory / "result.json", servers)
    return (
        windowed(read(spark, servers=servers, directory=directory))
        .writeStream.outputMode("update")
        .foreachBatch(results.take)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def wait_for_word(finish: threading.Event) -> None:
    """Set the event when a line, or the end of the input, arrives."""
    sys.stdin.readline()
    finish.set()


def write(path: Path, value: Any) -> None:
    """Replace a JSON file atomically: a reader sees the old content or the new one."""
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(value), encoding="utf-8")
    unfinished.rename(path)


def speeds(query: "StreamingQuery") -> list[dict[str, float]]:
    """Rows and seconds of every micro-batch that Spark still remembers."""
    return [
        {"rows": entry["numInputRows"], "seconds": entry["durationMs"].get("triggerExecution", 0) / 1000}
        for entry in (json.loads(progress.json) for progress in query.recentProgress)
        if entry["numInputRows"]
    ]


def main() -> int:
    """Run until told to finish; exit 1 when the query failed."""
    parser = argparse.ArgumentParser(prog="python -m demo.query")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    chosen = parser.parse_args()
    finish = threading.Event()
    threading.Thread(target=wait_for_word, args=(finish,), daemon=True).start()
    spark = session()
    query = start(spark, servers=chosen.servers, directory=chosen.directory)
    write(chosen.directory / "started.json", {"seconds": time.process_time()})
    while not finish.wait(POLL_S):
        if query.exception() is not None:
            break
    if query.exception() is None:
        query.processAllAvailable()
        write(chosen.directory / "speeds.json", speeds(query))
    error = query.exception()
    query.stop()
    spark.stop()
    if error is not None:
        sys.stderr.write(f"{error}\n")
    return 0 if error is None else 1


if __name__ == "__main__":
    raise SystemExit(main())
