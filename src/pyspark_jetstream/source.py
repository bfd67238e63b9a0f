"""The classes that Spark calls: the data source, its batch reader and its stream reader.

Spark makes a stream reader in one driver-side Python process, which plans every batch of the query, and another one
only to pickle `read` for the tasks. So readers keep connections and surveys in fields that are not pickled, and a
partition has everything that its task needs. `latestOffset(start, limit)` needs Spark 4.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import OPTION_FIELDS, STREAMING_ONLY, Options, parse_options
from pyspark_jetstream.plan import Range
from pyspark_jetstream.planner import Planner, with_decoding
from pyspark_jetstream.pushdown import Narrowing, narrowing
from pyspark_jetstream.schema import columns_of, schema_of
from pyspark_jetstream.told import sentence_first

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


class RangePartition(InputPartition):
    """The partition that Spark passes to the task."""

    def __init__(self, value: Range) -> None:
        super().__init__(value)
        self.value: Range = value


class DefaultSource(DataSource):
    """`format("jetstream")`, for reads and for writes."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._reading: Options | None = None

    @property
    def _parsed(self) -> Options:
        """The options of a read. Raises BadOptionError; a write has other options."""
        if self._reading is None:
            self._reading = parse_options(self.options)
        return self._reading

    @property
    def _planned(self) -> Options:
        """The options of a read, with what the stream says of its schema."""
        if self._reading is None or self._reading.decoding is None:
            self._reading = with_decoding(self._parsed)
        return self._reading

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream"

    @sentence_first()
    def schema(self) -> StructType:
        """The columns that the options choose; `.load()` asks, so wrong options of a read are errors there."""
        if "provider" in self.options:  # a property of a table that is created
            raise BadOptionError(
                "a table of Spark's catalog cannot be of this format: Spark gives a Python source no option of a table "
                "that it reads; use CREATE TEMPORARY VIEW ... USING jetstream OPTIONS (...), or create_views"
            )
        return schema_of(self._planned)

    @sentence_first()
    def reader(self, schema: StructType) -> "BatchReader":
        """A reader of one range of each stream, for `spark.read`."""
        default = Options(access=self._parsed.access, streams=self._parsed.streams)
        for name in STREAMING_ONLY:
            field = OPTION_FIELDS[name.lower()]
            if getattr(self._parsed, field) != getattr(default, field):
                raise BadOptionError(f"option {name!r} is for streaming reads; endingOffsets bounds a batch read")
        kind = PushdownReader if self._parsed.pushdown else BatchReader
        return kind(attrs.evolve(self._planned, columns=columns_of(schema, self._planned)))

    @sentence_first()
    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802  (Spark's name)
        """A reader of the streams as they grow, for `spark.readStream`."""
        if self._parsed.ending is not None:
            raise BadOptionError(
                "option 'endingOffsets' is for batch reads; use trigger(availableNow=True) to stop at the end"
            )
        if self._parsed.pushdown:
            raise BadOptionError("option 'pushdown' is for batch reads: Spark pushes no filters to streaming sources")
        return StreamReader(attrs.evolve(self._planned, columns=columns_of(schema, self._planned)))

    def __repr__(self) -> str:
        try:
            return describe(self._parsed)
        except BadOptionError:  # the options are those of a write
            return f"jetstream, stream {self.options.get('stream', '')}"

    @sentence_first()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  (Spark's signature)
        """A writer of one DataFrame, for `df.write`."""
        from pyspark_jetstream.write.sinks import BatchWriter  # noqa: PLC0415  (only where something is written)

        return BatchWriter(self.options, schema, overwrite=overwrite)

    @sentence_first()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """A writer of micro-batches, for `df.writeStream`."""
        from pyspark_jetstream.write.sinks import StreamWriter  # noqa: PLC0415

        return StreamWriter(self.options, schema, overwrite=overwrite)


class BatchReader(DataSourceReader):
    """Reads [startingOffsets, endingOffsets) of each stream as it is when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @sentence_first()
    def partitions(self) -> list[InputPartition]:
        """The partitions of the ranges."""
        return self._planned(Narrowing(subjects=self._options.subjects))

    def _planned(self, part: Narrowing) -> list[InputPartition]:
        connections = ConnectionCache()
        try:
            planned = Planner(attrs.evolve(self._options, subjects=part.subjects), connections).batch(part)
            return [RangePartition(wanted) for wanted in planned.ranges]
        finally:
            connections.close()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one partition, in a task. If there is no partition, Spark passes one without a value."""
        return _task(partition) if isinstance(partition, RangePartition) else iter(())

    def __repr__(self) -> str:
        return describe(self._options)


class PushdownReader(BatchReader):
    """Reads only where the filters of `where` can be true.

    It is a class of its own because Spark refuses every read with a reader that has `pushFilters` while its setting
    spark.sql.python.filterPushdown.enabled is off.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._part = Narrowing(subjects=options.subjects)

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802  (Spark's name)
        """Keep what the filters say; Spark applies all of them again."""
        self._part = narrowing(filters, self._options.subjects)
        return filters

    @sentence_first()
    def partitions(self) -> list[InputPartition]:
        """The partitions of the part of the ranges that the filters leave."""
        return self._planned(self._part)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of one query: offsets are sequences, the leaders say where the streams end."""

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

    @sentence_first()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Where a new query starts. Spark calls it twice and gets the same offset."""
        return self.planner.initial().to_json_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """The limit that the options set for each micro-batch."""
        rows_max = self._options.rows_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    @sentence_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Fix the end of the query to the stream's present end."""
        self.planner.stop_at_present_end()

    @sentence_first()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """The end of the next micro-batch: the leader's end, within the limit; see Planner.next_end."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.planner.next_end(start, rows_max).to_json_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  (Spark's name)
        """The end of the stream as last seen; Spark shows it in the query's progress."""
        latest = self.planner.latest_seen()
        return None if latest is None else latest.to_json_dict()

    @sentence_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a micro-batch; after a restart Spark passes the range in its log."""
        return [RangePartition(wanted) for wanted in self.planner.partitions(start, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one partition, in a task."""
        assert isinstance(partition, RangePartition)
        return _task(partition)

    @sentence_first()
    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed everything before this offset: durable consumers acknowledge it."""
        self.planner.commit(end)

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._planner is not None:
            self._planner.close()

    def __repr__(self) -> str:
        return describe(self._options)


def describe(options: Options) -> str:
    """Return what a reader reads, without anything secret."""
    subjects = f" subjects {', '.join(options.subjects)}" if options.subjects else ""
    return f"jetstream {', '.join(options.streams)}{subjects} from {', '.join(options.access.servers)}"


def _task(partition: RangePartition) -> "Iterator[pa.RecordBatch]":
    from pyspark_jetstream.client import CONNECTIONS  # noqa: PLC0415  (the worker's own, never pickled)
    from pyspark_jetstream.reading import read_range  # noqa: PLC0415  (pyarrow: only in tasks)

    with sentence_first():
        yield from read_range(partition.value, CONNECTIONS)
