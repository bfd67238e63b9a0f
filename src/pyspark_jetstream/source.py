"""The classes that Spark calls: the data source, its batch reader and its stream reader.

Spark makes a stream reader in one driver-side Python process, which plans every batch of the query, and another one
only to pickle `read` for the tasks. So readers keep connections and surveys in fields that are not pickled, and a
partition has everything that its task needs. `latestOffset(start, limit)` needs Spark 4.2.
"""

import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.offsets import resolve_end, resolve_start
from pyspark_jetstream.options import Options, Position, parse_options
from pyspark_jetstream.plan import Range, RangePartition
from pyspark_jetstream.planner import Planner

if TYPE_CHECKING:
    import pyarrow as pa

LOG = logging.getLogger("pyspark_jetstream")

SCHEMA = StructType(
    [
        StructField("stream_seq", LongType()),
        StructField("time", TimestampType()),
        StructField("subject", StringType()),
        StructField("headers", MapType(StringType(), ArrayType(StringType()))),
        StructField("data", BinaryType()),
    ]
)


class DefaultSource(DataSource):
    """`format("jetstream")`. The constructor raises BadOptionError for a wrong option."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream"

    def schema(self) -> StructType:
        """The columns, which are the same for every stream."""
        return SCHEMA

    def reader(self, schema: StructType) -> "BatchReader":
        """A reader of one range, for `spark.read`."""
        check_schema(schema)
        if self._parsed.rows_per_trigger_max is not None:
            raise BadOptionError(
                "option 'maxRecordsPerTrigger' is for streaming reads; endingOffsets bounds a batch read"
            )
        return BatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802  (Spark's name)
        """A reader of the stream as it grows, for `spark.readStream`."""
        check_schema(schema)
        if self._parsed.ending is not None:
            raise BadOptionError(
                "option 'endingOffsets' is for batch reads; use trigger(availableNow=True) to stop at the end"
            )
        return StreamReader(self._parsed)


class BatchReader(DataSourceReader):
    """Reads [startingOffsets, endingOffsets) as it is when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The partitions of the range."""
        connections = ConnectionCache()
        try:
            planner = Planner(self._options, connections)
            view = planner.view()
            strict = self._options.fail_on_data_loss
            start_seq = resolve_start(self._options.starting, planner.leader, view, strict=strict)
            end_seq = resolve_end(self._options.ending or Position(keyword="latest"), planner.leader, view)
            return planner.split(view, start_seq, end_seq)
        finally:
            connections.close()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one partition, in a task. If there is no partition, Spark passes one without a value."""
        return read_range(partition.value) if isinstance(partition, RangePartition) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of one query: offsets are sequences, the leader says where the stream ends."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """The planner of this process, made at its first use: a reader that is only pickled does not connect."""
        if self._planner is None:
            self._planner = Planner(self._options, ConnectionCache())
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Where a new query starts. Spark calls it twice and gets the same offset."""
        return self.planner.initial().to_json_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """The limit that the options set for each micro-batch."""
        rows_max = self._options.rows_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Fix the end of the query to the stream's present end."""
        self.planner.stop_at_present_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """The end of the next micro-batch: the leader's end, within the limit; see Planner.next_end."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.planner.next_end(start, rows_max).to_json_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  (Spark's name)
        """The end of the stream as last seen; Spark shows it in the query's progress."""
        latest = self.planner.latest_seen()
        return None if latest is None else latest.to_json_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a micro-batch; after a restart Spark passes the range in its log."""
        return self.planner.partitions(start, end)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one partition, in a task."""
        assert isinstance(partition, RangePartition)
        return read_range(partition.value)

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._planner is not None:
            self._planner.close()


def check_schema(schema: StructType) -> None:
    """Raise BadOptionError when the user asked for other columns than the source has."""
    if schema.simpleString() != SCHEMA.simpleString():
        raise BadOptionError(
            f"the columns of this source are fixed: {SCHEMA.simpleString()}; got {schema.simpleString()}"
        )


def read_range(wanted: Range) -> "Iterator[pa.RecordBatch]":
    """Yield the record batches of a range; then log, and write to `statsDir` if set, the rows of each server."""
    from pyspark_jetstream.client import CONNECTIONS  # noqa: PLC0415  (the worker's own, never pickled)
    from pyspark_jetstream.fetch import RangeReader  # noqa: PLC0415  (only tasks need it)
    from pyspark_jetstream.rows import to_batches  # noqa: PLC0415  (pyarrow: only in tasks)

    reader = RangeReader(wanted, CONNECTIONS)
    for rows in reader:
        yield from to_batches(rows)
    for name, served in reader.served.items():
        LOG.info("%s rows of %s from %s in %.3f s", served.rows, wanted.options.stream, name, served.seconds)
    if wanted.options.stats_dir is not None:
        write_stats(Path(wanted.options.stats_dir), wanted, reader)


def write_stats(directory: Path, wanted: Range, reader: "RangeReader") -> None:
    """Write one small JSON file for each server that served the task, under a name that no other task uses."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, served in reader.served.items():
        value = {
            "server": name,
            "url": served.url,
            "rows": served.rows,
            "seconds": round(served.seconds, 6),
            "stream": wanted.options.stream,
            "start_seq": wanted.start_seq,
            "end_seq": wanted.end_seq,
        }
        unfinished = directory / f".{uuid.uuid4().hex}"
        unfinished.write_text(json.dumps(value) + os.linesep, encoding="utf-8")
        unfinished.rename(directory / f"{wanted.start_seq}-{unfinished.name[1:9]}.json")


if TYPE_CHECKING:
    from pyspark_jetstream.fetch import RangeReader
