"""Reads one range of a stream completely, also if servers fail during the read.

A task requests its range from the first replica of its list by batch direct get, a few megabytes at a time. If a
replica fails, it continues with the next one at the first row that it does not have. Each answer is checked before its
rows are returned:
- rows after the range: a batch counts messages, so it extends over deleted ones. They are dropped;
- a gap in the middle: messages were deleted, or lost to retention during the read. The leader's first sequence decides;
- a missing tail: deleted, or not applied by the replica yet. The request has the planned end; a jetraft replica refuses
  it when it stays behind (412), or states its last sequence in the reply. For other servers the leader is asked;
- rows of another stream with the same name, created after planning: they are younger than the plan. A row that is
  younger leads to a comparison of the streams' creation times.
"""

import logging
import operator
import time
from bisect import bisect_left
from collections.abc import Iterator

import attrs

from pyspark_jetstream import times
from pyspark_jetstream.client import Connection, ConnectionCache
from pyspark_jetstream.errors import (
    DataLossError,
    ReplicaBehindError,
    ServerError,
    ServersUnavailableError,
    StreamRecreatedError,
)
from pyspark_jetstream.leader import Leader, StreamView
from pyspark_jetstream.leader_scan import leader_batch
from pyspark_jetstream.plan import Range
from pyspark_jetstream.replicas import Server
from pyspark_jetstream.wire import Rows, Status

LOG = logging.getLogger("pyspark_jetstream")

# A server makes a batch in one go and closes a connection with 64 MB unread: with 4 MB both sides stay responsive.
BATCH_ROWS = 10_000
BATCH_BYTES = 4 << 20
# After this silence in the middle of a batch the task continues with the next replica.
STALL_S = 5.0
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 1.0

MIN_LAST_SEQ = b"Jetraft-Min-Last-Seq"
LAST_SEQ = b"Jetraft-Last-Seq"

END_OF_BATCH = 204
NOT_FOUND = 404
NO_RESPONDERS = 503


@attrs.define(slots=True)
class Served:
    """The part of a task that one server served."""

    url: str
    rows: int = 0
    seconds: float = 0.0


