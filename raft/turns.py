"""A group's part of a turn of the node: receive, step the engine, perform what it wants done, learn and advance.

Events (`step`, `tick`, `peer_up`, `peer_down`) step the engine, and its `Ready` is performed in one place (`_put`).
`learn` and `advance` (raft/_turn.pyx) end the turn: learn what became durable, say what is committed; apply it, tell
the proposers, seal what is queued, let the engine send. Nothing here awaits, or decides what Raft decides.

An unexpected exception of apply stops the group (rule 26), as an error of the log does (rule 7): it takes no further
part, and says so in `failed`. Damage on this disk is none: applying does not fail for it (decision 127).
"""

import logging
from collections.abc import Callable
from typing import Final

from jetraft.raft._turn import DISK_ERRORS, TurnEnd
from jetraft.raft.changes import Change
from jetraft.raft.checkpointing import Checkpointer
from jetraft.raft.engine.acceptor import LogDivergedError
from jetraft.raft.engine.messages import Message, Role
from jetraft.raft.engine.port import Engine
from jetraft.raft.engine.ready import NOTHING, Ready
from jetraft.raft.freshness import Freshness
from jetraft.raft.machine import StateMachine
from jetraft.raft.outbox import RaftOutbox
from jetraft.raft.proposals import Done, Outcome, Proposals
from jetraft.raft.tenure import Tenure
from jetraft.store.model._fifo import Fifo
from jetraft.store.model.histogram import Histogram
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import GroupLog, StoreError

log_ = logging.getLogger(__name__)

ENGINE_ERRORS: Final = (LogDivergedError, *DISK_ERRORS)  # what the engine finds wrong with the log


class GroupStoppedError(Exception):
    """The group was removed from this node."""


