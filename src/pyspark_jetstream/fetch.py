"""Reads one range of a stream completely, also if servers fail during the read.

A task requests its range from the first replica of its list by batch direct get. A jetraft replica answers in columns,
with the whole range; other servers answer in rows and are asked for a few megabytes at a time. If a replica fails, the
task continues with the next one at the first row that it does not have. What arrives is checked before it is returned
(acceptance.py).
"""

import contextlib
import logging
import time
from collections.abc import Generator, Iterator
from typing import Any

import attrs

from pyspark_jetstream.acceptance import END_OF_BATCH, LAST_SEQ, NOT_FOUND, Acceptance
from pyspark_jetstream.client import Connection, ConnectionCache, Part
from pyspark_jetstream.columns import Columns, parse_columns
from pyspark_jetstream.consumer_scan import ConsumerScan
from pyspark_jetstream.errors import (
    ReplicaBehindError,
    ServerError,
    ServersUnavailableError,
    StreamNotFoundError,
    StreamRecreatedError,
)
from pyspark_jetstream.leader import ApiRefusalError
from pyspark_jetstream.leader_scan import leader_batch
from pyspark_jetstream.plan import Range
from pyspark_jetstream.projection import needed, needs_rows
from pyspark_jetstream.replicas import Server
from pyspark_jetstream.subjects import ALL, cover
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
ACCEPT_COLUMNS = b"Accept: application/vnd.jetraft.columns.v1\r\n"

NO_RESPONDERS = 503

SELECTED = frozenset({"time", "subject", "headers", "data"})  # beside the sequence, which is always there


@attrs.define(slots=True)
class Served:
    """The part of a task that one server served."""

    url: str
    rows: int = 0
    data_bytes: int = 0  # of payloads
    seconds: float = 0.0


