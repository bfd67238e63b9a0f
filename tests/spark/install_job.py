"""A job that reads and writes through the connector, however Spark got it; prints a line of JSON for each step.

    install_job.py (submit | connect) SERVERS DIRECTORY [ARCHIVE]

It reads stream IN, and copies it with a streaming query exactly once to stream OUT. With ARCHIVE the package is not
installed: the session is given it as an artifact.
"""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

QUERY_TIMEOUT_S = 120
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def session(how: str) -> SparkSession:
    """A session of two cores on loopback."""
    if how == "connect":
        return SparkSession.builder.remote("local[2]").getOrCreate()
    settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def told(step: str, action: Callable[[], object]) -> None:
    """Print what a step returns, or the beginning of its error."""
    try:
        found = action()
    except Exception as error:  # noqa: BLE001  (the test judges it)
        found = f"{type(error).__name__}: {error}"[:2000]
    sys.stdout.write(json.dumps({step: found}) + "\n")
    sys.stdout.flush()


def read(spark: SparkSession, servers: str) -> list[int]:
    """The sequences of a batch read."""
    frame = spark.read.format("jetstream").option("servers", servers).option("stream", "IN").load()
    return sorted(row.stream_seq for row in frame.select("stream_seq").collect())


def copy(spark: SparkSession, servers: str, directory: str) -> bool | None:
    """Whether a streaming query has ended that copies what is there."""
    rows = spark.readStream.format("jetstream").option("servers", servers).option("stream", "IN")
    rows = rows.option("maxRecordsPerTrigger", 15)
    messages = rows.load().selectExpr("concat('OUT.', stream_seq) AS subject", "data")
    writer = messages.writeStream.format("jetstream").option("servers", servers).option("stream", "OUT")
    writer = writer.option("delivery", "exactly-once").option("fenceSubject", "fences.job")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    query: StreamingQuery = writer.start()
    return query.awaitTermination(QUERY_TIMEOUT_S)


def main() -> int:
    """Run the steps."""
    how, servers, directory, *archive = sys.argv[1:]
    spark = session(how)
    told("found", lambda: read(spark, servers))
    if archive:
        spark.addArtifacts(archive[0], pyfile=True)
        sys.path.insert(0, archive[0])
    import pyspark_jetstream  # noqa: PLC0415  (from the archive)

    sys.stdout.write(json.dumps({"package": pyspark_jetstream.__file__}) + "\n")
    pyspark_jetstream.register(spark)
    told("registered", lambda: read(spark, servers))
    told("copied", lambda: copy(spark, servers, directory))
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
