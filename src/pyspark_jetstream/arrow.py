"""Reads streams into Arrow, pandas and Parquet without Spark.

Options, ranges and checks are those of the data source, and so are the errors. A `Scan` holds one message of an answer
at a time; the server pauses while its user is behind.

Positions are those of Spark's checkpoints: `{"stream", "created", "seq"}`, where `seq` is the next sequence. What is
read has where it starts and where it ends in the metadata of its schema, and `after` continues there, with the checks
of a restarted query: for a stream that was created again, set back, or has lost rows.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs
import pyarrow as pa

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import OPTION_FIELDS, Options, parse_options
from pyspark_jetstream.plan import Range
from pyspark_jetstream.planner import Planner, with_decoding
from pyspark_jetstream.projection import schema_of_query
from pyspark_jetstream.reading import read_range

if TYPE_CHECKING:
    import pandas as pd

METADATA_KEY = b"jetstream"
# Filters come from Spark's `where`, durable consumers and delays belong to queries that run on.
OF_QUERIES = ("pushdown", "durable", "minRowsPerTrigger", "maxTriggerDelay")
OF_POSITIONS = (
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
)
OF_CONTINUING = ("maxRecordsPerTrigger", "maxBytesPerTrigger", "acceptIncarnation")


class Scan:
    """The record batches of a range of each stream, once and in order; a context manager that closes the connections.

    `sequences` is how many the range has, and `passed` is called with how many of them each step has left behind.
    Iterating raises DataLossError, ServersUnavailableError, StreamNotFoundError.
    """

    def __init__(self, *, after: Mapping[str, Any] | None = None, **options: Any) -> None:
        """Fix the range: from the options, or from `after`, the end of an earlier read.

        Raises BadOptionError, DataLossError, LoginRefusedError, StreamNotFoundError, ServersUnavailableError.
        """
        self._options = with_decoding(parsed(options, continues=after is not None))
        self._connections = ConnectionCache()
        planner = Planner(self._options, self._connections)
        try:
            batch = planner.batch() if after is None else planner.batch_after(dict(after))
        except BaseException:
            self._connections.close()
            raise
        self.start = batch.start.to_json_dict()
        self.end = batch.end.to_json_dict()
        positions = json.dumps({"start": self.start, "end": self.end}).encode()
        self.schema = schema_of_query(self._options).with_metadata({METADATA_KEY: positions})
        self.sequences = sum(wanted.end_seq - wanted.start_seq for wanted in batch.ranges)
        self.passed: Callable[[int], None] = _nothing
        self._batches = self._read(batch.ranges)

    def _read(self, ranges: list[Range]) -> Iterator[pa.RecordBatch]:
        for wanted in ranges:
            left = wanted.end_seq - wanted.start_seq
            for batch in read_range(wanted, self._connections):
                left -= len(batch)
                self.passed(len(batch))
                yield batch
            self.passed(left)  # those without a row: removed, or of other subjects

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def reader(self) -> pa.RecordBatchReader:
        """The same as Arrow's reader, which DuckDB, Polars, datasets and Flight take. The scan stays open for it."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def close(self) -> None:
        """Close the connections; what was not read stays unread."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _nothing(_sequences: int) -> None:
    pass


def scan_arrow(*, after: Mapping[str, Any] | None = None, **options: Any) -> Scan:
    """Return the rows of streams in record batches, one after the other: for ranges of any size."""
    return Scan(after=after, **options)


def read_arrow(*, after: Mapping[str, Any] | None = None, **options: Any) -> pa.Table:
    """Return the rows of streams as a table; `offsets_of` has its positions. Raises what Scan raises."""
    with Scan(after=after, **options) as scan:
        return pa.Table.from_batches(list(scan), schema=scan.schema)


def read_pandas(*, after: Mapping[str, Any] | None = None, **options: Any) -> "pd.DataFrame":
    """Return the rows of streams as a DataFrame; the positions are in its `attrs`, under "jetstream".

    Raises ImportError where pandas is missing, and what Scan raises.
    """
    try:
        import_module("pandas")  # before anything is read
    except ImportError as error:
        raise ImportError("pyspark_jetstream.read_pandas needs pandas: pip install pandas") from error
    table = read_arrow(after=after, **options)
    frame: pd.DataFrame = table.to_pandas()
    frame.attrs["jetstream"] = offsets_of(table)
    return frame


def offsets_of(read: pa.Table | pa.Schema | str | Path) -> dict[str, dict[str, Any]]:
    """Return {"start", "end"} of a table, a schema or a Parquet file of this module; `end` is for `after`.

    Raises BadOptionError for one of another origin, OSError for a file that cannot be read.
    """
    if isinstance(read, str | Path):
        import pyarrow.parquet as pq  # noqa: PLC0415  (not part of every build of Arrow)

        try:
            schema = pq.read_schema(read)
        except pa.ArrowInvalid as error:
            raise BadOptionError(f"{read} is no Parquet file: {error}") from None
    else:
        schema = read if isinstance(read, pa.Schema) else read.schema
    try:
        found = json.loads((schema.metadata or {})[METADATA_KEY])
        return {"start": dict(found["start"]), "end": dict(found["end"])}
    except (KeyError, TypeError, ValueError):
        what = str(read) if isinstance(read, str | Path) else "the table"
        raise BadOptionError(f"{what} has no positions of a stream: it was not read with pyspark_jetstream") from None


def parsed(options: Mapping[str, Any], *, continues: bool) -> Options:
    """Return the options of a read without Spark. Raises BadOptionError."""
    texts = {name: text_of(value) for name, value in options.items() if value is not None}
    found = parse_options(texts)
    given = {name.lower() for name in texts}
    for name in OF_QUERIES:
        if name.lower() in given:
            raise BadOptionError(f"option {name!r} is for queries of Spark")
    for name in OF_POSITIONS if continues else OF_CONTINUING:
        if name.lower() in given:
            raise BadOptionError(
                f"option {name!r} and 'after' exclude each other"
                if continues
                else f"option {name!r} is for reads that continue 'after' another; endingOffsets bounds this one"
            )
    assert set(map(str.lower, (*OF_QUERIES, *OF_CONTINUING))) <= {*OPTION_FIELDS}
    name = found.query or "pyspark_jetstream"
    return attrs.evolve(found, access=attrs.evolve(found.access, name=name))


def text_of(value: Any) -> str:
    """Return the value of an option as Spark would pass it."""
    match value:
        case bool():
            return str(value).lower()
        case list() | tuple():
            return ",".join(map(text_of, value))
        case dict():
            return json.dumps(value)
        case datetime():
            return value.isoformat()
    return str(value)