class RangeReader:
    """Reads a range once. Invariant: every row below `next_seq` was returned, is deleted, or is accepted as lost."""

    def __init__(self, wanted: Range, connections: ConnectionCache) -> None:
        self.next_seq = wanted.start_seq
        self.served: dict[str, Served] = {}  # by server name
        self._range = wanted
        self._connections = connections
        self._leader = Leader(wanted.options.access, wanted.options.stream, connections)
        self._strict = wanted.options.fail_on_data_loss
        self._incarnation_checked = False

    def __iter__(self) -> Iterator[Rows]:
        """Yield the rows in order.

        Raises DataLossError, and ServersUnavailableError when no server makes progress within the retry timeout.
        """
        try:
            yield from self._read()
        except StreamRecreatedError as error:
            if self._strict:
                raise
            LOG.warning("%s; the rows from %d on are lost", error, self.next_seq)

    def _read(self) -> Iterator[Rows]:
        failures: dict[str, str] = {}
        retry_timeout_s = self._range.options.access.retry_timeout_s
        deadline, pause_s = time.monotonic() + retry_timeout_s, PAUSE_FIRST_S
        while not self._done:
            for server in self._range.servers:
                before = self.next_seq
                try:
                    yield from self._read_from(server)
                except ServerError as error:
                    LOG.warning("%s: %s; continuing at %d with another replica", self._what, error, self.next_seq)
                    failures[server.url] = str(error)
                if self._done:
                    return
                if self.next_seq > before:
                    deadline, pause_s = time.monotonic() + retry_timeout_s, PAUSE_FIRST_S
            if time.monotonic() > deadline:
                raise ServersUnavailableError(
                    f"{self._what}: no replica returned {self.next_seq}: {'; '.join(failures.values())}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    @property
    def _done(self) -> bool:
        return self.next_seq >= self._range.end_seq

    @property
    def _what(self) -> str:
        return f"stream {self._range.options.stream} [{self._range.start_seq}, {self._range.end_seq})"

    def _read_from(self, server: Server) -> Iterator[Rows]:
        """Yield the rows that this server has; raises ServerError when it does not complete the range."""
        connection = self._connections.get(server.url, self._range.options.access)
        served = self.served.setdefault(connection.info.server_name, Served(url=server.url))
        while not self._done:
            started_s = time.monotonic()
            rows, status, failure = self._batch(connection)
            rows = self._accept(rows, status)
            served.rows += len(rows)
            served.seconds += time.monotonic() - started_s
            if rows:
                yield rows
            if failure is not None:
                raise failure

    def _batch(self, connection: Connection) -> tuple[Rows, Status | None, ServerError | None]:
        """Send one request; returns the rows, and the status or the failure that ended the answer."""
        rows = Rows()
        options, count = self._range.options, min(BATCH_ROWS, self._range.end_seq - self.next_seq)
        try:
            if not self._range.allow_direct:
                return rows, leader_batch(connection, options.stream, self.next_seq, count, rows), None
            question = {"seq": self.next_seq, "batch": count, "max_bytes": BATCH_BYTES}
            demand = b"%b: %d\r\n" % (MIN_LAST_SEQ, self._range.end_seq - 1)
            status = connection.direct_batch(options.stream, question, rows, header_lines=demand, stall_s=STALL_S)
        except ServerError as error:
            return rows, None, error
        return rows, status, refusal(status, connection.url)

    def _accept(self, rows: Rows, status: Status | None) -> Rows:
        """Check an answer, advance `next_seq` and return the rows of the range.

        Raises DataLossError, ReplicaBehindError, or ServerError when the answer is malformed.
        """
        seqs, start_seq, end_seq = rows.stream_seqs, self.next_seq, self._range.end_seq
        if seqs and not (seqs[0] >= start_seq and all(map(operator.lt, seqs, seqs[1:]))):
            raise ServerError(f"sequences out of order in the answer for {start_seq}")
        received = len(rows)
        rows.keep_first(bisect_left(seqs, end_seq))
        if rows and times.unix_ns(rows.times[-1].decode()) > self._range.planned_time_ns:
            self._check_incarnation()
        covered_to = seqs[-1] + 1 if seqs else start_seq
        if len(rows) < received:
            covered_to = end_seq
        elif covered_to < end_seq and is_end_of_stream(rows, status):
            self._verify_tail(covered_to, status)
            covered_to = end_seq
        if covered_to - start_seq != len(rows):
            self._check_gaps(start_seq, seqs, covered_to)
        self.next_seq = covered_to
        return rows

    def _verify_tail(self, tail_seq: int, status: Status | None) -> None:
        """Return if [tail_seq, end) does not exist in the stream. Raises ReplicaBehindError if the replica lacks it."""
        applied_seq = status.number(LAST_SEQ) if status is not None else None
        if applied_seq is not None:
            if applied_seq < self._range.end_seq - 1:
                raise ReplicaBehindError(f"the replica is at {applied_seq}")
            return
        live_seq = self._leader.next_live(tail_seq)
        if live_seq is not None and live_seq < self._range.end_seq:
            raise ReplicaBehindError(f"the replica lacks {live_seq}, which the leader has")
        view = self._leader.view()
        self._check_created(view)
        if view.end_seq < self._range.end_seq:
            raise ReplicaBehindError(f"the leader itself is at {view.last_seq}")

    def _check_gaps(self, start_seq: int, seqs: list[int], end_seq: int) -> None:
        """Raise DataLossError when a missing sequence of [start_seq, end_seq) was lost to retention, not deleted."""
        if not self._strict:
            return
        view = self._leader.view()
        self._check_created(view)
        expected_seq = start_seq
        for seq in (*seqs, end_seq):
            if seq > expected_seq and view.first_seq > expected_seq:
                raise DataLossError(
                    f"{self._what}: {expected_seq} to {min(seq, view.first_seq) - 1} are no longer in the stream, "
                    f"which now starts at {view.first_seq}; failOnDataLoss=false reads on without them"
                )
            expected_seq = seq + 1

    def _check_incarnation(self) -> None:
        if not self._incarnation_checked:
            self._check_created(self._leader.view())
            self._incarnation_checked = True

    def _check_created(self, view: StreamView) -> None:
        """Raise StreamRecreatedError when the stream is not the planned one: rows of two are never mixed."""
        if view.created != self._range.created:
            raise StreamRecreatedError(
                f"{self._what}: the stream was deleted and created again at {view.created} during the read"
            )


def is_end_of_stream(rows: Rows, status: Status | None) -> bool:
    """Whether the answer states that no message follows these rows."""
    return status is not None and (status.code == NOT_FOUND or (status.code == END_OF_BATCH and rows.num_pending == 0))


def refusal(status: Status, url: str) -> ServerError | None:
    """Return the error for a status that does not end a complete batch."""
    if status.code in {END_OF_BATCH, NOT_FOUND}:
        return None
    applied_seq = status.number(LAST_SEQ)
    if applied_seq is not None:
        return ReplicaBehindError(f"{url}: the replica is at {applied_seq}")
    if status.code == NO_RESPONDERS:
        return ServerError(f"{url}: no replica of the stream answers direct gets")
    return ServerError(f"{url}: {status.code} {status.description}")
