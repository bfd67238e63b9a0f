"""A stream as a dictionary: what the store must do, in the plainest words. And a log feeder for tests of the store."""

from collections.abc import Sequence

import attrs

from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Kind
from jetraft.store.model.subject import matches_any
from jetraft.store.port import Entry, GroupLog
from jetraft.store.stream.retention import SizeModel, StoreLimits


@attrs.frozen
class Message:
    """One message to publish."""

    subject: bytes
    payload: bytes = b""
    hdr: bytes = b""
    ts_ns: int = 0


def append_messages(log: GroupLog, first_seq: int, messages: Sequence[Message], *, term: int = 1) -> Entry:
    """Append a MESSAGES entry to a log and return it."""
    index = log.last_index + 1
    records = [make_record(one.subject, one.hdr, one.payload, ts_ns=one.ts_ns) for one in messages]
    frame = seal(
        Kind.MESSAGES, index=index, term=term, incarnation=1, body=records, first_seq=first_seq, count=len(records)
    )
    entry = Entry(index=index, term=term, kind=Kind.MESSAGES, frame=frame)
    log.append([entry])
    return entry


@attrs.define
class NaiveStream:
    """The model: every question is answered by looking at every message."""

    limits: StoreLimits
    size_model: SizeModel
    live: dict[int, Message] = attrs.Factory(dict)
    first_unused: int = 1
    last_ts_ns: int = 0

    @property
    def first_seq(self) -> int:
        return min(self.live, default=self.first_unused)

    @property
    def last_seq(self) -> int:
        return self.first_unused - 1

    def size(self, message: Message) -> int:
        return self.size_model.message_bytes(len(message.subject), len(message.hdr), len(message.payload))

    @property
    def total_bytes(self) -> int:
        return sum(self.size(message) for message in self.live.values())

    def publish(self, first_seq: int, messages: Sequence[Message]) -> None:
        for seq, message in enumerate(messages, first_seq):
            self.live[seq] = message
            self.first_unused = seq + 1
            self.last_ts_ns = message.ts_ns
            self.enforce(message.subject)

    def enforce(self, *subjects: bytes) -> None:
        limits = self.limits
        for subject in subjects:
            mine = [seq for seq in sorted(self.live) if self.live[seq].subject == subject]
            if limits.max_msgs_per_subject >= 0:
                for seq in mine[: max(0, len(mine) - limits.max_msgs_per_subject)]:
                    del self.live[seq]
                mine = [seq for seq in mine if seq in self.live]
            total = sum(self.size(self.live[seq]) for seq in mine)
            while len(mine) > 1 and 0 <= limits.max_bytes_per_subject < total:
                total -= self.size(self.live.pop(mine.pop(0)))
        while self.live and (0 <= limits.max_msgs < len(self.live) or 0 <= limits.max_bytes < self.total_bytes):
            del self.live[min(self.live)]

    def set_limits(self, limits: StoreLimits) -> None:
        self.limits = limits
        self.enforce(*{message.subject for message in self.live.values()})

    def matching(self, filters: Sequence[bytes], low: int = 0, high: int | None = None) -> list[int]:
        return [
            seq
            for seq in sorted(self.live)
            if seq >= low and (high is None or seq <= high) and matches_any(filters, self.live[seq].subject)
        ]

    def last_per_subject(self, filters: Sequence[bytes], up_to_seq: int) -> list[int]:
        last = {self.live[seq].subject: seq for seq in self.matching(filters, high=up_to_seq)}
        return sorted(last.values())
