"""Streams, rows and what is stored, for the tests of writing that run without Spark."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pyspark_jetstream.client import CONNECTIONS, ConnectionCache
from pyspark_jetstream.fetch import RangeReader
from pyspark_jetstream.options import Access, parse_options
from pyspark_jetstream.planner import Planner
from pyspark_jetstream.rows import to_batches
from pyspark_jetstream.write.atomic import FencedWriter
from pyspark_jetstream.write.fence import PIECE_ROWS, publish_partition
from pyspark_jetstream.write.publisher import Publishers
from pyspark_jetstream.write.rows import Rows, cut
from pyspark_jetstream.write.target import WritableStream
from tests.harness.raw import RawClient
from tests.spark.streams import create

RETRY_TIMEOUT_S = 60.0
OPEN: list[Publishers] = []  # of the present test, which closes them


def create_target(client: RawClient, name: str, **config: Any) -> str:
    """A stream that takes rows on <name>.> and fences."""
    settings = {"subjects": [f"{name}.>", f"fence.{name}.>"], "allow_atomic": True, "allow_rollup_hdrs": True}
    return create(client, name, **{**settings, **config})


def rows(stream: str, numbers: Sequence[int]) -> Rows:
    """A message for each number, some of them with a header."""
    return Rows(
        pa.array([b"%b.s%d" % (stream.encode(), number % 3) for number in numbers], pa.binary()),
        pa.array([b"" if number % 2 else b"number: %d\r\n" % number for number in numbers], pa.binary()),
        pa.array([b"%d" % number for number in numbers], pa.binary()),
    )


def pieces(stream: str, numbers: Sequence[int], *, rows_max: int = PIECE_ROWS) -> Iterator[Rows]:
    """The pieces of a partition."""
    return cut([rows(stream, numbers)], rows_max=rows_max, bytes_max=1 << 22)


def access(servers: Sequence[str], *, retry_timeout_s: float = RETRY_TIMEOUT_S) -> Access:
    return Access(servers=tuple(servers), retry_timeout_s=retry_timeout_s)


def publishers(servers: Sequence[str], stream: str, **options: Any) -> Publishers:
    OPEN.append(Publishers(access(servers, **options), tuple(servers), stream))
    return OPEN[-1]


def fenced(  # noqa: PLR0913  (a partition, and where it goes)
    servers: Sequence[str],
    stream: str,
    *,
    connections: ConnectionCache = CONNECTIONS,
    partition: int = 0,
    rollup: bool = True,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
) -> FencedWriter:
    """A writer of a partition of the query q."""
    return FencedWriter(
        publishers(servers, stream, retry_timeout_s=retry_timeout_s),
        WritableStream(access(servers, retry_timeout_s=retry_timeout_s), stream, connections),
        f"fence.{stream}.q.{partition}",
        allow_rollup=rollup,
    )


def write(
    servers: Sequence[str], stream: str, numbers: Sequence[int], epoch: int = 0, *, rollup: bool = True, **how: Any
) -> int:
    """Write a partition exactly once; returns how many rows were new."""
    attempt = publish_partition(pieces(stream, numbers), epoch, replaces_fences=rollup)
    return fenced(servers, stream, rollup=rollup, **how).write(attempt)


def stored(servers: Sequence[str], stream: str) -> list[int]:
    """The number of each message that is no fence, in the order of the stream."""
    connections = ConnectionCache()
    try:
        planner = Planner(parse_options({"servers": ",".join(servers), "stream": stream}), connections)
        view = planner.view()
        found: list[int] = []
        for partition in planner.split(view, view.first_seq, view.end_seq):
            for part in RangeReader(partition, connections):
                for row in (row for batch in to_batches(part) for row in batch.to_pylist()):
                    if not row["subject"].startswith("fence."):
                        number = int(row["data"])
                        assert (("number", [str(number)]) in (row["headers"] or ())) == (number % 2 == 0)
                        found.append(number)
    finally:
        connections.close()
    return found
