"""Which messages a consumer gets next, and how many are left. One place counts: nothing else keeps a running total.

Redundant counters of pending messages are a common source of errors, so none is kept. A count is remembered together
with the number of the stream's last change, and trusted only while the stream has not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jetraft.store.model import message
from jetraft.store.model.subject import is_literal
from jetraft.store.stream._runs import Runs
from jetraft.store.stream.consumer_state import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from jetraft.cluster.ports import StoredLike
    from jetraft.store.model.extensions import KeyRule
    from jetraft.store.stream.consumer_state import ConsumerState


class Messages(Protocol):
    """The part of a stream that selection needs."""

    @property
    def mutations(self) -> int:
        """Grows with every change of the set of messages."""

    @property
    def vanished(self) -> int:
        """Changes when a message goes for another reason than an ack."""

    @property
    def last_seq(self) -> int:
        """The last sequence that the stream has given."""

    def next_runs(self, filters: Sequence[bytes], from_seq: int, count: int) -> Runs:
        """The first live messages at or above a sequence that match."""

    def measure(
        self, seqs: Runs, room_bytes: int, *, consumer_seq: int, num_pending: int, prefix_bytes: int
    ) -> tuple[int, int, int]:
        """How many first deliveries fill a room: (messages, their bytes, bytes of the last), subjects included."""

    def num_pending(self, filters: Sequence[bytes], from_seq: int) -> int:
        """How many live messages at or above a sequence match."""

    def next_and_left(self, filters: Sequence[bytes], from_seq: int, count: int) -> tuple[int, Runs]:
        """(how many there are, the first of them): `num_pending` and `next_runs` in one."""

    def last_for(self, pattern: bytes) -> int:
        """The last live sequence whose subject matches, 0 for none."""

    def load(self, seq: int) -> StoredLike | None:
        """A live message."""

    def is_live(self, seq: int) -> bool:
        """True while the stream has the message."""

    def count_live(self, seqs: Runs, above: int) -> int:
        """How many of these above a sequence the stream has."""

    def live_of(self, seqs: Runs, above: int, count: int) -> Runs:
        """The first of these above a sequence that the stream has, so many at most."""

    @property
    def retains_by_acks(self) -> bool:
        """True when acks decide what the stream keeps."""


class Selector:
    """Selection for one consumer."""

    def __init__(self, state: ConsumerState, messages: Messages) -> None:
        self._filters = state.config.filters
        self._only = self._filters[0] if len(self._filters) == 1 and is_literal(self._filters[0]) else None
        self._initial = state.initial  # deliver policy `last_per_subject`
        self._resume_seq = state.resume_seq
        self._messages = messages
        self._counted = (-1, 0)  # (mutation number, from_seq) of the count
        self._count = 0

    def next_after(self, seq: int, count: int) -> Runs:
        """The next messages above a sequence, at most `count`."""
        if seq + 1 >= self._resume_seq:
            return self._messages.next_runs(self._filters, seq + 1, count)
        found = self._messages.live_of(self._initial, seq, count)
        if len(found) < count:
            found.extend(self._messages.next_runs(self._filters, self._resume_seq, count - len(found)))
        return found

    def next_without(self, left_out: AbstractSet[int], seq: int, count: int) -> Runs:
        """The next messages above a sequence without these, at most `count`."""
        chosen = Runs()
        while len(chosen) < count:
            found = self.next_after(seq, count)
            if not found:
                break
            seq = found.last
            chosen.extend(Runs(one for one in found if one not in left_out))
        return chosen.part(0, count)

    def measure(
        self, seqs: Runs, room_bytes: int, *, consumer_seq: int, num_pending: int, prefix_bytes: int
    ) -> tuple[int, int, int]:
        """How many first deliveries fill a room: (messages, their bytes, bytes of the last)."""
        return self._messages.measure(
            seqs, room_bytes, consumer_seq=consumer_seq, num_pending=num_pending, prefix_bytes=prefix_bytes
        )

    def may_have_after(self, seq: int) -> bool:
        """False when there is surely no message above a sequence: quickly told where the filter is one subject."""
        return self._only is None or seq + 1 < self._resume_seq or self._messages.last_for(self._only) > seq

    def num_pending(self, seq: int) -> int:
        """How many messages above a sequence are still to come."""
        key = (self._messages.mutations, seq)
        if self._counted != key:
            self._counted, self._count = key, self._count_after(seq)
        return self._count

    def next_and_left(self, seq: int, count: int) -> tuple[int, Runs]:
        """(how many messages above a sequence are still to come, the next of them, at most `count`)."""
        if seq + 1 < self._resume_seq:
            return self.num_pending(seq), self.next_after(seq, count)
        if not self._count and self._counted == (self._messages.mutations, seq):
            return 0, NOTHING
        return self._messages.next_and_left(self._filters, seq + 1, count)

    def delivered(self, seq: int, left: int) -> None:
        """Deliveries up to `seq` leave so many: spares a count while the stream stands still."""
        self._counted, self._count = (self._messages.mutations, seq), left

    def late(self, seqs: Runs, waited_for: Runs, delivered: int) -> Runs:
        """Of acknowledged messages, those that nothing waited for, and that the stream has because no ack had come.

        `waited_for` are those of the others; `delivered` is the last sequence that was delivered.
        """
        if not self._messages.retains_by_acks:
            return NOTHING
        late = (seq for seq in seqs if seq <= delivered and seq not in waited_for)
        return Runs(seq for seq in late if self._messages.next_runs(self._filters, seq, 1).first == seq)

    @property
    def last_seq(self) -> int:
        """The last sequence that the stream has given."""
        return self._messages.last_seq

    @property
    def vanished(self) -> int:
        """Changes when a message of the stream goes for another reason than an ack."""
        return self._messages.vanished

    def exists(self, seq: int) -> bool:
        """True while the stream has the message."""
        return self._messages.is_live(seq)

    def load(self, seq: int) -> StoredLike | None:
        """A message, None when it is gone."""
        return self._messages.load(seq)

    def key(self, seq: int, rule: KeyRule) -> bytes | None:
        """The key that orders a message; None where it has no such token or header, or is gone."""
        found = self._messages.load(seq)
        if found is None:
            return None
        if rule.header:
            return message.get(found.hdr, rule.header.encode())
        tokens = found.subject.split(b".")
        return tokens[rule.token - 1] if rule.token <= len(tokens) else None

    def ts_ns(self, seq: int) -> int:
        """The time of a message; 0 when it is gone."""
        found = self._messages.load(seq)
        return 0 if found is None else found.ts_ns

    def _count_after(self, seq: int) -> int:
        if seq + 1 >= self._resume_seq:
            return self._messages.num_pending(self._filters, seq + 1)
        initial = self._messages.count_live(self._initial, seq)
        return initial + self._messages.num_pending(self._filters, self._resume_seq)
