"""The writers that Spark calls: planned on the driver, pickled for the tasks, made again where a batch is committed."""

import logging
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_jetstream.client import CONNECTIONS
from pyspark_jetstream.errors import BadOptionError, JetStreamSourceError, NotReproducibleError, WriteRefusedError
from pyspark_jetstream.told import sentence_first
from pyspark_jetstream.write.layout import Layout, layout_of
from pyspark_jetstream.write.options import EXACTLY_ONCE, WriteOptions, parse_write_options
from pyspark_jetstream.write.target import Target, WritableStream, plan_target

if TYPE_CHECKING:
    from pyspark_jetstream.write.publisher import Publishers

LOG = logging.getLogger("pyspark_jetstream")

# Local properties that Spark sets for the tasks of a streaming query.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@attrs.frozen(kw_only=True)
class Written(WriterCommitMessage):
    """What a task has done."""

    rows: int  # that this attempt has published
    query: str = ""  # the part of the fence subject that names the query; "" for at-least-once
    partition: int = 0


@attrs.frozen(kw_only=True, slots=True)
class Plan:
    """What each task of a write needs."""

    options: WriteOptions
    layout: Layout
    target: Target

    def fences(self, query: str) -> str:
        """The prefix of the fence subjects of a query."""
        return f"{self.options.fence_subject}.{query}"