class Turns(TurnEnd):
    """The life of one group on one node."""

    def __init__(  # noqa: PLR0913  (what a group is made of)
        self,
        group_id: GroupId,
        *,
        core: Engine,
        log: GroupLog,
        machine: StateMachine,
        checkpointer: Checkpointer,
        applied_index: int,
        now_ns: int,
        mark_dirty: Callable[[], None],
        freshness: Freshness,
        commit_times: Histogram,
    ) -> None:
        self._group_id = group_id
        self._core = core
        self._log = log
        self._reached = log.progress
        self._machine = machine
        self._checkpointer = checkpointer
        self._mark_dirty = mark_dirty
        self.applied_index = applied_index
        self.failed: Exception | None = None
        self.proposals = Proposals()
        self.progress = Change()  # of the applied index, what is durable, the role, `failed`
        self.tenure = Tenure(machine, self.proposals, self.progress, now_ns)
        self.outbox = RaftOutbox()
        self._freshness = freshness
        self._commit_times = commit_times
        self._sealed: Fifo[tuple[int, int]] = Fifo()  # last index and time of what was proposed in a turn
        self._committed = ()  # between `learn` and `advance`: what is to be applied
        self._persisted_token = -1
        self._damage: StoreError | OSError | None = None

    # Events.

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message."""
        if (self.failed is not None or self._reached.failed is not None) and not self.takes_part(now_ns):
            return
        try:
            self._core.step(sender, message, now_ns)
        except ENGINE_ERRORS as error:
            self.fail(error, now_ns)
        self.perform(now_ns)

    def tick(self, now_ns: int) -> None:
        """The deadline passed."""
        if self.takes_part(now_ns):
            self._let(now_ns, self._core.tick)

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A link session began."""
        self._let(now_ns, self._core.peer_up, node)

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """A link session ended."""
        self._let(now_ns, self._core.peer_down, node)

    def _let(self, now_ns: int, event: Callable[..., None], *arguments: object) -> None:
        """Let the engine take an event, as `step` does: an error of it ends this group, and no other."""
        try:
            event(*arguments, now_ns)
        except ENGINE_ERRORS as error:
            self.fail(error, now_ns)
        self.perform(now_ns)

    def perform(self, now_ns: int) -> None:
        """The engine was asked for something: do what it wants done because of that, and let a flush end the turn."""
        if (ready := self._core.take_ready()) is not NOTHING:
            self._put(ready, now_ns)
        self._mark_dirty()

    def _put(self, ready: Ready, now_ns: int) -> None:
        """Do what the engine wants done."""
        self.outbox.put(ready)
        if ready.standing is not None and self.failed is None:  # who has failed has said so already
            self.tenure.observe(ready.standing, now_ns)
            if not self.tenure.is_leader:
                self._sealed.clear()  # another leader may commit what was proposed here

    def takes_part(self, now_ns: int) -> bool:
        """Whether the group works. A log that has failed since the last turn ends it here, before anything is said."""
        if self.failed is None and self._reached.failed is not None:
            self.fail(self._reached.failed, now_ns)
        return self.failed is None

    def stop(self, now_ns: int) -> None:
        """The replica is removed: peers learn it, proposers get UNKNOWN or REFUSED."""
        if self.failed is None:
            self._core.resign(now_ns)
            self.tenure.end()
            self.failed = GroupStoppedError(f"group {self._group_id} was stopped")
            self.progress.notify()
            self._freshness.void()
            self._put(self._core.take_ready(), now_ns)
        self.outbox.take_offer()  # nothing may be fetched for a log that is about to be closed

    def fail(self, error: Exception, now_ns: int) -> None:
        """The log or the state machine is broken: take no part any more (rules 7 and 26)."""
        if self.failed is not None:
            return
        error = self._log.failed or error  # after a failed write every other one is refused because of it
        term = self._core.term
        log_.error("group %s stops at term %d, applied %d: %r", self._group_id, term, self.applied_index, error)
        self._core.resign(now_ns)
        self.tenure.end()
        self.failed = error
        self._freshness.void()
        self.tenure.forget_leader(self._core.term)
        self.progress.notify()
        self._put(self._core.take_ready(), now_ns)
        self._mark_dirty()  # the peers hear of it at the end of the turn, also when the error was found outside of one

    @property
    def is_distrusted(self) -> bool:
        """Whether damage was met that is still to be repaired: no checkpoint may stand for what is applied now."""
        return self._damage is not None

    def distrust(self, error: StoreError | OSError) -> None:
        """A read met damage: the group stops at the end of the turn, and its owner has it repaired.

        Not at once: the reader is in the middle of something, and can still answer with an error. What is proposed
        until then is refused. If it was met while entries were applied, these count as applied, and are applied again
        over the repaired log: the checkpoints are all older.
        """
        self._damage = self._damage or error
        self._mark_dirty()

    # The end of a turn, but for `learn` and `advance`.

    def _answer_reads(self, now_ns: int) -> None:
        """Begin those that are new behind all that was proposed before them; answer those that have what they need.

        A read would be linearizable with what was committed when it came. But a client that has sent something without
        waiting for its ack expects to find it, whichever of its subjects a turn looks at first.
        """
        proposals = self.proposals
        if proposals.new_reads:
            proposals.begin_reads(self._core.begin_read(now_ns), self._log.last_index)
        if proposals.new_confirmed_reads:
            proposals.begin_confirmed_reads(self._log.last_index)
        if proposals.reads or proposals.confirmed_reads:
            proposals.tell_readers(self._core.confirmed_read_round, self.applied_index)

    def transfer(self, to: NodeId | None, now_ns: int) -> bool:
        """Begin to hand over, behind what is queued: that would be refused without an answer at the end of the term."""
        try:
            if self.proposals.queue:
                self._seal_queue(now_ns)
        except DISK_ERRORS as error:
            self.fail(error, now_ns)
        return self.tenure.is_leader and self._core.transfer(to, now_ns)

    # Linearizable reads.

    def followed(self) -> tuple[NodeId, int] | None:
        """The node that leads this group and the term, as this member knows; None if it knows none, or leads itself."""
        core = self._core
        if self.failed is not None or core.leader is None or core.role is Role.LEADER:
            return None
        return core.leader, core.term

    def read(self, done: Done, word: tuple[NodeId, int] | None) -> None:
        """Call `done` when everything committed before now is applied here: a read then is linearizable (rule 21).

        `word` is of a read that came through a member, which has said after the read came that it follows this one in
        that term (`followed`). With the leader's own it is a majority of three: no other one is asked.
        """
        if not self.tenure.is_leader:
            done(Outcome.REFUSED, None)
            return
        if word is not None and self._core.is_majority_with(*word):
            # Not of the next round, which others may join whose reads have come after that word was given.
            self.proposals.add_confirmed_read(done)
        else:
            self.proposals.add_read(done)
        self._mark_dirty()

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was proposed here is on its way."""
        return not self.tenure.is_leader or (not self.proposals.queue and self.applied_index >= self._log.last_index)

    def settle(self, done: Done) -> None:
        """Call `done` when all that was proposed here before is applied. REFUSED: this member does not lead."""
        if self.is_settled:
            done(Outcome.OK if self.tenure.is_leader else Outcome.REFUSED, None)
        else:
            self.proposals.add_confirmed_read(done)
            self._mark_dirty()
