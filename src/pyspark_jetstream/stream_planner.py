"""Plans the part of a query that reads one stream: where it ends, what was lost, how a range is divided.

Spark accepts an end below the start and would then deliver rows again. So an end comes from the leader and is at least
the start, and a range with an end below its start has no rows.

A stream that was deleted and created again has other rows with the same sequences. The creation time in the offset
reveals it: with failOnDataLoss the query stops, otherwise it continues at the first message of the new stream. A backup
that was restored is such a stream too: `acceptIncarnation` names it, and it is then continued without loss.

A stream that ends below the offset has lost rows that the query has read (its store was replaced by an older copy), and
the next messages reuse their sequences. To wait for the stream to pass the offset would skip these. So this is data
loss too: the query stops, or continues at the stream's end. Only a start that an option puts ahead is waited for; the
offset says so (`ahead`).
"""

import logging
import random
import time
from collections.abc import Mapping

import attrs

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import DataLossError, SchemaChangedError, StreamRecreatedError
from pyspark_jetstream.leader import PAUSE_MAX_S, Leader, StreamView
from pyspark_jetstream.offsets import Cut, Offset, resolve_range, resolve_start
from pyspark_jetstream.options import Options
from pyspark_jetstream.plan import Range, cores, partition_count, partition_count_of_old_offsets, split, within
from pyspark_jetstream.positions import Position
from pyspark_jetstream.pushdown import Narrowing
from pyspark_jetstream.replicas import Directory
from pyspark_jetstream.triggers import least
from pyspark_jetstream.typed.stream_schemas import AVRO, schemas_of

LOG = logging.getLogger("pyspark_jetstream")


