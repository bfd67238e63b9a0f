"""Rows per second from streams into Spark, beside nats-server and a ceiling; exit status 1 when a floor is missed.

    python -m tests.spark.bench [--rows 1500000] [--runs 3] [--kind jetraft-1 --kind jetraft-3] [--only JSON]

Servers, driver and tasks share one machine. Each case is read once before it is timed, then the best of the timed runs
counts, by wall time. The processor time is that of all processes, servers and JVM included. The ceiling of each case is
the same columns from memory (from_memory.py): what Spark itself costs. Where that alone is more than the aim, reading
may take CPU_OVER_CEILING times as much.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql import SparkSession

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Kind, Server
from tests.spark.conftest import local_session
from tests.spark.from_memory import FromMemory
from tests.spark.streams import Headers, create, publish

ROWS_PER_TRIGGER = 500_000
CPU_MAX_US = 1.0  # a row, of all processes: the aim where Spark itself leaves room for it
CPU_OVER_CEILING = 1.6  # 1 KiB: 1.5 (receiving, and a second copy into the worker); the other cases 0.9 to 1.3
TICKS = os.sysconf("SC_CLK_TCK")


@attrs.frozen
class Case:
    """What is read, and how fast it has to be."""

    name: str
    stream: str
    floor: int  # rows/s
    is_streaming: bool = False
    is_decoded: bool = False  # then there is no ceiling from memory
    cpu_max_us: float = CPU_MAX_US


TEN_FIELDS = {
    **{name: {"type": "string"} for name in ("customer", "region", "state", "created", "sku")},
    **{name: {"type": "integer"} for name in ("id", "quantity")},
    **{name: {"type": "number"} for name in ("price", "discount")},
    "paid": {"type": "boolean"},
}


def order(number: int) -> bytes:
    """A document with a value for each of the ten fields."""
    texts = {"customer": f"customer {number % 9973}", "region": "eu", "state": "NEW", "created": "2026-01-01T00:00:00Z"}
    numbers = {"id": 2**60 + number, "quantity": number % 7, "price": number % 1000 / 100, "discount": 0.05}
    return json.dumps({**texts, **numbers, "sku": f"A{number:08}", "paid": number % 2 == 0}).encode()


@attrs.frozen
class Stored:
    """A stream to read from."""

    payload_bytes: int  # random ones, or of an order
    share: float  # of the rows
    headers: Callable[[int], Headers] = lambda _: ()
    has_schema: bool = False


STREAMS = {
    "SMALL": Stored(128, 1.0),
    "LARGE": Stored(1024, 0.25),
    "TYPED": Stored(len(order(0)), 0.5, has_schema=True),
    "HEADER": Stored(128, 0.5, lambda number: [("Trace", str(number))]),
}
CASES = (
    Case("batch, 128 B", "SMALL", 1_000_000),
    Case(f"micro-batches of {ROWS_PER_TRIGGER:,}", "SMALL", 400_000, is_streaming=True),
    Case("batch, 1 KiB", "LARGE", 400_000),
    Case("batch, 128 B, a header", "HEADER", 600_000),
    Case("batch, JSON of 10 fields", "TYPED", 300_000, is_decoded=True, cpu_max_us=5.0),
)


def main() -> int:
    """Measure every kind and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kind", action="append", choices=["jetraft-1", "jetraft-3", "reference-1"])
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name has this")
    given = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as place:
        spark = session(Path(place))
        spark.dataSource.register(FromMemory)
        cases = [case for case in CASES if given.only in case.name]
        cpu_max_us = {case.name: case.cpu_max_us for case in cases}
        for case in cases:
            rows = int(given.rows * STREAMS[case.stream].share)
            if not case.is_decoded:
                rate, cpu_us = best(rows, given.runs, ceiling(spark, case, rows, Path(place)))
                show("Arrow from memory", case, rate, cpu_us)
                cpu_max_us[case.name] = max(case.cpu_max_us, CPU_OVER_CEILING * cpu_us)
        for kind in given.kind or ["jetraft-1", "jetraft-3", "reference-1"]:
            name, _, nodes = kind.partition("-")
            directory = Path(place) / kind
            directory.mkdir()
            with servers("jetraft" if name == "jetraft" else "reference", int(nodes), directory) as started:
                fill(started[0], given.rows, int(nodes), {case.stream for case in cases})
                for case in cases:
                    rows = int(given.rows * STREAMS[case.stream].share)
                    action = reading(spark, ",".join(node.url for node in started), case, directory)
                    rate, cpu_us = best(rows, given.runs, action)
                    bound_us = cpu_max_us[case.name] if name == "jetraft" else None
                    missed = not show(kind, case, rate, cpu_us, bound_us) or missed
        spark.stop()
    return int(missed)


