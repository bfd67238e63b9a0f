"""Deliveries in the order of their keys (`jetraft.key_order`): of each key one message is in flight at a time. Pure.

A consumer with the key takes messages from the stream in order, as always, and each becomes pending; but it is sent
only when no earlier message of its key is pending. Until then it is held, with a mark in the place of its deadline.
When the message of a key is settled the next one is ready, and ready messages go in the order in which they became so:
a key with many messages waits as long as one with few.

Which messages were sent need not be in the replicated state: of each key only the lowest that is pending can have been,
so a new leader holds the others. (The lowest may have been about to leave. It counts as sent, and comes after its ack
wait.) How far a consumer looks ahead is bounded by `max_ack_pending`, in which held messages count.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from jetraft.cluster.consumers.pending import PendingTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jetraft.cluster.consumers.pending import WaitPolicy
    from jetraft.store.stream._runs import Runs

HELD: Final = -2  # the deadline of a message that was not sent yet


class KeyedPending(PendingTable):
    """See the module."""

    def __init__(self, policy: WaitPolicy, key_of: Callable[[int], bytes | None]) -> None:
        """`key_of` says a message's key, None for one without; those have no order. It may raise StoreCorrupt."""
        super().__init__(policy)
        self._key_of = key_of
        self._keys: dict[int, bytes] = {}  # of pending messages
        self._first: dict[bytes, int] = {}  # of each key the message that is in flight or ready
        self._behind: dict[bytes, deque[int]] = {}  # the others of the key, in order; some may be settled
        self._ready: deque[int] = deque()
        self._is_arranged = False

    @property
    def queued(self) -> int:
        """How many may be sent now, at most."""
        return super().queued + len(self._ready)

    def arrange(self) -> None:
        """Hold what an earlier leader has not sent. Raises StoreCorrupt."""
        if self._is_arranged:
            return
        for seq, _, _, count in self._unacked.rows():
            key = self._key_of(seq)
            if key is not None and not self._takes_lane(seq, key):
                self._unacked.set(seq, HELD, count)
        self._is_arranged = True

    def add(self, seqs: Runs, first_consumer_seq: int, now_ns: int) -> None:  # noqa: ARG002  (nothing waits yet)
        """Taken from the stream: to be sent when nothing of the same key is in flight. Raises StoreCorrupt."""
        keys = [self._key_of(seq) for seq in seqs]
        self._unacked.add(seqs, first_consumer_seq, HELD)
        for seq, key in zip(seqs, keys, strict=True):
            if key is None or self._takes_lane(seq, key):
                self._ready.append(seq)

    def remove(self, seqs: Runs) -> Runs:
        """As the base class; what stands behind these is ready."""
        done = super().remove(seqs)
        self._free(done)
        return done

    def remove_up_to(self, seq: int) -> None:
        """The same."""
        self._free(self._unacked.remove_up_to(seq))

    def redeliver_at(self, seq: int, at_ns: int) -> None:
        """As the base class, but of a message that was sent."""
        row = self._unacked.get(seq)
        if row is not None and row[1] != HELD:
            super().redeliver_at(seq, at_ns)

    def next_redelivery(self) -> int | None:
        """The message to be sent next: one that was sent before, or one that is ready."""
        found = super().next_redelivery()
        if found is not None:
            return found
        while self._ready:
            if self._is_held(self._ready[0]):
                return self._ready[0]
            self._ready.popleft()
        return None

    def redelivered(self, seq: int, now_ns: int) -> int:
        """The message is sent: returns how often it was."""
        if not self._is_held(seq):
            return super().redelivered(seq, now_ns)
        assert self._ready[0] == seq
        self._ready.popleft()
        self._start_wait(seq, self.count(seq), now_ns)
        return self.count(seq)

    def is_newest(self, seq: int, consumer_seq: int, count: int) -> bool:  # noqa: ARG002  (see below)
        """As the base class. A first delivery has another consumer sequence than the taking, which is what is kept."""
        row = self._unacked.get(seq)
        return row is not None and row[1] != HELD and row[2] == count

    def _is_held(self, seq: int) -> bool:
        row = self._unacked.get(seq)
        return row is not None and row[1] == HELD

    def _takes_lane(self, seq: int, key: bytes) -> bool:
        """True when the message is the first of its key; else it stands behind the others."""
        self._keys[seq] = key
        if self._first.setdefault(key, seq) == seq:
            return True
        self._behind.setdefault(key, deque()).append(seq)
        return False

    def _free(self, settled: Iterable[int]) -> None:
        for seq in settled:
            key = self._keys.pop(seq, None)
            if key is not None and self._first.get(key) == seq:
                self._follow(key)

    def _follow(self, key: bytes) -> None:
        """The first of a key is settled: the next one that still waits is ready."""
        behind = self._behind.get(key, deque())
        while behind:
            seq = behind.popleft()
            if seq in self._keys:
                self._first[key] = seq
                self._ready.append(seq)
                return
        self._behind.pop(key, None)
        del self._first[key]
