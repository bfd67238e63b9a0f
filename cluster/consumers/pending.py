"""The leader's table of deliveries that wait for an ack, and the queue of those to be delivered again.

A pending message is either waiting (a range with its deadline is in the heap) or queued for redelivery. Deadlines are
monotonic nanoseconds, one for all messages that were delivered together. Acks touch neither heap nor queue: what does
not hold any more is skipped when it comes up.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from jetraft.store.stream._runs import Runs
from jetraft.store.stream._unacked import UnackedTable
from jetraft.store.stream.consumer_state import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.store.model.config import ConsumerConfig
    from jetraft.store.stream.consumer_state import ConsumerState

NEVER_NS: Final = 2**63 - 1
EXPIRED_MAX: Final = (
    5_000  # messages that are queued for redelivery, and looks at what waits or does so no more, in a step
)
ROWS_PER_PART: Final = 64  # of a heap that is made again, for each
PUSHES_PER_PART: Final = 16  # entries that come meanwhile
STALE_MAX: Final = 1024  # heap entries of acknowledged messages that are always tolerated
AT_ONCE: Final = (0, 0, 0)  # an entry of the heap that is due, and of no message
QUEUED: Final = -1  # the deadline of a message in the redelivery queue


@attrs.frozen(kw_only=True, slots=True)
class WaitPolicy:
    """How long to wait for an ack, and how often to deliver."""

    ack_wait_ns: int
    backoff_ns: tuple[int, ...]
    max_deliver: int  # -1: no limit

    @classmethod
    def of(cls, config: ConsumerConfig) -> WaitPolicy:
        """The part of a configuration that decides about redelivery."""
        return cls(ack_wait_ns=config.ack_wait or NEVER_NS, backoff_ns=config.backoff, max_deliver=config.max_deliver)

    def wait_ns(self, count: int) -> int:
        """The wait after the n-th delivery."""
        if not self.backoff_ns:
            return self.ack_wait_ns
        return self.backoff_ns[min(count, len(self.backoff_ns)) - 1]

    @property
    def waits_ns(self) -> tuple[int, ...]:
        """The waits after the first, second, ... delivery; the last one is that of all later ones."""
        return self.backoff_ns or (self.ack_wait_ns,)

    def is_exhausted(self, count: int) -> bool:
        """True when a message delivered so often is not delivered again."""
        return 0 < self.max_deliver <= count


class Delivery(NamedTuple):
    """A message that waits for an ack."""

    seq: int
    consumer_seq: int  # of its first delivery
    deliveries: int


class PendingTable:
    """All pending messages of one consumer."""

    def __init__(self, policy: WaitPolicy) -> None:
        self.policy = policy
        self._unacked = UnackedTable()  # times are deadlines
        self._heap: list[tuple[int, int, int]] = []  # (deadline, first, last): those between that still have it
        self._queue: deque[int] = deque()
        self._renewed: list[tuple[int, int, int]] | None = None  # the next heap, while it is made
        self._renewed_upto = 0  # the sequence up to which it has what waits
        self._renewal_pushes = 0
        self._must_renew = False  # by steps, because the heap in use lacks what waits
        self._left: list[tuple[int, int, int]] = []  # what is left of the heap before, which is freed by parts too

    @classmethod
    def of_state(cls, state: ConsumerState, policy: WaitPolicy, *, now_ns: int, now_unix_ns: int) -> PendingTable:
        """The table of a new leader: the waits go on where the replicated timestamps say."""
        table = cls(policy)
        table.take_over(state, now_ns=now_ns, now_unix_ns=now_unix_ns)
        return table

    def take_over(self, state: ConsumerState, *, now_ns: int, now_unix_ns: int) -> None:
        """Begin where the replicated state is; the table is empty."""
        self._unacked.take_over(state.pending, self.policy.waits_ns, now_ns, now_unix_ns)
        self._rebuild()

    def arrange(self) -> None:
        """Called before each look at what may be sent: where messages are sent in an order of their own."""

    def __len__(self) -> int:
        return len(self._unacked)

    def __contains__(self, seq: int) -> bool:
        return seq in self._unacked

    @property
    def num_redelivered(self) -> int:
        """Pending messages that were delivered more than once."""
        return self._unacked.num_redelivered

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
        return self._unacked.first()

    def add(self, seqs: Runs, first_consumer_seq: int, now_ns: int) -> None:
        """First deliveries with consecutive consumer sequences."""
        deadline_ns = self._deadline_ns(1, now_ns)
        self._unacked.add(seqs, first_consumer_seq, deadline_ns)
        self._wait(deadline_ns, seqs.first, seqs.last)

    def remove(self, seqs: Runs) -> Runs:
        """Acknowledged, terminated or given up; returns those that were pending."""
        return self._unacked.remove(seqs)

    def remove_up_to(self, seq: int) -> None:
        """Everything up to and including a sequence is acknowledged, or gone."""
        self._unacked.remove_up_to(seq)

    @property
    def is_awaiting(self) -> bool:
        """Whether the wait for an ack goes on for any; costs a look at each."""
        return self._unacked.has_time()

    def missing(
        self, exists: Callable[[int], bool], after_seq: int, count_max: int
    ) -> tuple[list[Delivery], int | None]:
        """Those whose message is gone, of so many above a sequence; and where to go on, if anywhere."""
        rows = self._unacked.rows_after(after_seq, count_max)
        found = [Delivery(seq, consumer_seq, count) for seq, consumer_seq, _, count in rows if not exists(seq)]
        return found, rows[-1][0] if len(rows) == count_max else None

    def follow(self, policy: WaitPolicy) -> None:
        """Wait as a changed configuration says, counted from the delivery, the progress or the end of a delay."""
        before, self.policy = self.policy, policy
        if (before.ack_wait_ns, before.backoff_ns) == (policy.ack_wait_ns, policy.backoff_ns):
            return
        self._unacked.move(before.waits_ns, policy.waits_ns)
        self._rebuild()

    def redeliver_at(self, seq: int, at_ns: int) -> None:
        """Negatively acknowledged: deliver again then."""
        row = self._unacked.get(seq)
        if row is not None:
            at_ns = min(at_ns, NEVER_NS)
            self._unacked.set(seq, at_ns, row[2])
            self._wait(at_ns, seq, seq)

    def restart_wait(self, seq: int, now_ns: int) -> bool:
        """The work goes on: wait again in full. False when it was not pending."""
        row = self._unacked.get(seq)
        if row is not None:
            self.redeliver_at(seq, self._deadline_ns(row[2], now_ns))
        return row is not None

    def expire(self, now_ns: int) -> Runs:
        """Queue for redelivery what waited long enough; return those that were delivered as often as allowed.

        EXPIRED_MAX at a time: `wake_ns` says that more is due.
        """
        if self._must_renew:
            del self._left[-EXPIRED_MAX:]
            self._renew(EXPIRED_MAX)
        exhausted: list[int] = []
        left = EXPIRED_MAX
        while left > 0 and self._heap and self._heap[0][0] <= now_ns:
            deadline_ns, first, last = heappop(self._heap)
            due = self._unacked.with_at(first, last, deadline_ns, left)
            if len(due) == left and due.last < last:
                heappush(self._heap, (deadline_ns, due.last + 1, last))
            left -= max(1, len(due))
            if self.policy.max_deliver > 0:
                exhausted += [seq for seq in due if self.policy.is_exhausted(self.count(seq))]
            self._unacked.set_at(due, QUEUED)
            self._queue.extend(due)
        if self._must_renew:
            heappush(self._heap, AT_ONCE)
        return self.remove(Runs(sorted(exhausted))) if exhausted else NOTHING

    def next_redelivery(self) -> int | None:
        """The message to be delivered again next; it stays in the queue."""
        while self._queue:
            row = self._unacked.get(self._queue[0])
            if row is not None and row[1] == QUEUED:
                return self._queue[0]
            self._queue.popleft()
        return None

    def redelivered(self, seq: int, now_ns: int) -> int:
        """The head of the queue is delivered again: returns its delivery count."""
        assert self._queue[0] == seq
        self._queue.popleft()
        count = self.count(seq) + 1
        self._start_wait(seq, count, now_ns)
        return count

    def _start_wait(self, seq: int, count: int, now_ns: int) -> None:
        deadline_ns = self._deadline_ns(count, now_ns)
        self._unacked.set(seq, deadline_ns, count)
        self._wait(deadline_ns, seq, seq)

    def is_newest(self, seq: int, consumer_seq: int, count: int) -> bool:
        """Whether a message waits for an ack, and of this delivery. The consumer sequence kept is the first one's."""
        row = self._unacked.get(seq)
        return row is not None and row[2] == count and (count > 1 or row[0] == consumer_seq)

    def count(self, seq: int) -> int:
        """Deliveries of a message so far, 0 when it is not pending."""
        row = self._unacked.get(seq)
        return 0 if row is None else row[2]

    def last_delivery(self, seq: int, now_ns: int) -> tuple[int, int, int] | None:
        """(consumer sequence of the first delivery, ns since the last one, deliveries) of a pending message, else None.

        Reckoned from when the message is due: after a negative ack that is another moment, and of one that is due
        already the wait is all that is known.
        """
        row = self._unacked.get(seq)
        if row is None:
            return None
        consumer_seq, deadline_ns, count = row
        wait_ns = self.policy.wait_ns(count)
        elapsed_ns = wait_ns if deadline_ns < 0 else max(0, now_ns - (deadline_ns - wait_ns))
        return consumer_seq, elapsed_ns, count

    def _deadline_ns(self, count: int, now_ns: int) -> int:
        """When the wait after the n-th delivery ends."""
        return min(now_ns + self.policy.wait_ns(count), NEVER_NS)

    def _wait(self, deadline_ns: int, first: int, last: int) -> None:
        """Remember to look at these then; forget what does not hold any more when that is the larger part.

        For that another heap grows beside the one in use, by some rows at a time: 300,000 at once took 0.5 s.
        """
        heappush(self._heap, (deadline_ns, first, last))
        if self._left:
            del self._left[-ROWS_PER_PART:]
        if self._renewed is not None:
            if first <= self._renewed_upto:  # the others are found there when it is their turn
                heappush(self._renewed, (deadline_ns, first, last))
            self._renewal_pushes += 1
            if self._renewal_pushes % PUSHES_PER_PART == 0 and not self._must_renew:
                self._renew(ROWS_PER_PART)
        elif len(self._heap) > STALE_MAX + 2 * len(self._unacked):
            self._renewed, self._renewed_upto = [], 0
            self._renew(ROWS_PER_PART)

    def _renew(self, rows: int) -> None:
        """Add so many of what waits to the new heap, which takes the place of the old one when all is in it."""
        assert self._renewed is not None
        waits, upto = self._unacked.waits_after(self._renewed_upto, rows)
        for wait in waits:
            heappush(self._renewed, wait)
        if upto is None:
            self._left = self._heap
            self._heap, self._renewed, self._must_renew = self._renewed, None, False
        else:
            self._renewed_upto = upto

    def _rebuild(self) -> None:
        """The heap again, with the waiting messages only; neighbours with one deadline share an entry.

        EXPIRED_MAX rows in each step, which AT_ONCE asks for; until their turn comes the others wait.
        """
        self._left, self._heap = self._heap, []
        self._renewed, self._renewed_upto, self._must_renew = [], 0, True
        self._renew(EXPIRED_MAX)
        if self._must_renew:
            self._heap.append(AT_ONCE)
