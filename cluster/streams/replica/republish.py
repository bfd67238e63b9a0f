"""Republishing: what a stream has stored is published again under another subject, by its leader.

A message is republished when it is committed, at the time of its acknowledgement, and with its place in the stream in
headers; `Nats-Last-Sequence` is that of the message before it under the same subject, so that a subscriber without a
consumer sees gaps. Nothing is republished twice or later: what is committed while leadership changes is not
republished, as in nats-server. Only streams that republish have a `Republisher`. Source: ADR-28, stream.go
(processJetStreamMsg), observed on 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from jetraft.cluster.capture._capture import encode_capture
from jetraft.store.frames._frame import record_at
from jetraft.store.frames.format import FRAME_HEADER_BYTES, RECORD_HEADER_BYTES
from jetraft.store.model import message
from jetraft.store.model.extensions import WAITING
from jetraft.store.model.gotime import format_time
from jetraft.store.model.mapping.transforming import SUBJECT_BYTES_MAX, transform_between, transformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jetraft.cluster.streams.publishing._admission import RecordBatch
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.mapping.transforms import Transform


class LastOfSubjects(Protocol):
    """A stream's applied state as a republisher reads it."""

    @property
    def last_seq(self) -> int:
        """The last sequence given out."""

    def last_for(self, pattern: bytes) -> int:
        """The last live sequence whose subject matches, 0 for none."""


class Republisher:
    """Makes the copies of one stream's messages, for one term of leadership."""

    def __init__(
        self, config: StreamConfig, transform: Transform, applied: LastOfSubjects, draw: Callable[[int], int]
    ) -> None:
        assert config.republish is not None, "only streams that republish have a republisher"
        self._stream = config.name.encode()
        self._headers_only = config.republish.headers_only
        self._transform = transform
        self._applied = applied
        self._draw = draw
        self._committed: dict[bytes, int] = {}  # the last sequence of a subject, committed and not applied yet

    @classmethod
    def of(cls, config: StreamConfig, applied: LastOfSubjects, draw: Callable[[int], int]) -> Self | None:
        """That of a stream; None when it does not republish. `draw(n)` returns a number below n."""
        rule = config.republish
        transform = None if rule is None else transform_between(rule.src, rule.dest)
        return None if transform is None else cls(config, transform, applied, draw)

    def copies(self, first_seq: int, records: RecordBatch | bytes) -> bytes:
        """The copies of committed messages, which are not applied yet, as a batch for `Outbox.send_batch`."""
        made = []
        for seq, (ts_ns, _, subject, hdr, payload) in enumerate(_records(records), first_seq):
            if subject.startswith(WAITING):
                continue
            to = transformed(self._transform, subject, self._draw)
            if to is not None and len(to) <= SUBJECT_BYTES_MAX:
                fields = self._fields(seq, ts_ns, subject, len(payload))
                body = b"" if self._headers_only else payload
                made.append(encode_capture(to, hdr=_with_fields(hdr, fields), payload=body))
            self._committed[subject] = seq
        return b"".join(made)

    def applied(self) -> None:
        """Entries have been applied: the applied state speaks for their messages."""
        if self._committed:
            last_seq = self._applied.last_seq
            self._committed = {subject: seq for subject, seq in self._committed.items() if seq > last_seq}

    def _fields(self, seq: int, ts_ns: int, subject: bytes, size: int) -> dict[bytes, bytes]:
        last = self._committed.get(subject) or self._applied.last_for(subject)
        fields = {
            message.STREAM: self._stream,
            message.SUBJECT: subject,
            message.SEQUENCE: b"%d" % seq,
            message.TIME_STAMP: format_time(ts_ns).encode(),
            message.LAST_SEQUENCE: b"%d" % last,
        }
        if self._headers_only:
            fields[message.MSG_SIZE] = b"%d" % size
        return fields


def _records(records: RecordBatch | bytes) -> Iterator[tuple[int, int, bytes, bytes, bytes]]:
    """(ts_ns, flags, subject, hdr, payload) of each record."""
    frame, offset = bytes(FRAME_HEADER_BYTES) + memoryview(records), FRAME_HEADER_BYTES
    while offset < len(frame):
        found = record_at(frame, offset)
        offset += RECORD_HEADER_BYTES + sum(map(len, found[2:]))
        yield found


def _with_fields(hdr: bytes, fields: dict[bytes, bytes]) -> bytes:
    """The header block with these lines at its end."""
    added = message.build(fields)
    return hdr.removesuffix(message.LINE_END) + added.partition(message.LINE_END)[2] if hdr else added
