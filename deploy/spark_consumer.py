"""The job of the compose profile `spark`: counts the messages of a stream by subject, continuously.

    python deploy/spark_consumer.py --servers nats://n1:4222,nats://n2:4222,nats://n3:4222 --stream ORDERS

Defaults come from the environment: JETSTREAM_SERVERS, JETSTREAM_STREAM, CHECKPOINT_DIR, STATS_DIR. The checkpoint
directory has the position: a job that was killed continues there. SIGTERM ends it after the present micro-batch.
"""

import argparse
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from pyspark_jetstream.java import JavaMissingError, ensure_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main() -> int:
    """Run until SIGTERM, or until the present end with --once."""
    given = parse_arguments()
    try:
        ensure_java()
    except JavaMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session()
    writer = (
        counts(spark, given)
        .writeStream.outputMode("complete")
        .format("console")
        .option("numRows", given.show)
        .option("truncate", value=False)
        .option("checkpointLocation", given.checkpoint)
    )
    trigger = writer.trigger(availableNow=True) if given.once else writer.trigger(processingTime=given.every)
    query = trigger.start()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while not (stopping.is_set() or query.awaitTermination(1)):
        pass
    query.stop()
    spark.stop()
    return 0


def parse_arguments() -> argparse.Namespace:
    """Return the settings, from the command line, else from the environment."""
    parser = argparse.ArgumentParser(description="Count the messages of a JetStream stream by subject with Spark.")
    parser.add_argument("--servers", default=os.environ.get("JETSTREAM_SERVERS", "nats://127.0.0.1:4222"))
    parser.add_argument("--stream", default=os.environ.get("JETSTREAM_STREAM", "ORDERS"))
    parser.add_argument("--checkpoint", default=os.environ.get("CHECKPOINT_DIR", "checkpoint"))
    parser.add_argument("--stats-dir", default=os.environ.get("STATS_DIR"))
    parser.add_argument("--every", default="2 seconds", help="time between micro-batches")
    parser.add_argument("--rows-per-batch", default="500000", help="the most sequences of one micro-batch")
    parser.add_argument("--show", type=int, default=20, help="subjects to show")
    parser.add_argument("--once", action="store_true", help="stop at the present end of the stream")
    return parser.parse_args()


def session() -> "SparkSession":
    """Return a local Spark session without its web interface."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (after the check for Java, which has the better message)

    return (
        SparkSession.builder.appName("jetstream-consumer")
        .config("spark.ui.enabled", value=False)
        .config("spark.sql.shuffle.partitions", os.cpu_count() or 2)
        .getOrCreate()
    )


def counts(spark: "SparkSession", given: argparse.Namespace) -> "DataFrame":
    """Return count, last sequence and last time by subject, the most messages first."""
    reader = (
        spark.readStream.format("jetstream")
        .option("servers", given.servers)
        .option("stream", given.stream)
        .option("maxRecordsPerTrigger", given.rows_per_batch)
    )
    if given.stats_dir:
        reader = reader.option("statsDir", given.stats_dir)
    return (
        reader.load()
        .groupBy("subject")
        .agg({"*": "count", "stream_seq": "max", "time": "max"})
        .withColumnRenamed("count(1)", "messages")
        .orderBy("messages", ascending=False)
    )


if __name__ == "__main__":
    sys.exit(main())
