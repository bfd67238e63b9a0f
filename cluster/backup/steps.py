"""Restoring a stream, as steps: what a checked archive's items become in the stream's log. Pure.

A step is one entry to be proposed: consumers first, then runs of messages without a gap, and a skip for each gap. Steps
say which sequences they fill, so that carrying one out twice is noticed. A few hundred travel together to the leader.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Final

import attrs
import msgpack

from jetraft.cluster.backup.contents import TS_NS_MAX, Ending, Removal
from jetraft.cluster.streams import commands
from jetraft.cluster.streams._admit import FLAG_MSG_ID, FLAG_TTL
from jetraft.cluster.streams.machine import encode_config
from jetraft.cluster.streams.ttl import NEVER_NS, parse_ttl
from jetraft.store.consumer_state import ConsumerState
from jetraft.store.format import RECORD_HEADER_BYTES
from jetraft.store.model import message
from jetraft.store.model.state import StreamState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jetraft.cluster.backup.archive import Entry
    from jetraft.cluster.backup.contents import Item
    from jetraft.store.model.config import StreamConfig

BATCH_BYTES: Final = 512 << 10  # of steps that travel together; one message may be larger
BATCH_STEPS_MAX: Final = 512
_RECORD: Final = struct.Struct("<IIHHq")  # store/format.py: length, header, subject, flags, Unix ns


class StepKind(enum.IntEnum):
    """What a step adds."""

    CONSUMER = 1
    MESSAGES = 2
    SKIP = 3
    REMOVE = 4


@attrs.frozen(slots=True)
class Step:
    """One entry to be: `first_seq` and `count` say which sequences it uses up."""

    kind: StepKind
    first_seq: int
    count: int
    body: bytes


class Planner:
    """Items in, batches of steps out."""

    def __init__(self, config: StreamConfig, now_unix_ns: int) -> None:
        self._has_ttls = config.allow_msg_ttl
        self._now_unix_ns = now_unix_ns
        self._next_seq = 1
        self._run: list[bytes] = []  # the parts of records that follow each other without a gap
        self._run_count = 0
        self._run_first_seq = 1
        self._steps: list[Step] = []
        self._bytes = 0

    def take(self, item: Item) -> Iterator[Sequence[Step]]:
        """Take the next item; yield the batches that are full by that."""
        if isinstance(item, StreamState):
            self._skip_to(max(1, item.first_seq))
        elif isinstance(item, ConsumerState):
            self._add(Step(StepKind.CONSUMER, 0, 0, _restore(item)))
        elif isinstance(item, Removal):
            command = commands.Remove(commands.to_runs(item.seqs), erase=False)
            self._add(Step(StepKind.REMOVE, 0, 0, commands.encode_stream_command(command)))
        elif isinstance(item, Ending):
            self._end_run()
            self._skip_to(item.last_seq + 1, min(max(0, item.last_ts_ns), TS_NS_MAX))
        elif not self._has_expired(item):
            if item.seq > self._next_seq:
                self._end_run()
                self._skip_to(item.seq)
            self._take_message(item)
        if self._bytes >= BATCH_BYTES or len(self._steps) >= BATCH_STEPS_MAX:
            yield self._batch()

    def finish(self) -> Sequence[Step]:
        """What remains; nothing when nothing does."""
        return self._batch()

    def _take_message(self, item: Entry) -> None:
        if not self._run:
            self._run_first_seq = item.seq
        flags = FLAG_MSG_ID if b"Nats-Msg-Id" in item.hdr and message.get(item.hdr, b"Nats-Msg-Id") else 0
        if self._has_ttls and _ttl_of(item) is not None:
            flags |= FLAG_TTL
        length = RECORD_HEADER_BYTES + len(item.name) + len(item.hdr) + len(item.body)
        head = _RECORD.pack(length, len(item.hdr), len(item.name), flags, item.ts_ns)
        self._run += (head, item.name, item.hdr, item.body)
        self._run_count += 1
        self._bytes += length
        self._next_seq = item.seq + 1

    def _has_expired(self, item: Entry) -> bool:
        """Whether the message has outlived its own TTL: its sequence is passed over, as nats-server does."""
        ttl_ns = _ttl_of(item) if self._has_ttls else None
        return ttl_ns is not None and ttl_ns != NEVER_NS and item.ts_ns + ttl_ns <= self._now_unix_ns

    def _skip_to(self, seq: int, ts_ns: int = 0) -> None:
        if seq > self._next_seq:
            body = commands.encode_stream_command(commands.SkipTo(seq, ts_ns))
            self._add(Step(StepKind.SKIP, self._next_seq, seq - self._next_seq, body))
            self._next_seq = seq

    def _end_run(self) -> None:
        if self._run:
            step = Step(StepKind.MESSAGES, self._run_first_seq, self._run_count, b"".join(self._run))
            self._run, self._run_count = [], 0
            self._steps.append(step)

    def _add(self, step: Step) -> None:
        self._end_run()
        self._steps.append(step)
        self._bytes += len(step.body)

    def _batch(self) -> Sequence[Step]:
        self._end_run()
        batch, self._steps, self._bytes = self._steps, [], 0
        return batch


def _ttl_of(item: Entry) -> int | None:
    text = message.get(item.hdr, b"Nats-TTL") if b"Nats-TTL" in item.hdr else None
    return parse_ttl(text) if text else None


def _restore(state: ConsumerState) -> bytes:
    packed = msgpack.packb(state.to_tuple())
    return commands.encode_consumer_commands(
        [commands.RestoreConsumer(state.name, encode_config(state.config), packed)]
    )


def pack_steps(incarnation: int, steps: Sequence[Step]) -> bytes:
    """The bytes of a batch on its way to the leader."""
    packed: bytes = msgpack.packb([incarnation, [attrs.astuple(step) for step in steps]])
    return packed


def unpack_steps(packed: bytes) -> tuple[int, list[Step]]:
    """The inverse of `pack_steps`. Raises ValueError or TypeError."""
    incarnation, steps = msgpack.unpackb(packed)
    return incarnation, [Step(StepKind(kind), first, count, body) for kind, first, count, body in steps]
