"""Checks what arrives for one range before it is returned.

- rows after the range: a batch counts messages, so it extends over deleted ones. They are dropped;
- a gap in the middle: messages were deleted, or lost to retention during the read. The leader's first sequence decides;
- a missing tail: deleted, or not applied by the replica yet. The request has the planned end; a jetraft replica refuses
  it when it stays behind (412), or states its last sequence in the reply. For other servers the leader is asked;
- rows of another stream with the same name, created after planning: they are younger than the plan. A row that is
  younger leads to a comparison of the streams' creation times.

A message in columns states what these checks need: which sequences it covers, the first sequence and the creation time
of the stream that the replica has, and how far the replica is. The leader is asked only if that differs from the plan.
"""

import operator
from bisect import bisect_left
from collections.abc import Sequence

from pyspark_jetstream import times
from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.columns import Columns
from pyspark_jetstream.errors import DataLossError, ReplicaBehindError, ServerError, StreamRecreatedError
from pyspark_jetstream.leader import Leader, StreamView
from pyspark_jetstream.plan import Range
from pyspark_jetstream.selection import Selection
from pyspark_jetstream.subjects import cover
from pyspark_jetstream.wire import Rows, Status

LAST_SEQ = b"Jetraft-Last-Seq"
FIRST_SEQ = b"Jetraft-First-Seq"
CREATED = b"Jetraft-Created"

END_OF_BATCH = 204
NOT_FOUND = 404