class RangeReader:
    """Reads a range once, in order."""

    def __init__(self, wanted: Range, connections: ConnectionCache) -> None:
        self.served: dict[str, Served] = {}  # by server name
        self._range = wanted
        self._connections = connections
        self._accepted = Acceptance(wanted, connections)
        self._has_consumers = True  # one can be created for this range
        self._columns = column_request(wanted)

    @property
    def next_seq(self) -> int:
        """Every row below it was returned, is deleted, or is accepted as lost."""
        return self._accepted.next_seq

    @property
    def missing(self) -> int:
        """Sequences without a message; with a filter also those of other subjects."""
        return self._accepted.missing

    def __iter__(self) -> Iterator[Rows | Columns]:
        """Yield the rows in order.

        Raises DataLossError, and ServersUnavailableError when no server makes progress within the retry timeout.
        """
        try:
            yield from self._read()
        except StreamRecreatedError as error:
            if self._range.options.fail_on_data_loss:
                raise
            LOG.warning("%s; the rows from %d on are lost", error, self.next_seq)

    def _read(self) -> Iterator[Rows | Columns]:
        failures: dict[str, str] = {}
        retry_timeout_s = self._range.options.access.retry_timeout_s
        deadline, pause_s = time.monotonic() + retry_timeout_s, PAUSE_FIRST_S
        while not self._accepted.is_complete:
            for server in self._range.servers:
                before = self.next_seq
                try:
                    yield from self._read_from(server)
                except ServerError as error:
                    LOG.warning(
                        "%s: %s; continuing at %d with another replica", self._accepted.what, error, self.next_seq
                    )
                    failures[server.url] = str(error)
                if self._accepted.is_complete:
                    return
                if self.next_seq > before:
                    deadline, pause_s = time.monotonic() + retry_timeout_s, PAUSE_FIRST_S
            if not self._accepted.leader.exists():
                raise StreamNotFoundError(f"stream {self._range.options.stream!r} does not exist any more")
            if time.monotonic() > deadline:
                raise ServersUnavailableError(
                    f"{self._accepted.what}: no replica returned {self.next_seq}: {'; '.join(failures.values())}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _read_from(self, server: Server) -> Iterator[Rows | Columns]:
        """Yield the rows that this server has; raises ServerError when it does not complete the range."""
        connection = self._connections.get(server.url, self._range.options.access)
        served = self.served.setdefault(connection.info.server_name, Served(url=server.url))
        started_s = time.monotonic()
        for part in self._by_batches(connection) if self._range.allow_direct else self._by_consumer(connection):
            served.rows += len(part)
            served.data_bytes += part.data_bytes
            served.seconds += time.monotonic() - started_s
            if len(part):
                yield part
            started_s = time.monotonic()

    def _by_batches(self, connection: Connection) -> Iterator[Rows | Columns]:
        """Read from a replica, by batch direct gets."""
        options, last_seq = self._range.options, self._range.end_seq - 1
        lines = b"%b: %d\r\n%b" % (MIN_LAST_SEQ, last_seq, b"" if needs_rows(options) else ACCEPT_COLUMNS)
        while not self._accepted.is_complete:
            limits = {"batch": self._accepted.selection.count(self.next_seq, BATCH_ROWS), "max_bytes": BATCH_BYTES}
            columns = {**self._columns, "message_bytes": connection.info.payload_bytes_max}
            question = {"seq": self.next_seq, **limits, "columns": columns}
            if self._accepted.selection.subject != ALL:
                question["next_by_subj"] = self._accepted.selection.subject
            answer = connection.direct_batch(options.stream, question, header_lines=lines, stall_s=STALL_S)
            yield from self._checked(answer, connection.url)

    def _by_consumer(self, connection: Connection) -> Iterator[Rows | Columns]:
        """Read through an ephemeral consumer; message by message where the stream admits none."""
        scan = self._new_scan(connection)
        if scan is None:
            yield from self._by_messages(connection)
            return
        with contextlib.closing(scan):
            while not self._accepted.is_complete:
                count = min(BATCH_ROWS, self._range.end_seq - self.next_seq)
                yield from self._checked(scan.pull(count, BATCH_BYTES, stall_s=STALL_S), connection.url)

    def _new_scan(self, connection: Connection) -> ConsumerScan | None:
        """A consumer that starts at the next row. A stream that drops what its consumers have read gets none."""
        if not self._has_consumers:
            return None
        view = self._accepted.leader.view()
        self._accepted.check_created(view)
        self._has_consumers = view.retention == "limits"
        try:
            if not self._has_consumers:
                return None
            return ConsumerScan(
                connection, self._range.options.stream, self.next_seq, cover(self._range.options.subjects)
            )
        except ApiRefusalError as error:
            LOG.warning("%s: no consumer: %s; reading message by message", self._accepted.what, error)
            self._has_consumers = False
            return None
        except ServerError as error:
            self._has_consumers = "Permissions Violation" not in str(error)
            raise

    def _by_messages(self, connection: Connection) -> Iterator[Rows | Columns]:
        while not self._accepted.is_complete:
            rows = Rows()
            count = min(BATCH_ROWS, self._range.end_seq - self.next_seq)
            status = leader_batch(connection, self._range.options.stream, self.next_seq, count, rows)
            yield self._accepted.rows(rows)
            self._accepted.end(status, rows.num_pending)

    def _checked(self, answer: Generator[Part, None, Status], url: str) -> Iterator[Rows | Columns]:
        """Yield the rows of an answer. Raises ServerError for a status that is a failure."""
        num_pending = 0
        with contextlib.closing(answer):
            while True:
                try:
                    part = next(answer)
                except StopIteration as end:
                    status = end.value
                    break
                checked = self._accept(part)
                num_pending = checked.num_pending
                yield checked
        if failure := refusal(status, url):
            raise failure
        self._accepted.end(status, num_pending)

    def _accept(self, part: Part) -> Rows | Columns:
        if isinstance(part, Rows):
            return self._accepted.rows(part)
        return self._accepted.columns(parse_columns(part))


def column_request(wanted: Range) -> dict[str, Any]:
    """What is said of columns in each request for a range: its end, and what the query needs."""
    options = wanted.options
    request: dict[str, Any] = {"up_to_seq": wanted.end_seq - 1}
    if options.subjects:
        request["filters"] = list(options.subjects)
    return {**request, "select": [name for name in needed(options) if name in SELECTED]}


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
