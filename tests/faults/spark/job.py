"""A streaming query that copies a stream into another one exactly once, on two executors in processes of their own.

    python -m tests.faults.spark.job SERVERS SOURCE TARGET DIRECTORY ROWS_PER_BATCH PARTITIONS CORES

It ends when the directory has a file `stop`. Each task of a micro-batch, of which there are PARTITIONS at least, sleeps
a little every 500 rows, in Java, so that a fault meets tasks that write. An executor that says nothing for five seconds
is given up, and its tasks run elsewhere. All of its processes may use so many CORES, 0 for all that there are.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import local_session

EXECUTORS = 2
PAUSE_ROWS, PAUSE_MS = 500, 60
GIVEN_UP_S = 5
STOP = "stop"
POLL_S = 0.2
SETTINGS = {
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.heartbeatInterval": "500ms",
    "spark.network.timeout": f"{GIVEN_UP_S}s",
    "spark.network.timeoutInterval": "500ms",
    "spark.rpc.askTimeout": "120s",  # a busy machine must not be one more fault
    "spark.rpc.lookupTimeout": "120s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(PAUSE_ROWS),
    "spark.task.maxFailures": "8",
}


def main() -> None:
    """Run the query until it is told to stop."""
    servers, source, target, place, rows_per_batch, partitions, cores = sys.argv[1:]
    directory = Path(place)
    if int(cores):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    builder = SparkSession.builder
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = local_session(builder, directory / "spark", master=f"local-cluster[{EXECUTORS},1,512]")
    sleep = f"java_method('java.lang.Thread', 'sleep', {PAUSE_MS}L) <> ''"
    rows = (
        spark.readStream.format("jetstream")
        .options(servers=servers, stream=source, minPartitions=partitions)
        .options(maxRecordsPerTrigger=rows_per_batch, minRowsPerTrigger=rows_per_batch)
        .load()
        .selectExpr(
            f"concat('{target}.s', stream_seq % 3) AS subject",
            f"CASE WHEN stream_seq % {PAUSE_ROWS} = 0 AND {sleep} THEN data ELSE data END AS data",
        )
    )
    writer = rows.writeStream.format("jetstream").options(
        servers=servers,
        stream=target,
        delivery="exactly-once",
        fenceSubject=f"fence.{target}",
        checkpointLocation=str(directory / "checkpoint"),
    )
    query = writer.start()
    while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # seconds, as a float too
        if (directory / STOP).exists():
            query.stop()


if __name__ == "__main__":
    main()