class Acceptance:
    """What was accepted of a range. Invariant: every row below `next_seq` was returned, is deleted, or is lost."""

    def __init__(self, wanted: Range, connections: ConnectionCache) -> None:
        self.next_seq = wanted.start_seq
        self.leader = Leader(wanted.options.access, wanted.options.stream, connections)
        self._range = wanted
        self._strict = wanted.options.fail_on_data_loss
        self._created_ns = times.unix_ns(wanted.created)
        self._incarnation_checked = False
        self.selection = Selection(wanted)
        self.missing = 0  # sequences without a message; with a filter also those of other subjects

    @property
    def is_complete(self) -> bool:
        """Whether the range is."""
        return self.next_seq >= self._range.end_seq

    @property
    def what(self) -> str:
        """The range, for messages."""
        return f"stream {self._range.options.stream} [{self._range.start_seq}, {self._range.end_seq})"

    def rows(self, rows: Rows) -> Rows:
        """Check messages in rows, advance `next_seq` and return the rows of the range.

        Raises DataLossError, or ServerError when the answer is malformed.
        """
        seqs, start_seq, end_seq = rows.stream_seqs, self.next_seq, self._range.end_seq
        if not seqs:
            return rows
        if not (seqs[0] >= start_seq and all(map(operator.lt, seqs, seqs[1:]))):
            raise ServerError(f"sequences out of order in the answer for {start_seq}")
        received = len(rows)
        rows.keep_first(bisect_left(seqs, end_seq))
        if rows and rows.last_time_ns() > self._range.planned_time_ns:
            self._check_incarnation()
        covered_to = end_seq if len(rows) < received else seqs[-1] + 1
        if covered_to - start_seq != len(rows):
            self._check_gaps(start_seq, seqs, covered_to)
        self._advance(covered_to, len(rows))
        return self.selection.chosen(rows)

    def _advance(self, covered_to: int, rows: int) -> None:
        self.missing += covered_to - self.next_seq - rows
        self.next_seq = covered_to

    def columns(self, columns: Columns) -> Columns:
        """The same for messages in columns, which state what is to be checked."""
        seqs, start_seq, end_seq = columns.stream_seqs, self.next_seq, self._range.end_seq
        self._check_same(columns.created_ns)
        if columns.from_seq != start_seq or not start_seq <= seqs[0] <= seqs[-1] <= columns.to_seq:
            raise ServerError(f"{columns.from_seq} to {columns.to_seq} in the answer for {start_seq}")
        if not columns.is_ascending():
            raise ServerError(f"sequences out of order in the answer for {start_seq}")
        covered_to = min(columns.to_seq + 1, end_seq)
        if seqs[-1] >= end_seq:
            columns = columns.first(bisect_left(seqs, end_seq))
        if covered_to - start_seq != len(columns) and columns.first_seq > start_seq:
            self._check_gaps(start_seq, columns.stream_seqs, covered_to, columns.first_seq)
        self._advance(covered_to, len(columns))
        return columns

    def end(self, status: Status, num_pending: int) -> None:
        """Check the rest of the range after the last row of an answer, and advance `next_seq` if there is none.

        Raises DataLossError, ReplicaBehindError.
        """
        if self.is_complete:
            return
        created_ns, first_seq, applied_seq = (status.number(name) for name in (CREATED, FIRST_SEQ, LAST_SEQ))
        tail_seq, end_seq = self.next_seq, self._range.end_seq
        if created_ns is not None and first_seq is not None and applied_seq is not None:
            self._check_same(created_ns)
            self._verify_tail(tail_seq, status)
            if first_seq > tail_seq:
                self._check_gaps(tail_seq, (), end_seq, first_seq)
        elif status.code == NOT_FOUND or (status.code == END_OF_BATCH and num_pending == 0):
            self._verify_tail(tail_seq, status)
            self._check_gaps(tail_seq, (), end_seq)
        else:
            return
        self._advance(end_seq, 0)

    def _verify_tail(self, tail_seq: int, status: Status | None) -> None:
        """Return if [tail_seq, end) does not exist in the stream. Raises ReplicaBehindError if the replica lacks it."""
        applied_seq = status.number(LAST_SEQ) if status is not None else None
        if applied_seq is not None:
            if applied_seq < self._range.end_seq - 1:
                raise ReplicaBehindError(f"the replica is at {applied_seq}")
            return
        live_seq = self.leader.next_live(tail_seq, cover(self._range.options.subjects))
        if live_seq is not None and live_seq < self._range.end_seq:
            raise ReplicaBehindError(f"the replica lacks {live_seq}, which the leader has")
        view = self.leader.view()
        self.check_created(view)
        if view.end_seq < self._range.end_seq:
            raise ReplicaBehindError(f"the leader itself is at {view.last_seq}")

    def _check_gaps(self, start_seq: int, seqs: Sequence[int], end_seq: int, first_seq: int | None = None) -> None:
        """Raise DataLossError when a missing sequence of [start_seq, end_seq) was lost to retention, not deleted.

        `first_seq` is that of the stream as the replica had it that lacks them; if it did not say so, the leader does.
        """
        if not self._strict:
            return
        view = self.leader.view()
        self.check_created(view)
        if self._range.options.holds(view.retention):
            return
        first_seq = view.first_seq if first_seq is None else first_seq
        expected_seq = start_seq
        for seq in (*seqs, end_seq):
            if seq > expected_seq and first_seq > expected_seq:
                raise DataLossError(
                    f"{self.what}: {expected_seq} to {min(seq, first_seq) - 1} are no longer in the stream, "
                    f"which now starts at {first_seq}"
                    f"{' (rows of the chosen subjects may be among them)' if self._range.options.subjects else ''}; "
                    "failOnDataLoss=false reads on without them"
                )
            expected_seq = seq + 1

    def _check_same(self, created_ns: int) -> None:
        """Raise StreamRecreatedError, or ServerError if only this server has another stream."""
        if created_ns != self._created_ns:
            self.check_created(self.leader.view())
            raise ServerError(f"the server has the stream that was created at {created_ns} ns, not the planned one")

    def _check_incarnation(self) -> None:
        if not self._incarnation_checked:
            self.check_created(self.leader.view())
            self._incarnation_checked = True

    def check_created(self, view: StreamView) -> None:
        """Raise StreamRecreatedError when the stream is not the planned one: rows of two are never mixed."""
        if view.created != self._range.created:
            raise StreamRecreatedError(
                f"{self.what}: the stream was deleted and created again at {view.created} during the read"
            )
