"""The leader's table of deliveries that wait for an ack, and the queue of those to be delivered again.

A pending message is either waiting (it has a deadline in the heap) or queued for redelivery. Deadlines are monotonic
nanoseconds; heap entries that no longer hold are skipped when they come up, so acks cost no heap operation.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jetraft.store.consumer_state import ConsumerState

NEVER_NS: Final = 2**63 - 1
STALE_MAX: Final = 1024  # heap entries of acknowledged messages that are always tolerated
QUEUED: Final = -1  # the deadline of a message in the redelivery queue


@attrs.define(slots=True)
class Unacked:
    """One pending message."""

    consumer_seq: int  # of its first delivery
    count: int  # deliveries so far
    deadline_ns: int  # QUEUED while it waits for redelivery


@attrs.frozen(kw_only=True, slots=True)
class WaitPolicy:
    """How long to wait for an ack, and how often to deliver."""

    ack_wait_ns: int
    backoff_ns: tuple[int, ...]
    max_deliver: int  # -1: no limit

    def wait_ns(self, count: int) -> int:
        """The wait after the n-th delivery."""
        if not self.backoff_ns:
            return self.ack_wait_ns
        return self.backoff_ns[min(count, len(self.backoff_ns)) - 1]

    def is_exhausted(self, count: int) -> bool:
        """True when a message delivered so often is not delivered again."""
        return 0 < self.max_deliver <= count


class PendingTable:
    """All pending messages of one consumer."""

    def __init__(self, policy: WaitPolicy) -> None:
        self.policy = policy
        self._unacked: dict[int, Unacked] = {}
        self._heap: list[tuple[int, int]] = []
        self._queue: deque[int] = deque()
        self.num_redelivered = 0  # pending messages that were delivered more than once

    @classmethod
    def of_state(cls, state: ConsumerState, policy: WaitPolicy, *, now_ns: int, now_unix_ns: int) -> PendingTable:
        """The table of a new leader: the waits go on where the replicated timestamps say."""
        table = cls(policy)
        for seq, message in state.pending.items():
            wait_ns = policy.wait_ns(message.count)
            left_ns = min(wait_ns, max(0, message.ts_ns + wait_ns - now_unix_ns))
            table._unacked[seq] = Unacked(message.consumer_seq, message.count, 0)
            table.num_redelivered += message.count > 1
            table._wait(seq, now_ns + left_ns)
        return table

    def __len__(self) -> int:
        return len(self._unacked)

    def __contains__(self, seq: int) -> bool:
        return seq in self._unacked

    @property
    def wake_ns(self) -> int:
        """When the next ack wait ends; not later than that."""
        return self._heap[0][0] if self._heap else NEVER_NS

    @property
    def queued(self) -> int:
        """How many wait for redelivery, at most."""
        return len(self._queue)

    def first(self) -> tuple[int, int] | None:
        """(consumer sequence, stream sequence) of the oldest pending message."""
        for seq, unacked in self._unacked.items():
            return unacked.consumer_seq, seq
        return None

    def add(self, seq: int, consumer_seq: int, now_ns: int) -> None:
        """A first delivery."""
        self._unacked[seq] = unacked = Unacked(consumer_seq, 1, 0)
        unacked.deadline_ns = deadline_ns = now_ns + self.policy.wait_ns(1)
        heappush(self._heap, (deadline_ns, seq))
        self._compact()

    def add_many(self, seqs: Sequence[int], first_consumer_seq: int, now_ns: int) -> None:
        """First deliveries with consecutive consumer sequences."""
        deadline_ns = now_ns + self.policy.wait_ns(1)
        unacked, heap = self._unacked, self._heap
        for consumer_seq, seq in enumerate(seqs, first_consumer_seq):
            unacked[seq] = Unacked(consumer_seq, 1, deadline_ns)
            heappush(heap, (deadline_ns, seq))
        self._compact()

    def remove(self, seqs: Iterable[int]) -> list[int]:
        """Acknowledged, terminated or given up; returns those that were pending."""
        removed = []
        for seq in seqs:
            unacked = self._unacked.pop(seq, None)
            if unacked is not None:
                removed.append(seq)
                self.num_redelivered -= unacked.count > 1
        return removed

    def up_to(self, seq: int) -> list[int]:
        """The pending messages up to and including a sequence."""
        found = []
        for pending in self._unacked:
            if pending > seq:
                break
            found.append(pending)
        return found

    def redeliver_at(self, seq: int, at_ns: int) -> None:
        """Negatively acknowledged: deliver again then."""
        if seq in self._unacked:
            self._wait(seq, at_ns)

    def restart_wait(self, seq: int, now_ns: int) -> bool:
        """The work goes on: wait again in full. False when it was not pending."""
        unacked = self._unacked.get(seq)
        if unacked is None:
            return False
        self._wait(seq, now_ns + self.policy.wait_ns(unacked.count))
        return True

    def expire(self, now_ns: int) -> list[int]:
        """Queue for redelivery what waited long enough; return those that were delivered as often as allowed."""
        exhausted = []
        while self._heap and self._heap[0][0] <= now_ns:
            deadline_ns, seq = heappop(self._heap)
            unacked = self._unacked.get(seq)
            if unacked is None or unacked.deadline_ns != deadline_ns:
                continue
            if self.policy.is_exhausted(unacked.count):
                exhausted.append(seq)
                continue
            unacked.deadline_ns = QUEUED
            self._queue.append(seq)
        self.remove(exhausted)
        return exhausted

    def next_redelivery(self) -> int | None:
        """The message to be delivered again next; it stays in the queue."""
        while self._queue:
            unacked = self._unacked.get(self._queue[0])
            if unacked is not None and unacked.deadline_ns == QUEUED:
                return self._queue[0]
            self._queue.popleft()
        return None

    def redelivered(self, seq: int, now_ns: int) -> tuple[int, int]:
        """The head of the queue is delivered again: returns (delivery count, its first consumer sequence)."""
        assert self._queue[0] == seq
        self._queue.popleft()
        unacked = self._unacked[seq]
        unacked.count += 1
        self.num_redelivered += unacked.count == 2  # noqa: PLR2004  (from once to more than once)
        self._wait(seq, now_ns + self.policy.wait_ns(unacked.count))
        return unacked.count, unacked.consumer_seq

    def counts(self, seqs: Sequence[int]) -> list[int]:
        """Delivery counts, 0 for what is not pending."""
        return [unacked.count if (unacked := self._unacked.get(seq)) else 0 for seq in seqs]

    def _wait(self, seq: int, deadline_ns: int) -> None:
        self._unacked[seq].deadline_ns = deadline_ns
        heappush(self._heap, (deadline_ns, seq))
        self._compact()

    def _compact(self) -> None:
        """Drop the heap's entries of acknowledged messages when they are the larger part: it stays within bounds."""
        if len(self._heap) <= STALE_MAX + 2 * len(self._unacked):
            return
        self._heap = [
            (unacked.deadline_ns, seq) for seq, unacked in self._unacked.items() if unacked.deadline_ns != QUEUED
        ]
        heapify(self._heap)
