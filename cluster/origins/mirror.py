"""The way of a mirror's messages: into its log under their own sequences and times.

A mirror's position is its last sequence: sequences that the origin does not have, or that the filter leaves out, are
skipped by entries of the log. Nothing is judged: a mirror de-duplicates nothing, and its limits remove the oldest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from jetraft.cluster.origins._plain import take_plain
from jetraft.cluster.origins.subjects import SubjectChanges, without_expectations
from jetraft.cluster.state import commands
from jetraft.cluster.state.headers import nats_headers
from jetraft.cluster.state.ttl import parse_ttl
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames._frame import make_record
from jetraft.store.frames.format import RECORD_HAS_ROLLUP, RECORD_HAS_TTL, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.origins.asking import Answer
    from jetraft.cluster.origins.deliveries import Arrived, Deliveries
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group
    from jetraft.store.model.api_error import ApiError

ENTRY_BYTES_MAX: Final = 1 << 20  # as of published messages
ROLLUPS: Final = (b"sub", b"all")


class MirrorIntake:
    """Implements Intake for one term."""

    def __init__(
        self,
        group: Group,
        machine: StreamMachine,
        *,
        subjects: SubjectChanges,
        refusal: Callable[[], ApiError | None],
        stored: Callable[[int, bytes], None],
    ) -> None:
        """`refusal` says why nothing can be stored now; `stored` hears of committed records, from a sequence on."""
        self._group = group
        self._machine = machine
        self._subjects = subjects
        self._refusal = refusal
        self._stored = stored
        self._last_seq = machine.last_seq
        self._records: list[bytes] = []  # of one entry, behind `_last_seq`
        self._size = 0

    @property
    def position(self) -> int:
        """The last sequence that is proposed."""
        return self._last_seq

    @property
    def proposed_seq(self) -> int:
        """The same: a mirror has the sequences of its origin."""
        return self._last_seq

    @property
    def applied_seq(self) -> int:
        """The last sequence that the stream has."""
        return self._machine.last_seq

    def begins(self, answer: Answer) -> bool:
        """Skip what the origin does not have any more."""
        self._skip_to(answer.delivered_seq + 1)
        return True

    def take_plain(self, batch: bytes, start: int, deliveries: Deliveries) -> int:
        """Propose deliveries without a gap, under their own subjects, whose headers say nothing to JetStream."""
        end = len(batch)
        while start < end and not self._subjects and not deliveries.is_broken and self._refusal() is None:
            records, count, start, num_pending = take_plain(
                batch, start, deliveries.consumer_seq, self._last_seq, ENTRY_BYTES_MAX
            )
            if not count:
                break
            self._propose(records, count)
            deliveries.consumer_seq += count
            deliveries.last_seq, deliveries.num_pending = self._last_seq, num_pending
        return start

    def take(self, messages: Sequence[Arrived]) -> ApiError | None:
        """Propose messages: an entry for each run without a gap, and a skip for each gap."""
        error = self._refusal()
        if error is not None:
            return error
        for arrived in messages:
            if arrived.seq != self._last_seq + len(self._records) + 1 or self._size >= ENTRY_BYTES_MAX:
                self._propose_records()
                self._skip_to(arrived.seq)
            subject = self._subjects.of(arrived.subject)
            hdr = without_expectations(arrived.hdr) if arrived.hdr else b""
            flags = self._flags(hdr) if hdr else 0
            record = make_record(subject, hdr, arrived.payload, ts_ns=arrived.ts_ns, flags=flags)
            self._records.append(record)
            self._size += len(record)
        self._propose_records()
        return None

    def _flags(self, hdr: bytes) -> int:
        config, headers, flags = self._machine.config, nats_headers(hdr), 0
        assert config is not None, "the first entry of a stream is its configuration"
        rollup, ttl = headers.get(b"Nats-Rollup"), headers.get(b"Nats-TTL")
        if rollup and rollup.lower() in ROLLUPS and config.allow_rollup_hdrs:
            flags |= RECORD_HAS_ROLLUP
        if ttl and config.allow_msg_ttl and parse_ttl(ttl) is not None:
            flags |= RECORD_HAS_TTL
        return flags

    def _skip_to(self, seq: int) -> None:
        if seq > self._last_seq + 1:
            body = commands.encode_stream_command(commands.SkipTo(seq, 0))
            self._group.propose(Proposal(kind=Kind.STREAM_OP, body=body))
            self._last_seq = seq - 1

    def _propose_records(self) -> None:
        records, self._records, self._size = self._records, [], 0
        if records:
            self._propose(b"".join(records), len(records))

    def _propose(self, records: bytes, count: int) -> None:
        first_seq = self._last_seq + 1
        proposal = Proposal(kind=Kind.MESSAGES, first_seq=first_seq, count=count, body=records)
        self._group.propose(proposal, committed=partial(self._stored, first_seq, records))
        self._last_seq += count
