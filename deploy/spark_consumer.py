"""The job of the compose profile `spark`: counts the messages of a stream by subject, continuously.

    python deploy/spark_consumer.py --servers nats://n1:4222,nats://n2:4222,nats://n3:4222 --stream ORDERS

Defaults come from the environment: JETSTREAM_SERVERS, JETSTREAM_STREAM, CHECKPOINT_DIR, STATS_DIR. Every other option
of the source (docs/spark.md) is a variable too: JETSTREAM_ACCEPT_INCARNATION is `acceptIncarnation`. The job waits for
its stream. The checkpoint directory has the position: a job that was killed continues there. SIGTERM ends it after the
present micro-batch.

Exit status: 0 after SIGTERM, 1 when the query fails, 2 when a setting is wrong.
"""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import BadOptionError, JetStreamSourceError, ServersUnavailableError, StreamNotFoundError
from pyspark_jetstream.java import JavaMissingError, ensure_java
from pyspark_jetstream.leader import Leader
from pyspark_jetstream.options import KNOWN, Options, parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX: Final = "JETSTREAM_"
DEFAULTS: Final = {"servers": "nats://127.0.0.1:4222", "maxRecordsPerTrigger": "500000"}
DEFAULT_STREAM: Final = "ORDERS"
LOOK_S: Final = 2.0  # between two looks for the stream
SAY_AGAIN_LOOKS: Final = 30
USAGE_ERROR: Final = 2


def main() -> int:
    """Run until SIGTERM, or until the present end with --once."""
    given = parse_arguments()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        options = options_of(os.environ) | {name: text for name, text in stated(given).items() if text}
        parsed = parse_options(options)
        if not wait_for_stream(parsed, stopping):
            return 0
        ensure_java()
    except BadOptionError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE_ERROR
    except (JavaMissingError, JetStreamSourceError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session()
    writer = (
        counts(spark, options)
        .writeStream.outputMode("complete")
        .format("console")
        .option("numRows", given.show)
        .option("truncate", value=False)
        .option("checkpointLocation", given.checkpoint)
    )
    trigger = writer.trigger(availableNow=True) if given.once else writer.trigger(processingTime=given.every)
    query = trigger.start()
    while not (stopping.is_set() or query.awaitTermination(1)):
        pass
    query.stop()
    spark.stop()
    return 0


def parse_arguments() -> argparse.Namespace:
    """Return the settings of the command line."""
    parser = argparse.ArgumentParser(description="Count the messages of a JetStream stream by subject with Spark.")
    parser.add_argument("--servers")
    parser.add_argument("--stream")
    parser.add_argument("--checkpoint", default=os.environ.get("CHECKPOINT_DIR", "checkpoint"))
    parser.add_argument("--stats-dir", default=os.environ.get("STATS_DIR"))
    parser.add_argument("--every", default="2 seconds", help="time between micro-batches")
    parser.add_argument("--rows-per-batch", help="the most sequences of one micro-batch (500000)")
    parser.add_argument("--show", type=int, default=20, help="subjects to show")
    parser.add_argument("--once", action="store_true", help="stop at the present end of the stream")
    return parser.parse_args()


def stated(given: argparse.Namespace) -> dict[str, str | None]:
    """The options of the source that are flags of this command."""
    return {
        "servers": given.servers,
        "stream": given.stream,
        "statsDir": given.stats_dir,
        "maxRecordsPerTrigger": given.rows_per_batch,
    }


def variable_of(option: str) -> str:
    """The environment variable of an option of the source."""
    return PREFIX + re.sub("([A-Z])", r"_\1", option).upper()


def options_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The options of the source that the environment has, with the defaults. Raises BadOptionError.

    An empty variable is one that is not set: compose files cannot leave one out.
    """
    known = {variable_of(name): name for name in KNOWN.values()}
    given = {name: text for name, text in environment.items() if name.startswith(PREFIX) and text}
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise BadOptionError(f"{unknown[0]}: the source has no such option (docs/spark.md)")
    options = DEFAULTS | {known[name]: text for name, text in given.items()}
    return options if "streams" in options else {"stream": DEFAULT_STREAM} | options


def wait_for_stream(options: Options, stopping: threading.Event) -> bool:
    """Return when the servers have the stream: True. False when SIGTERM came first. Patterns match what is there."""
    missing = [name for name in options.streams if "*" not in name]
    connections, looks = ConnectionCache(), 0
    try:
        while missing and not stopping.is_set():
            try:
                Leader(options.access, missing[0], connections).view()
                missing.pop(0)
                continue
            except (StreamNotFoundError, ServersUnavailableError) as error:
                if looks % SAY_AGAIN_LOOKS == 0:
                    sys.stderr.write(f"waiting for the stream {missing[0]}: {error}\n")
            looks += 1
            stopping.wait(LOOK_S)
    finally:
        connections.close()
    return not stopping.is_set()


def session() -> "SparkSession":
    """Return a local Spark session without its web interface."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (after the check for Java, which has the better message)

    return (
        SparkSession.builder.appName("jetstream-consumer")
        .config("spark.ui.enabled", value=False)
        .config("spark.sql.shuffle.partitions", os.cpu_count() or 2)
        .getOrCreate()
    )


def counts(spark: "SparkSession", options: Mapping[str, str]) -> "DataFrame":
    """Return count, last sequence and last time by subject, the most messages first."""
    return (
        spark.readStream.format("jetstream")
        .options(**options)
        .load()
        .groupBy("subject")
        .agg({"*": "count", "stream_seq": "max", "time": "max"})
        .withColumnRenamed("count(1)", "messages")
        .orderBy("messages", ascending=False)
    )


if __name__ == "__main__":
    sys.exit(main())