@contextmanager
def servers(kind: Kind, nodes: int, directory: Path) -> Iterator[list[Server]]:
    """One server or a cluster."""
    if nodes == 1:
        with Server(kind, directory=directory) as one:
            yield [one]
    else:
        with Cluster(kind, nodes, directory=directory) as cluster:
            yield list(cluster)


def fill(server: Server, rows: int, replicas: int, names: set[str]) -> None:
    """Publish these streams."""
    with RawClient(server.address) as client:
        for name in names:
            stored = STREAMS[name]
            schema = {"jetraft.schema_type": "json", "jetraft.schema": json.dumps({"properties": TEN_FIELDS})}
            create(client, name, num_replicas=replicas, metadata=schema if stored.has_schema else {})
            random = os.urandom(stored.payload_bytes)
            payload = order if stored.has_schema else lambda _, same=random: same
            publish(client, name, int(rows * stored.share), payload=payload, headers=stored.headers)


def ceiling(spark: SparkSession, case: Case, rows: int, directory: Path) -> Callable[[], object]:
    """The query of a case over rows that no server sends."""
    stored = STREAMS[case.stream]
    options = {"rows": rows, "payload": stored.payload_bytes, "header": int(bool(stored.headers(0)))}
    if not case.is_streaming:
        frame = spark.read.format("from_memory").options(**options).load()
        return lambda: discard(frame)
    stream = spark.readStream.format("from_memory").options(**options, batch=ROWS_PER_TRIGGER).load()
    return lambda: drain(stream, directory)


def drain(stream: Any, directory: Path) -> None:
    """Run a streaming query to its end and throw the rows away."""
    checkpoint = tempfile.mkdtemp(dir=directory, prefix="checkpoint-")
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def reading(spark: SparkSession, urls: str, case: Case, directory: Path) -> Callable[[], object]:
    """The query of a case."""
    options = {"servers": urls, "stream": case.stream, "decode": str(case.is_decoded).lower()}
    if not case.is_streaming:
        frame = spark.read.format("jetstream").options(**options).load()
        return lambda: discard(frame)
    stream = spark.readStream.format("jetstream").options(**options, maxRecordsPerTrigger=ROWS_PER_TRIGGER).load()
    return lambda: drain(stream, directory)


def discard(frame: Any) -> None:
    """Run the query and throw the rows away."""
    frame.write.format("noop").mode("overwrite").save()


def best(rows: int, runs: int, action: Callable[[], object]) -> tuple[float, float]:
    """(rows/s, us of processor time a row) of the fastest of some runs, after one that is not counted."""
    action()
    found = []
    for _ in range(runs):
        cpu_s, started_s = processor_s(), time.perf_counter()
        action()
        seconds = time.perf_counter() - started_s
        found.append((rows / seconds, 1e6 * (processor_s() - cpu_s) / rows))
    return max(found)


def processor_s() -> float:
    """The processor time of this process and all below it, with those that have ended."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(words[1])
        ticks[int(path.parent.name)] = sum(map(int, words[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / TICKS


def show(kind: str, case: Case, rate: float, cpu_us: float, cpu_max_us: float | None = None) -> bool:
    """Print a line; return whether the floors hold. Without a bound nothing is judged."""
    holds = cpu_max_us is None or (rate >= case.floor and cpu_us <= cpu_max_us)
    judged = ""
    if cpu_max_us is not None:
        judged = f"{rate / case.floor:6.2f} of {case.floor:,}, {cpu_max_us:.1f} us: {'holds' if holds else 'MISSED'}"
    sys.stdout.write(f"{kind:18} {case.name:26} {rate:12,.0f} rows/s {cpu_us:6.2f} us CPU a row  {judged}\n")
    sys.stdout.flush()
    return holds


def session(directory: Path) -> SparkSession:
    """A session whose workers find this checkout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return local_session(SparkSession.builder, directory, java="")


if __name__ == "__main__":
    sys.exit(main())
