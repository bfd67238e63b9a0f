"""A streaming job that copies a stream into another one, exactly once; a test kills its process.

python driver_job.py SERVERS SOURCE TARGET DIRECTORY ROWS_PER_BATCH
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(  # noqa: PLR0913  (the job's arguments)
    spark: "SparkSession", servers: str, source: str, target: str, *, directory: Path, rows_per_batch: int
) -> "StreamingQuery":
    """Start the query."""
    rows = (
        spark.readStream.format("jetstream")
        .options(servers=servers, stream=source, maxRecordsPerTrigger=rows_per_batch, minPartitions=2)
        .load()
        .selectExpr(f"replace(subject, '{source}.', '{target}.') AS subject", "headers", "data")
    )
    writer = rows.writeStream.format("jetstream").options(
        servers=servers,
        stream=target,
        delivery="exactly-once",
        fenceSubject=f"fence.{target}",
        checkpointLocation=str(directory / "checkpoint"),
    )
    return writer.trigger(availableNow=True).start()


def main() -> None:
    """Run the job to the stream's present end."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (the test imports `start` only)

    from tests.spark.conftest import local_session  # noqa: PLC0415

    servers, source, target, directory, rows_per_batch = sys.argv[1:]
    spark = local_session(SparkSession.builder, Path(directory) / "driver")
    query = start(spark, servers, source, target, directory=Path(directory), rows_per_batch=int(rows_per_batch))
    query.awaitTermination()


if __name__ == "__main__":
    main()
