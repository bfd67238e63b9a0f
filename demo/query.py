"""The process of the Spark query: counts flights and averages departure delays per carrier and origin.

It replaces a file with its table after every micro-batch (complete output mode). A line on its standard input means
that everything has been published: it processes the rest and exits.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ROW = "carrier STRING, origin STRING, dep_delay DOUBLE"
ROWS_PER_TRIGGER = 60_000
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


def start(spark: SparkSession, *, servers: str, directory: Path) -> "StreamingQuery":
    """Start the query on the stream FLIGHTS; its table lands in result.json."""
    rows = (
        spark.readStream.format("jetstream")
        .option("servers", servers)
        .option("stream", "FLIGHTS")
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", ROWS_PER_TRIGGER)
        .option("minPartitions", 3)
        .option("statsDir", str(directory / "stats"))
        .load()
    )
    flights = rows.select(sql.from_json(sql.col("data").cast("string"), ROW).alias("row")).select("row.*")
    table = flights.groupBy("carrier", "origin").agg(
        sql.count("*").alias("flights"),
        sql.count("dep_delay").alias("with_delay"),
        sql.avg("dep_delay").alias("mean_delay_min"),
    )

    def keep(batch: "DataFrame", batch_id: int) -> None:
        write(directory / "result.json", {"batch": batch_id, "rows": [row.asDict() for row in batch.collect()]})

    return (
        table.writeStream.outputMode("complete")
        .foreachBatch(keep)
        .option("checkpointLocation", str(directory / "checkpoint"))
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