def plan_write(given: Mapping[str, str], schema: StructType) -> Plan:
    """Check options, columns and the stream. Raises BadOptionError, StreamNotFoundError, ServersUnavailableError."""
    options = parse_write_options(given)
    layout = layout_of(schema, stream=options.stream, subject=options.subject, exactly_once=options.exactly_once)
    target = plan_target(options)
    return Plan(options=options, layout=layout.within(target.filters), target=target)


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of a DataFrame to the stream."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise BadOptionError("mode 'overwrite' is not possible: a stream is appended to; use mode('append')")
        self._plan = plan_write(given, schema)
        # All attempts of this write's tasks have it, and no other write.
        self._write_id = self._plan.options.write_id or f"write-{secrets.token_hex(8)}"

    @sentence_first()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Publish the rows of one partition, in a task; each is acknowledged when it returns."""
        if not self._plan.options.exactly_once:
            return write_at_least_once(self._plan, iterator)
        return write_exactly_once(self._plan, iterator, self._write_id, self._plan.options.write_epoch)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch to the stream."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise BadOptionError(
                "output mode 'complete' is not possible: a stream is appended to; use 'append' or foreachBatch"
            )
        self._plan = plan_write(given, schema)
        if self._plan.options.write_id is not None:
            raise BadOptionError("option 'writeId' is for batch writes: a query is named by its checkpoint")

    @sentence_first()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Publish the rows of one partition, in a task; each is acknowledged when it returns."""
        if not self._plan.options.exactly_once:
            return write_at_least_once(self._plan, iterator)
        query, batch = local_property(QUERY_ID), local_property(BATCH_ID)
        if not query or not batch:
            raise JetStreamSourceError(f"delivery={EXACTLY_ONCE}: Spark names neither query nor micro-batch")
        return write_exactly_once(self._plan, iterator, query, int(batch))

    @sentence_first()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Nothing is left to do, but to see that no other run of the micro-batch had more partitions."""
        if self._plan.options.exactly_once:
            check_partitions(self._plan, messages, batchId)


def write_at_least_once(plan: Plan, iterator: Iterator[Any]) -> Written:
    """Publish what Spark gives; see WindowedWriter."""
    from pyspark_jetstream.write.publisher import Publishers  # noqa: PLC0415  (pyarrow: only in tasks)
    from pyspark_jetstream.write.rows import cut, rows_of  # noqa: PLC0415
    from pyspark_jetstream.write.window import WINDOW_BYTES, WINDOW_ROWS, WindowedWriter  # noqa: PLC0415

    publishers = Publishers(plan.options.access, plan.target.servers, plan.options.stream)
    try:
        limit = publishers.get().info.payload_bytes_max
        parts = (rows_of(batch, plan.layout, payload_bytes_max=limit) for batch in iterator)
        pieces = cut(parts, rows_max=WINDOW_ROWS, bytes_max=WINDOW_BYTES)
        rows = WindowedWriter(publishers, plan.options.stream).write(pieces)
        publishers.keep()
    finally:
        publishers.close()
    return Written(rows=rows)


def write_exactly_once(plan: Plan, iterator: Iterator[Any], query: str, epoch: int) -> Written:
    """Publish what is not published yet of this partition; see fence.py."""
    from pyspark_jetstream.write.publisher import Publishers  # noqa: PLC0415  (pyarrow: only in tasks)

    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    stream = planned_stream(plan)
    publishers = Publishers(plan.options.access, plan.target.servers, plan.options.stream)
    try:
        subject = f"{plan.fences(query)}.{partition}"
        rows = _publish_fenced(plan, iterator, epoch, publishers=publishers, stream=stream, subject=subject)
        publishers.keep()
    finally:
        publishers.close()
    return Written(rows=rows, query=query, partition=partition)


def _publish_fenced(  # noqa: PLR0913  (a partition, and where it goes)
    plan: Plan, iterator: Iterator[Any], epoch: int, *, publishers: "Publishers", stream: WritableStream, subject: str
) -> int:
    """Publish the rows of a partition in pieces, each behind its fence; return how many there are."""
    from pyspark_jetstream.write.atomic import FencedWriter  # noqa: PLC0415  (pyarrow: only in tasks)
    from pyspark_jetstream.write.fence import PIECE_BYTES, PIECE_ROWS, publish_partition  # noqa: PLC0415
    from pyspark_jetstream.write.rows import cut, rows_of  # noqa: PLC0415

    limit = publishers.get().info.payload_bytes_max
    parts = (rows_of(batch, plan.layout, payload_bytes_max=limit) for batch in iterator)
    pieces = cut(parts, rows_max=PIECE_ROWS, bytes_max=PIECE_BYTES)
    rolls, accepts = plan.target.allow_rollup, plan.options.changed_epoch == epoch
    writer = FencedWriter(publishers, stream, subject, allow_rollup=rolls)
    return writer.write(publish_partition(pieces, epoch, replaces_fences=rolls, accepts_changes=accepts))


def planned_stream(plan: Plan) -> WritableStream:
    """The stream that the write was planned for. Raises WriteRefusedError when it was created again meanwhile."""
    stream = WritableStream(plan.options.access, plan.options.stream, CONNECTIONS)
    if stream.created() != plan.target.created:
        raise WriteRefusedError(
            f"stream {plan.options.stream!r} was deleted and created again after this write was planned; its fences "
            "are gone with it"
        )
    return stream


def check_partitions(plan: Plan, messages: list[WriterCommitMessage | None], epoch: int) -> None:
    """Raise NotReproducibleError when another run has written this micro-batch in more partitions than this one."""
    told = [message for message in messages if isinstance(message, Written)]
    if not told:
        return
    stream = WritableStream(plan.options.access, plan.options.stream, CONNECTIONS)
    prefix = plan.fences(told[0].query)
    beyond = [subject for subject in stream.fences_below(prefix) if int(subject.rpartition(".")[2]) >= len(messages)]
    for subject in beyond:
        fence = stream.last_fence(subject)
        if fence is not None and fence.epoch == epoch:
            if plan.options.changed_epoch == epoch:
                LOG.warning("micro-batch %d has rows twice, of more partitions; acceptChangedRows continues", epoch)
                return
            raise NotReproducibleError(
                f"micro-batch {epoch} was begun with more than {len(messages)} partitions before the query was started "
                "again, and some rows are in the stream twice: keep the number of partitions (minPartitions, "
                "spark.sql.shuffle.partitions, the number of cores) while a micro-batch is unfinished. "
                f"acceptChangedRows={epoch} continues once, and leaves them"
            )


def local_property(name: str) -> str | None:
    """A local property of the job that this task is part of."""
    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None
