"""The queues of a group: proposals for the end of the turn, then for their commit, and reads for their round.

Every proposal ends exactly once (rule 25): OK with the result of apply, REFUSED when it was never in the log, UNKNOWN
when leadership was lost after it was. A caller that needs no result may ask to hear of the commit besides, before
apply.
"""

import enum
from collections.abc import Callable

import trio

from jetraft.raft._turn import ProposalQueue
from jetraft.store.model._fifo import Fifo
from jetraft.store.model.ids import GroupId


class Outcome(enum.Enum):
    """How a proposal ended."""

    OK = "ok"  # committed and applied; the result is that of apply
    REFUSED = "refused"  # not the leader: it was never in the log
    UNKNOWN = "unknown"  # leadership was lost: it may be committed or not


class NotLeaderError(Exception):
    """The proposal was refused: this node does not lead the group (now)."""


class OutcomeUnknownError(Exception):
    """Leadership was lost after the proposal went into the log: it may be committed or not."""


Done = Callable[[Outcome, object], None]
Committed = Callable[[], None]


class Proposals(ProposalQueue):
    """The proposals and reads of one group on one node. A turn looks at the public queues, and changes none of them."""

    __slots__ = ()

    @property
    def queued(self) -> int:
        """How many wait for the end of the turn."""
        return len(self.queue)

    @property
    def waiting(self) -> int:
        """How many wait until they are applied."""
        return len(self._waiting)

    def add_waiting(self, index: int, done: Done) -> None:
        """An entry that is in the log already."""
        self._waiting.append((index, done))

    def add_read(self, done: Done) -> None:
        """Keep a read for the end of the turn."""
        self.new_reads.append(done)

    def add_confirmed_read(self, done: Done) -> None:
        """Keep a read for which a majority has spoken already, or that needs none."""
        self.new_confirmed_reads.append(done)

    def begin_confirmed_reads(self, index: int) -> None:
        """Those that were kept wait for this index to be applied, and for nothing else."""
        for done in self.new_confirmed_reads:
            self.confirmed_reads.append((index, done))
        self.new_confirmed_reads.clear()

    def begin_reads(self, read_round: int, index: int) -> None:
        """The reads that were kept wait for this round, which begins now, and for an index to be applied.

        One round serves all reads of a turn, because it begins after each of them has come: what a majority answers
        then proves that no later leader had committed anything before (rule 21). A round that had begun earlier would
        not.
        """
        for done in self.new_reads:
            self.reads.append((read_round, index, done))
        self.new_reads.clear()

    def refuse_queued(self) -> None:
        """This member does not lead."""
        queue, self.queue = self.queue, []
        for _, done, _ in queue:
            if done is not None:
                done(Outcome.REFUSED, None)

    def tell_readers(self, confirmed_round: int, applied_index: int) -> None:
        """A round of contact was confirmed, or more was applied."""
        reads, confirmed = self.reads, self.confirmed_reads
        while confirmed and confirmed[0][0] <= applied_index:
            confirmed.popleft()[1](Outcome.OK, None)
        while reads and reads[0][0] <= confirmed_round and reads[0][1] <= applied_index:
            reads.popleft()[2](Outcome.OK, None)

    def end(self) -> None:
        """Leadership is over: every proposal and read gets its outcome; no commit is announced after this."""
        # Detached first: a callback may add to them.
        waiting, self._waiting = self._waiting, Fifo()
        reads = [*(done for _, _, done in self.reads), *(done for _, done in self.confirmed_reads)]
        reads += [*self.new_reads, *self.new_confirmed_reads]
        self.reads, self.confirmed_reads, self.new_reads, self.new_confirmed_reads = Fifo(), Fifo(), [], []
        self._announced.clear()
        for _, done in waiting:
            # In the log: another leader may commit it, or cut it.
            done(Outcome.UNKNOWN, None)
        for done in reads:
            done(Outcome.REFUSED, None)
        self.refuse_queued()


class Waiter:
    """A task that waits for the end of one proposal or read: `done` is what is handed to the group."""

    __slots__ = ("_finished", "_result", "outcome")

    def __init__(self) -> None:
        self._finished = trio.Event()
        self._result: object = None
        self.outcome: Outcome | None = None  # None until it has ended

    def done(self, outcome: Outcome, result: object) -> None:
        """It has ended."""
        self.outcome, self._result = outcome, result
        self._finished.set()

    async def wait(self) -> tuple[Outcome, object]:
        """The outcome, and the result of apply."""
        await self._finished.wait()
        assert self.outcome is not None
        return self.outcome, self._result


def result_of(outcome: Outcome, result: object, *, group_id: GroupId) -> object:
    """The result of apply. Raises NotLeaderError or OutcomeUnknownError."""
    if outcome is Outcome.REFUSED:
        raise NotLeaderError(f"this node does not lead {group_id}")
    if outcome is Outcome.UNKNOWN:
        raise OutcomeUnknownError(f"leadership of {group_id} was lost before the outcome was known")
    return result
