"""Restoring a stream, as steps: what a checked archive's items become in the stream's log. Pure.

A step is one entry to be proposed: consumers first, then runs of messages without a gap, and a skip for each gap. Steps
say which sequences they fill, so that carrying one out twice is noticed. A few hundred travel together to the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.backup.contents import TS_NS_MAX, ArchiveEnd, Removal
from jetraft.cluster.backup.step_batch import RestoreStep, StepKind
from jetraft.cluster.state import commands
from jetraft.cluster.state.headers import nats_headers
from jetraft.cluster.state.snapshot import encode_config
from jetraft.cluster.state.source_header import position_in
from jetraft.cluster.state.ttl import NEVER_NS, parse_ttl
from jetraft.store.frames._frame import make_record
from jetraft.store.frames.format import RECORD_HAS_MSG_ID, RECORD_HAS_SCHEDULE, RECORD_HAS_TTL, RECORD_IS_SOURCED
from jetraft.store.model import message
from jetraft.store.model.extensions import keeps_schedules
from jetraft.store.model.state import StreamState
from jetraft.store.stream.consumer_state import ConsumerState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jetraft.cluster.backup.archive import ArchiveEntry
    from jetraft.cluster.backup.contents import Item
    from jetraft.store.model.config import StreamConfig

BATCH_BYTES: Final = 512 << 10  # of steps that travel together; one message may be larger
BATCH_STEPS_MAX: Final = 512


class StepPlanner:
    """Items in, batches of steps out."""

    def __init__(self, config: StreamConfig, now_unix_ns: int) -> None:
        self._has_ttls = config.allow_msg_ttl
        self._has_schedules = keeps_schedules(config)
        self._has_sources = bool(config.sources)
        self._now_unix_ns = now_unix_ns
        self._next_seq = 1
        self._run: list[bytes] = []  # records that follow each other without a gap
        self._run_count = 0
        self._run_first_seq = 1
        self._steps: list[RestoreStep] = []
        self._bytes = 0

    def take(self, item: Item) -> Iterator[Sequence[RestoreStep]]:
        """Take the next item; yield the batches that are full by that."""
        if isinstance(item, StreamState):
            self._skip_to(max(1, item.first_seq))
        elif isinstance(item, ConsumerState):
            self._add(RestoreStep(StepKind.CONSUMER, 0, 0, _restore(item)))
        elif isinstance(item, Removal):
            command = commands.Remove(commands.to_runs(item.seqs), erase=False)
            self._add(RestoreStep(StepKind.REMOVE, 0, 0, commands.encode_stream_command(command)))
        elif isinstance(item, ArchiveEnd):
            self._end_run()
            self._skip_to(item.last_seq + 1, min(max(0, item.last_ts_ns), TS_NS_MAX))
        elif not self._has_expired(item):
            if item.seq > self._next_seq:
                self._end_run()
                self._skip_to(item.seq)
            self._take_message(item)
        if self._bytes >= BATCH_BYTES or len(self._steps) >= BATCH_STEPS_MAX:
            yield self._batch()

    def finish(self) -> Sequence[RestoreStep]:
        """The rest; nothing when nothing does."""
        return self._batch()

    def _take_message(self, item: ArchiveEntry) -> None:
        if not self._run:
            self._run_first_seq = item.seq
        flags = 0
        if b"Nats-Msg-Id" in item.hdr and message.get(item.hdr, b"Nats-Msg-Id"):
            flags |= RECORD_HAS_MSG_ID
        if self._has_ttls and _ttl_of(item) is not None:
            flags |= RECORD_HAS_TTL
        if self._has_schedules and b"Nats-Schedule" in item.hdr and _schedules(nats_headers(item.hdr)):
            flags |= RECORD_HAS_SCHEDULE
        if self._has_sources and message.STREAM_SOURCE in item.hdr and position_in(item.hdr) is not None:
            flags |= RECORD_IS_SOURCED  # the sources are read on from here, not from their start
        record = make_record(item.name, item.hdr, item.body, ts_ns=item.ts_ns, flags=flags)
        self._run.append(record)
        self._run_count += 1
        self._bytes += len(record)
        self._next_seq = item.seq + 1

    def _has_expired(self, item: ArchiveEntry) -> bool:
        """Whether the message has outlived its own TTL: its sequence is passed over, as nats-server does."""
        ttl_ns = _ttl_of(item) if self._has_ttls else None
        return ttl_ns is not None and ttl_ns != NEVER_NS and item.ts_ns + ttl_ns <= self._now_unix_ns

    def _skip_to(self, seq: int, ts_ns: int = 0) -> None:
        if seq > self._next_seq:
            body = commands.encode_stream_command(commands.SkipTo(seq, ts_ns))
            self._add(RestoreStep(StepKind.SKIP, self._next_seq, seq - self._next_seq, body))
            self._next_seq = seq

    def _end_run(self) -> None:
        if self._run:
            step = RestoreStep(StepKind.MESSAGES, self._run_first_seq, self._run_count, b"".join(self._run))
            self._run, self._run_count = [], 0
            self._steps.append(step)

    def _add(self, step: RestoreStep) -> None:
        self._end_run()
        self._steps.append(step)
        self._bytes += len(step.body)

    def _batch(self) -> Sequence[RestoreStep]:
        self._end_run()
        batch, self._steps, self._bytes = self._steps, [], 0
        return batch


def _schedules(headers: dict[bytes, bytes]) -> bool:
    """Whether a message is a schedule, or one of those that a schedule has produced."""
    return bool(
        headers.get(b"Nats-Schedule") or (headers.get(b"Nats-Scheduler") and headers.get(b"Nats-Schedule-Next"))
    )


def _ttl_of(item: ArchiveEntry) -> int | None:
    text = message.get(item.hdr, b"Nats-TTL") if b"Nats-TTL" in item.hdr else None
    return parse_ttl(text) if text else None


def _restore(state: ConsumerState) -> bytes:
    packed = state.pack()
    return commands.encode_consumer_commands(
        [commands.RestoreConsumer(state.name, encode_config(state.config), packed)]
    )