class StreamPlanner:
    """The planning of one stream, in one process."""

    def __init__(self, options: Options, connections: ConnectionCache, directory: Directory) -> None:
        self.options = options
        self.leader = Leader(options.access, options.stream, connections)
        self.directory = directory
        self.latest: Offset | None = None  # the end as of the last request to the leader
        self._initial: Offset | None = None
        self._turn = random.randrange(1 << 16)  # noqa: S311  (spreads load: queries begin at different replicas)
        self._warned = False
        self._metadata: Mapping[str, str] | None = None  # that the query's schema was compared with

    def view(self, given: StreamView | None = None) -> StreamView:
        """Return the stream's state from its leader, and keep its end for `latest`.

        A given one was asked of the leader with those of other streams, in the same call of the planner.
        """
        view = given or self.leader.view()
        self.latest = self.at(view, view.end_seq)
        self._check_schema(view.metadata)
        if not view.allow_direct and not self._warned:
            self._warned = True
            LOG.warning(
                "stream %s has allow_direct off: it is read through consumers; turn it on with "
                "`nats stream edit %s --allow-direct` to read from any replica",
                self.options.stream,
                self.options.stream,
            )
        return view

    def _check_schema(self, metadata: Mapping[str, str]) -> None:
        """Compare the schema that the query decodes by with the present one of the stream.

        Raises SchemaChangedError for Avro, whose payloads do not say by which schema they were written.
        """
        decoding, stream = self.options.decoding, self.options.stream
        if decoding is None or metadata == self._metadata:
            return
        self._metadata = metadata
        present = [one for one in schemas_of(metadata) if one.number == decoding.schema.number]
        if decoding.schema.is_same_type(present[0] if present else None):
            return
        if decoding.schema.kind == AVRO:
            raise SchemaChangedError(
                f"stream {stream!r} has another Avro schema than the one that the query was loaded with, which "
                "cannot read later messages: load and start the query again"
            )
        LOG.warning("stream %s has another schema; the query decodes by the one that it was loaded with", stream)

    def initial(self, given: StreamView | None = None) -> Offset:
        """Return where a new query starts; every call returns the same offset."""
        if self._initial is None:
            view = self.view(given)
            position, strict = self.options.starting.of(self.options.stream), self.options.fail_on_data_loss
            start_seq = resolve_start(position, self.leader, view, strict=strict)
            self._initial = self.at(view, start_seq, ahead=start_seq > view.end_seq)
        return self._initial

    def batch(self, part: Narrowing, given: StreamView | None = None) -> tuple[Offset, Offset, list[Range]]:
        """Return where this part of a batch read starts and ends, and its partitions."""
        view, stream = self.view(given), self.options.stream
        ending = self.options.ending or Position(keyword="latest")
        start_seq, end_seq = resolve_range(
            self.options.starting.of(stream),
            ending.of(stream),
            self.leader,
            view,
            strict=self.options.fail_on_data_loss,
        )
        seqs = [self.leader.seq_at(time) if time else None for time in (part.start_time, part.end_time)]
        start_seq = max(start_seq, part.start_seq, seqs[0] or 0)
        end_seq = least(end_seq, part.end_seq, seqs[1]) or 0
        end_seq = max(start_seq, end_seq)
        return self.at(view, start_seq), self.at(view, end_seq), self.split(view, start_seq, end_seq)

    def span(self, start: Offset | None, given: StreamView | None = None) -> tuple[Offset, StreamView]:
        """Return where the next micro-batch starts and the view that ends it; no offset is a stream's first batch.

        The start differs from the given one only after a loss that failOnDataLoss=false accepts, or in an accepted
        incarnation. Raises DataLossError.
        """
        if start is None:
            view = self.view(given)
            return self.at(view, view.first_seq), view
        view = self.view(given) if start.ahead else self._view_reaching(start, given)
        start = self._in_present(start, view)
        if start.created != view.created:
            self._lost(StreamRecreatedError(self._recreated(start, view)))
            return self.at(view, view.first_seq), view
        if view.end_seq < start.seq and not start.ahead:
            self._lost(
                DataLossError(
                    f"offset {start.seq} is beyond the end of the stream: stream {start.stream!r} ends at "
                    f"{view.last_seq}, the query has read to {start.seq - 1}"
                )
            )
            return self.at(view, view.end_seq), view
        return start, view

    def partitions(self, first: Offset | None, last: Offset, given: StreamView | None = None) -> list[Range]:
        """Return the partitions of the rows between two offsets; no first offset is a stream's first batch."""
        if first == last:
            return []
        if first is not None and first.created == last.created and last.seq < first.seq:
            # `span` plans this after data loss; other queries do not.
            self._lost(DataLossError(f"the checkpoint's range runs backwards, from {first.seq} to {last.seq}"))
            return []
        view = self._view_reaching(last, given)
        if last.created != view.created and self._is_placed(view):
            return []  # the logged range is not in this incarnation: the next batch begins where the option says
        cut = last.cut
        first, last = first and self._in_present(first, view), self._in_present(last, view)
        if last.created != view.created:
            self._lost(StreamRecreatedError(self._recreated(last, view)))
            return []
        known = first is not None and first.created == last.created
        begin_seq = first.seq if known and first else None
        cut = cut or self._cut_of_old_offsets(begin_seq or view.first_seq, last.seq)
        return self._existing(view, cut, begin_seq or cut.start_seq, last.seq)

    def _cut_of_old_offsets(self, start_seq: int, end_seq: int) -> Cut:
        count = partition_count_of_old_offsets(end_seq - start_seq)
        return Cut(start_seq=start_seq, count=count, subjects=self.options.subjects)

    def _existing(self, view: StreamView, cut: Cut, begin_seq: int, end_seq: int) -> list[Range]:
        """Return the partitions of a range, each with the part of it that exists; what does not is a loss.

        A cut begins at what the stream had when the range was planned: rows before it that the query has not read,
        from `begin_seq` on, were lost by then.
        """
        stream, options = self.options.stream, attrs.evolve(self.options, subjects=cut.subjects)
        if view.end_seq < end_seq:
            self._lost(DataLossError(f"stream {stream!r} ends at {view.last_seq}, the planned range at {end_seq - 1}"))
        if begin_seq < view.first_seq and not options.holds(view.retention):
            lost = f"{begin_seq} to {min(view.first_seq, end_seq) - 1}"
            self._lost(DataLossError(f"{lost} are no longer in stream {stream!r}, which starts at {view.first_seq}"))
        partitions = self._split(view, cut.start_seq, end_seq, count=cut.count, options=options)
        return [within(one, view.first_seq, view.end_seq) for one in partitions]

    def split(self, view: StreamView, start_seq: int, end_seq: int) -> list[Range]:
        """Return the partitions of a range that is read once, as they are best now."""
        return self._split(view, start_seq, end_seq, count=self._count(view, start_seq, end_seq), options=self.options)

    def _split(self, view: StreamView, start_seq: int, end_seq: int, *, count: int, options: Options) -> list[Range]:
        """Divide a range of this stream; the next call starts with the next replica."""
        self._turn += 1
        template = Range(
            start_seq=start_seq,
            end_seq=end_seq,
            created=view.created,
            planned_time_ns=view.last_time_ns,
            allow_direct=view.allow_direct,
            servers=self.directory.candidates(view.replicas),
            options=options,
        )
        return split(template, count, turn=self._turn)

    def _count(self, view: StreamView, start_seq: int, end_seq: int) -> int:
        return partition_count(end_seq - start_seq, view, self.options, cores=cores())

    def end(self, view: StreamView, start_seq: int, end_seq: int) -> Offset:
        """Return the offset at the end of a micro-batch, with the cut that the batch has from now on."""
        count = self._count(view, start_seq, end_seq)
        cut = Cut(start_seq=start_seq, count=count, subjects=self.options.subjects)
        return attrs.evolve(self.at(view, end_seq), cut=cut)

    def at(self, view: StreamView, stream_seq: int, *, ahead: bool = False) -> Offset:
        """Return the offset of this sequence."""
        return Offset(stream=self.options.stream, created=view.created, seq=stream_seq, ahead=ahead)

    def _is_placed(self, view: StreamView) -> bool:
        """Whether the user accepts this incarnation with a sequence of its own to continue at."""
        accepted = self.options.accepts(self.options.stream)
        return accepted is not None and accepted.created == view.created and accepted.stream_seq is not None

    def _in_present(self, offset: Offset, view: StreamView) -> Offset:
        """Return where an offset of another incarnation continues in the present one, if the user accepts that."""
        accepted = self.options.accepts(offset.stream)
        if offset.created == view.created or accepted is None or accepted.created != view.created:
            return offset
        stream_seq = accepted.stream_seq or offset.seq
        LOG.warning("%s; acceptIncarnation continues at %d", self._recreated(offset, view), stream_seq)
        return self.at(view, stream_seq)

    def _view_reaching(self, end: Offset, given: StreamView | None) -> StreamView:
        """Wait up to `retry_timeout_s` for a view that has the whole range: a new leader may need time to apply it."""
        deadline = time.monotonic() + self.options.access.retry_timeout_s
        while True:
            view, given = self.view(given), None
            if view.created != end.created or view.end_seq >= end.seq or time.monotonic() > deadline:
                return view
            time.sleep(PAUSE_MAX_S / 4)

    def _lost(self, error: DataLossError) -> None:
        """Raise the error, or log it as a warning with failOnDataLoss=false."""
        if self.options.fail_on_data_loss:
            error.add_note("failOnDataLoss=false continues with the rows that exist")
            raise error
        LOG.warning("%s; continuing without these rows", error)

    def _recreated(self, offset: Offset, view: StreamView) -> str:
        return (
            f"stream {offset.stream!r} was deleted and created again: the checkpoint is at {offset.seq} of the one "
            f"created at {offset.created}, the present one was created at {view.created} and has {view.first_seq} to "
            f"{view.last_seq}; acceptIncarnation={view.created}@{offset.seq} continues in it at {offset.seq}"
        )
