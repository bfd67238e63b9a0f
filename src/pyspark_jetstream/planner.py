"""Plans the micro-batches of a query: finds the end of the stream, limits the next batch, divides it into partitions.

Spark accepts an end below the start and would then deliver rows again. So an end comes from the leader and is at least
the start, and a range with an end below its start has no rows.

A stream that was deleted and created again has other rows with the same sequences. The creation time in the offset
reveals it: with failOnDataLoss the query stops, otherwise it continues at the first message of the new stream.

A stream that ends below the offset has lost rows that the query has read (its store was replaced by an older copy), and
the next messages reuse their sequences. To wait for the stream to pass the offset would skip these. So this is data
loss too: the query stops, or continues at the stream's end. Only a start that an option puts ahead is waited for.
"""

import logging
import random
import time
from typing import Any

from pyspark.sql.datasource import InputPartition

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import DataLossError, StreamRecreatedError
from pyspark_jetstream.leader import PAUSE_MAX_S, Leader, StreamView
from pyspark_jetstream.offsets import Offset, parse_offset, resolve_start
from pyspark_jetstream.options import Options
from pyspark_jetstream.plan import Range, split
from pyspark_jetstream.replicas import Directory

LOG = logging.getLogger("pyspark_jetstream")


class Planner:
    """The planning of one query, in one process."""

    def __init__(self, options: Options, connections: ConnectionCache) -> None:
        self.leader = Leader(options.access, options.stream, connections)
        self.directory = Directory(options.access)
        self._options = options
        self._connections = connections
        self._initial: Offset | None = None
        self._stop_at: Offset | None = None
        self._latest: Offset | None = None
        self._turn = random.randrange(1 << 16)  # noqa: S311  (spreads load: queries begin at different replicas)
        self._warned = False

    def view(self) -> StreamView:
        """Return the stream's state from its leader, and keep its end for `latest_seen`."""
        view = self.leader.view()
        self._latest = self._at(view, view.end_seq)
        if not view.allow_direct and not self._warned:
            self._warned = True
            LOG.warning(
                "stream %s has allow_direct off: it is read through its leader, one message at a time; turn it on with "
                "`nats stream edit %s --allow-direct` to read from any replica",
                self._options.stream,
                self._options.stream,
            )
        return view

    def initial(self) -> Offset:
        """Return where a new query starts; every call returns the same offset."""
        if self._initial is None:
            view = self.view()
            strict = self._options.fail_on_data_loss
            self._initial = self._at(view, resolve_start(self._options.starting, self.leader, view, strict=strict))
        return self._initial

    def stop_at_present_end(self) -> None:
        """Limit all later micro-batches to the stream's present end."""
        view = self.view()
        self._stop_at = self._at(view, view.end_seq)

    def next_end(self, start: dict[str, Any], rows_max: int | None) -> Offset:
        """Return the end of the micro-batch that begins at `start`, `start` itself when there is nothing new.

        It is below `start` only if rows that were read are lost and failOnDataLoss=false continues at the stream's end.
        Otherwise such a loss raises DataLossError.
        """
        first = parse_offset(start, self._options.stream)
        is_chosen = first.seq == self._options.starting.stream_seq  # nothing was read yet, so nothing can be lost
        view = self.view() if is_chosen else self._view_reaching(first)
        if first.created != view.created:
            self._lost(StreamRecreatedError(self._recreated(first, view)))
            first = self._at(view, view.first_seq)
        elif view.end_seq < first.seq and not is_chosen:
            self._lost(
                DataLossError(f"stream {first.stream!r} ends at {view.last_seq}, the query has read to {first.seq - 1}")
            )
            first = self._at(view, view.end_seq)
        end_seq = view.end_seq
        if self._stop_at is not None and self._stop_at.created == view.created:
            end_seq = min(end_seq, self._stop_at.seq)
        if rows_max is not None:
            end_seq = min(end_seq, max(first.seq, view.first_seq) + rows_max)
        return self._at(view, max(first.seq, end_seq))

    def latest_seen(self) -> Offset | None:
        """Return the stream's end as of the last request to its leader."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions of the rows between two offsets."""
        first, last = parse_offset(start, self._options.stream), parse_offset(end, self._options.stream)
        if first == last:
            return []
        if first.created == last.created and last.seq < first.seq:
            # `next_end` plans this after data loss; other queries do not.
            self._lost(DataLossError(f"the checkpoint's range runs backwards, from {first.seq} to {last.seq}"))
            return []
        view = self._view_reaching(last)
        if last.created != view.created:
            self._lost(StreamRecreatedError(self._recreated(last, view)))
            return []
        start_seq = first.seq if first.created == last.created else view.first_seq
        end_seq = last.seq
        if view.end_seq < end_seq:
            self._lost(
                DataLossError(f"stream {first.stream!r} ends at {view.last_seq}, the planned range at {end_seq - 1}")
            )
            end_seq = view.end_seq
        if start_seq < view.first_seq:
            lost = f"{start_seq} to {min(view.first_seq, end_seq) - 1}"
            self._lost(
                DataLossError(f"{lost} are no longer in stream {first.stream!r}, which starts at {view.first_seq}")
            )
            start_seq = view.first_seq
        return self.split(view, start_seq, end_seq)

    def split(self, view: StreamView, start_seq: int, end_seq: int) -> list[InputPartition]:
        """Return the partitions of a range of this stream; the next call starts with the next replica."""
        self._turn += 1
        template = Range(
            start_seq=start_seq,
            end_seq=end_seq,
            created=view.created,
            planned_time_ns=view.last_time_ns,
            allow_direct=view.allow_direct,
            servers=self.directory.candidates(view.replicas),
            options=self._options,
        )
        return split(view, template, turn=self._turn)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _view_reaching(self, end: Offset) -> StreamView:
        """Wait up to `retry_timeout_s` for a view that has the whole range: a new leader may need time to apply it."""
        deadline = time.monotonic() + self._options.access.retry_timeout_s
        while True:
            view = self.view()
            if view.created != end.created or view.end_seq >= end.seq or time.monotonic() > deadline:
                return view
            time.sleep(PAUSE_MAX_S / 4)

    def _lost(self, error: DataLossError) -> None:
        """Raise the error, or log it as a warning with failOnDataLoss=false."""
        if self._options.fail_on_data_loss:
            error.add_note("failOnDataLoss=false continues with the rows that exist")
            raise error
        LOG.warning("%s; continuing without these rows", error)

    def _at(self, view: StreamView, stream_seq: int) -> Offset:
        return Offset(stream=self._options.stream, created=view.created, seq=stream_seq)

    def _recreated(self, offset: Offset, view: StreamView) -> str:
        return (
            f"stream {offset.stream!r} was deleted and created again: the checkpoint is at {offset.seq} of the one "
            f"created at {offset.created}, the present one was created at {view.created}"
        )
