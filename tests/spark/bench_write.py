"""Rows per second from Spark into a stream, by guarantee; exit status 1 when a floor is missed.

    python -m tests.spark.bench_write [--rows 1000000] [--runs 3] [--kind jetraft-3 --kind jetraft-1 --kind reference-3]

Servers, driver and two tasks share one machine. The rows come from memory and have 128 bytes; each run writes to an
empty stream with as many replicas as nodes. The best of the timed runs counts, by wall time; the processor time is that
of all processes. The ceiling is the same DataFrame without a sink.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql import SparkSession

from tests.harness.raw import RawClient
from tests.spark.bench import best, discard, processor_s, servers, session
from tests.spark.from_memory import FromMemory
from tests.spark.streams import create, delete

STREAM = "WRITTEN"


@attrs.frozen
class Case:
    """How rows are written, and how fast that has to be."""

    delivery: str
    floor: int  # rows/s


CASES = (Case("at-least-once", 250_000), Case("exactly-once", 100_000))


def main() -> int:
    """Measure every kind and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kind", action="append", choices=["jetraft-1", "jetraft-3", "reference-1", "reference-3"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as place:
        spark = session(Path(place))
        frame = rows(spark, given.rows)
        show("without a sink", "", *best(given.rows, given.runs, lambda: discard(frame)), 0)
        for kind in given.kind or ["jetraft-3", "reference-3"]:
            name, _, nodes = kind.partition("-")
            directory = Path(place) / kind
            directory.mkdir()
            with (
                servers("jetraft" if name == "jetraft" else "reference", int(nodes), directory) as started,
                RawClient(started[0].address) as client,
            ):
                urls = ",".join(node.url for node in started)
                for case in CASES:
                    found = measured(frame, client, urls, case, replicas=int(nodes), rows=given.rows, runs=given.runs)
                    missed = not show(kind, case.delivery, *found, case.floor if name == "jetraft" else 0) or missed
        spark.stop()
    return int(missed)


def rows(spark: SparkSession, count: int) -> Any:
    """The rows to write, from memory, in two partitions."""
    spark.dataSource.register(FromMemory)
    return spark.read.format("from_memory").option("rows", count).load().select("data")


def measured(  # noqa: PLR0913  (what a run consists of)
    frame: Any, client: RawClient, urls: str, case: Case, *, replicas: int, rows: int, runs: int
) -> tuple[float, float]:
    """(rows/s, us of processor time a row) of the fastest of some runs, after one that is not counted."""
    options = {"servers": urls, "stream": STREAM, "subject": f"{STREAM}.rows", "delivery": case.delivery}
    if case.delivery == "exactly-once":
        options["fenceSubject"] = "fences.bench"
    found = []
    for _ in range(runs + 1):
        create(
            client,
            STREAM,
            subjects=[f"{STREAM}.>", "fences.>"],
            num_replicas=replicas,
            allow_atomic=True,
            allow_rollup_hdrs=True,
        )
        cpu_s, started_s = processor_s(), time.perf_counter()
        frame.write.format("jetstream").options(**options).mode("append").save()
        seconds = time.perf_counter() - started_s
        found.append((rows / seconds, 1e6 * (processor_s() - cpu_s) / rows))
        subjects = client.api(f"STREAM.INFO.{STREAM}", {"subjects_filter": f"{STREAM}.rows"})["state"]["subjects"]
        assert subjects == {f"{STREAM}.rows": rows}, subjects
        delete(client, STREAM)
    return max(found[1:])


def show(kind: str, case: str, rate: float, cpu_us: float, floor: int) -> bool:
    """Print a line; return whether the floor holds."""
    judged = f"{rate / floor:6.2f} of {floor:,}: {'holds' if rate >= floor else 'MISSED'}" if floor else ""
    sys.stdout.write(f"{kind:18} {case:16} {rate:12,.0f} rows/s {cpu_us:6.2f} us CPU a row  {judged}\n")
    sys.stdout.flush()
    return rate >= floor


if __name__ == "__main__":
    sys.exit(main())
