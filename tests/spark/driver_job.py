"""A streaming job in a process of its own, which a test kills in the middle of a micro-batch.

    python driver_job.py SERVERS STREAM DIRECTORY ROWS_PER_BATCH STOP_IN_BATCH

Each micro-batch writes its sequences to DIRECTORY/<batch id>.json, replacing what an earlier try left there. In the
micro-batch STOP_IN_BATCH the job says so after its rows are written and waits for its end.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(  # noqa: PLR0913  (the job's arguments)
    spark: "SparkSession", servers: str, stream: str, *, directory: Path, rows_per_batch: int, stop_in: int = -1
) -> "StreamingQuery":
    """Start the query."""

    def write(frame: "DataFrame", batch_id: int) -> None:
        seqs = sorted(row.stream_seq for row in frame.select("stream_seq").collect())
        (directory / f"{batch_id}.json").write_text(json.dumps(seqs))
        if batch_id == stop_in:
            sys.stdout.write(f"written {batch_id}\n")
            sys.stdout.flush()
            sys.stdin.read()

    reader = spark.readStream.format("jetstream").options(
        servers=servers, stream=stream, maxRecordsPerTrigger=rows_per_batch
    )
    writer = reader.load().writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def main() -> None:
    """Run the job to the stream's present end."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (the test imports `start` only)

    from tests.spark.conftest import local_session  # noqa: PLC0415

    servers, stream, directory, rows_per_batch, stop_in = sys.argv[1:]
    spark = local_session(SparkSession.builder, Path(directory) / "driver")
    query = start(
        spark, servers, stream, directory=Path(directory), rows_per_batch=int(rows_per_batch), stop_in=int(stop_in)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
