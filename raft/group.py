"""One group on one node, as others see it: what they read of it, what they ask of it, and its turns.

Between turns proposals queue up. A turn of the node, events and all, is `Turns` (raft/turns.py), which
the manager drives; then it hands the log to the writer. Nothing in a turn awaits.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from jetraft.raft._turn import DISK_ERRORS
from jetraft.raft.checkpointing import Unsaved
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Message, Resigned, TermNotice
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group_parts import make_parts
from jetraft.raft.group_spec import GroupSetting, GroupSpec, GroupStatistics, ReplicaLag, StandsBack, lags_of
from jetraft.raft.handover import Handover
from jetraft.raft.machine import StateMachine
from jetraft.raft.proposals import Committed, Done, NotLeaderError, Outcome, Waiter, result_of
from jetraft.raft.replay import Replayed
from jetraft.store.disk.io import run_blocking
from jetraft.store.model.clock import Clock
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Checkpoint, GroupLog, StoreError

if TYPE_CHECKING:
    from jetraft.raft.freshness import Freshness
    from jetraft.store.model.files.manifest import Manifest

READ_WAIT_S = 1.5  # a leader out of contact steps down after a second


class Group:
    """See the module. Created by `Manager.create`."""

    def __init__(  # noqa: PLR0913  (what a group is made of)
        self,
        spec: GroupSpec,
        setting: GroupSetting,
        *,
        log: GroupLog,
        machine: StateMachine,
        clock: Clock,
        mark_dirty: Callable[["Group"], None],
        recovered: Replayed,
        now_ns: int,
        freshness: "Freshness",
    ) -> None:
        """`recovered` is what `recover` found in the log, with which it restored the machine; `start` comes next."""
        self._clock = clock
        self.group_id = spec.group_id
        self.group_name = spec.group_id.encode()
        self.incarnation = spec.incarnation
        self.node_id = setting.node_id
        self.log = log
        self.machine = machine
        self.scheduled_ns: int | None = None  # the manager's: the entry in its deadline heap
        self.handover = Handover(log)  # the manager writes the log by it
        self.configurations = recovered.configurations
        self._mark_dirty = partial(mark_dirty, self)
        self._freshness = freshness
        self._stands_back = StandsBack(0)
        parts = make_parts(
            spec,
            setting,
            recovered,
            log=log,
            machine=machine,
            mark_dirty=self._mark_dirty,
            now_ns=now_ns,
            freshness=freshness,
        )
        self._checkpointer = parts.checkpointer
        self.core = parts.core
        self.turns = parts.turns

    def start(self, now_ns: int) -> None:
        """Take part: hear what becomes durable, stand for election or wait for a leader."""
        self.log.on_durable = self._mark_dirty
        self.core.start(now_ns)
        self.turns.perform(now_ns)

    # What others read.

    @property
    def term(self) -> int:
        """The current term."""
        return self.core.term

    @property
    def leader(self) -> NodeId | None:
        """The leader of the current term, when known."""
        return self.turns.tenure.leader

    @property
    def leader_since_ns(self) -> int:
        """Since when, on the monotonic clock, that is the known leader."""
        return self.turns.tenure.leader_since_ns

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, and its state is complete."""
        return self.turns.tenure.is_leader

    @property
    def applied_index(self) -> int:
        """The highest index that the state machine has applied."""
        return self.turns.applied_index

    @property
    def readable_until_ns(self) -> int:
        """Until when (mono) what is applied here may be read as no older than STALENESS_MAX_NS: `Freshness`.

        0 before this member has had, once, all that its leader had committed.
        """
        return self._freshness.until_ns

    @property
    def failed(self) -> Exception | None:
        """Why this group takes no part any more; None while it does."""
        return self.turns.failed

    @property
    def commit_index(self) -> int:
        """The highest index known to be committed."""
        return self.core.commit_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self.core.configuration

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Voters and learners."""
        return self.core.configuration.members

    @property
    def behind_entries(self) -> int | None:
        """How many entries that are committed, as the leader says in this link session, are not applied here.

        None when no leader is heard, or none that knows: one whose state is not complete yet tells nothing.
        """
        if self.is_leader:  # its state is complete
            return 0
        told_index = self.core.told_commit_index
        return max(0, told_index - self.applied_index) if told_index else None

    @property
    def votes(self) -> bool:
        """Whether this member is a voter, and was one before a change of others that is not committed yet."""
        committed = self.configurations.at(self.core.commit_index)
        return self.node_id in self.configuration.voters and self.node_id in committed.voters

    @property
    def is_voter(self) -> bool:
        """Whether this member counts for a majority, in the configuration in force."""
        return self.node_id in self.configuration.voters

    @property
    def is_starved(self) -> bool:
        """Whether the log waits because this process has too many files open."""
        return self.log.is_starved

    @property
    def members_may_change(self) -> bool:
        """Whether this node's engine can change the members of a group at all."""
        return self.core.members_may_change

    @property
    def configuration_is_committed(self) -> bool:
        """Whether the configuration in force is committed, so that no leader can roll it back."""
        return self.configurations.current_index <= self.core.commit_index

    @property
    def deadline_ns(self) -> int | None:
        """When `tick` is due."""
        return None if self.turns.failed is not None else self.core.deadline_ns

    def replica_lag(self) -> list[ReplicaLag]:
        """The other members as the leader sees them; empty elsewhere."""
        core = self.core
        return lags_of(core.peer_progress(), core.commit_index, self.log.last_index, self._clock.mono_ns())

    def statistics(self) -> GroupStatistics:
        """Figures for monitoring and tests."""
        return GroupStatistics(
            group_id=self.group_id,
            role=self.core.role.value,
            term=self.core.term,
            leader=self.leader,
            members=self.members,
            voters=self.core.configuration.voters,
            commit_index=self.core.commit_index,
            applied_index=self.applied_index,
            last_index=self.log.last_index,
            durable_index=self.log.durable_index,
            proposals_queued=self.turns.proposals.queued,
            proposals_waiting=self.turns.proposals.waiting,
            elections_won=self.turns.tenure.elections_won,
            failed=None if self.failed is None else str(self.failed),
        )

    def unsaved(self) -> Unsaved:
        """The entries applied since the newest checkpoint."""
        return self._checkpointer.unsaved()

    # What others ask for.

    def propose(self, proposal: Proposal, done: Done | None = None, *, committed: Committed | None = None) -> None:
        """Queue one entry until the end of the turn. `done(outcome, result of apply)` is called exactly once, later.

        `committed` is called in the turn in which the entry is applied, before that: what it sends is on its way while
        this node applies. It is not called when leadership is lost first.
        """
        proposals = self.turns.proposals
        self.handover.note_proposal(is_awaited=proposal.is_awaited, is_first=not proposals.queue)
        proposals.add(proposal, done, committed)
        self._mark_dirty()

    async def propose_and_wait(self, proposal: Proposal) -> object:
        """The result of apply. Raises NotLeaderError or OutcomeUnknownError; waits as long as the group does."""
        waiter = Waiter()
        self.propose(proposal, waiter.done)
        return result_of(*await waiter.wait(), group_id=self.group_id)

    async def wait_applied(self, index: int) -> None:
        """Return when everything up to this index is applied here, or the group has ended (`failed`)."""
        await self.turns.progress.until(lambda: self.applied_index >= index or self.failed is not None)

    async def wait_durable(self, token: int) -> None:
        """Return when what the log had when it gave this token is on disk, or the group has ended."""
        await self.turns.progress.until(lambda: self.log.durable_token >= token or self.failed is not None)

    async def wait_follower(self) -> None:
        """Return when this member does not lead."""
        await self.turns.progress.until(lambda: not self.is_leader)

    def followed(self) -> tuple[NodeId, int] | None:
        """Whom this member follows: see `Turns.followed`."""
        return self.turns.followed()

    def read_barrier(self, done: Done, *, word: tuple[NodeId, int] | None = None) -> None:
        """Call `done` when a read here is linearizable, and sees what was proposed here: see `Turns.read`."""
        self.turns.read(done, word)

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was proposed here is on its way."""
        return self.turns.is_settled

    def settle(self, done: Done) -> None:
        """Call `done` when what was proposed here is applied: see `Turns.settle`."""
        self.turns.settle(done)

    async def settled(self) -> None:
        """Return when what was proposed here is applied, or this member leads no more; READ_WAIT_S at most."""
        if not self.is_settled:
            waiter = Waiter()
            self.settle(waiter.done)
            with trio.move_on_after(READ_WAIT_S):
                await waiter.wait()

    async def confirm_leadership(self) -> None:
        """Return when everything taken before the call is applied here (`read_barrier`). Raises NotLeaderError."""
        waiter = Waiter()
        self.read_barrier(waiter.done)
        with trio.move_on_after(READ_WAIT_S):
            await waiter.wait()
        if waiter.outcome is not Outcome.OK:
            raise NotLeaderError(f"this node cannot say whether it still leads {self.group_id}")

    def transfer_leadership(self, to: NodeId | None) -> bool:
        """Hand leadership to `to`, or to the most advanced voter. Returns whether a transfer has begun."""
        self._mark_dirty()
        return self.turns.transfer(to, self._clock.mono_ns())

    def prefer_others(self, why: StandsBack, *, wanted: bool) -> None:
        """Let other members stand first when a leader is looked for, as long as there is a reason."""
        self._stands_back = self._stands_back | why if wanted else self._stands_back & ~why
        self.core.reluctant = bool(self._stands_back)

    def change_members(self, configuration: Configuration, done: Done | None = None) -> None:
        """Change the members by one voter, or the learners. Raises MembershipChangeRefusedError."""
        self._mark_dirty()  # also when it is refused: the entry that has to be committed first was appended then
        now_ns = self._clock.mono_ns()
        index = self.core.change_members(configuration, now_ns)
        self.turns.perform(now_ns)
        if done is not None:
            self.turns.proposals.add_waiting(index, done)

    def outlive(self, configuration: Configuration, term: int) -> None:
        """Lead alone from now on: too few others remember this group (raft/recovery/survivor.py)."""
        now_ns = self._clock.mono_ns()
        self.core.outlive(configuration, term, now_ns)
        self.turns.perform(now_ns)

    def has_no_replica(self, node: NodeId) -> None:
        """A node that asks to be admitted does not lead, and holds nothing, whatever it said before."""
        self.step(node, Resigned(term=self.term), self._clock.mono_ns())

    def promise(self, term: int) -> int:
        """Hear no leader below a term (raft/recovery/repair.py). Returns the durably promised term, else 0."""
        now_ns = self._clock.mono_ns()
        if term > self.term:
            self.step(self.node_id, TermNotice(term=term), now_ns)
        return self.log.hard_state.term if self.log.durable_token >= self.log.hard_state_token else 0

    def forget_member(self, node: NodeId) -> None:
        """A member that does not vote has lost its log: follow it from the beginning."""
        self.core.forget_member(node)
        self._mark_dirty()

    def checkpoint(self, *, replaces_older: bool = False) -> None:
        """Checkpoint and trim now, after a purge; with `replaces_older` all that an older checkpoint holds too."""
        now_ns = self._clock.mono_ns()
        checkpointer = self._checkpointer
        if not self.turns.takes_part(now_ns) or self.turns.is_distrusted or checkpointer.is_held(now_ns):
            return
        if self.applied_index > checkpointer.index or (replaces_older and checkpointer.has_older):
            try:
                checkpointer.save(self.applied_index, now_ns)
            except DISK_ERRORS as error:
                self.fail(error, now_ns)
            self._mark_dirty()

    def renew_checkpoint(self) -> None:
        """Checkpoint now, also where the newest one is of the same entry: a file of one is damaged."""
        now_ns = self._clock.mono_ns()
        if not self.turns.takes_part(now_ns) or self.turns.is_distrusted or not self.applied_index:
            return
        try:
            self._checkpointer.save(self.applied_index, now_ns)
        except DISK_ERRORS as error:
            self.fail(error, now_ns)
        self._mark_dirty()

    def note_floor(self) -> None:
        """Have it written down apart from the log how far it is durable."""
        if self.failed is None:
            self.log.note_floor()

    def change_blocks(self, change: Callable[[], int]) -> int:
        """Let the log's blocks be exchanged or dropped, and return what `change` returns.

        0 without having called it while a peer fetches them (rule 36) or this group does not take part. What it leaves
        to be written goes with the next flush.
        """
        now_ns = self._clock.mono_ns()
        if not self.turns.takes_part(now_ns) or self._checkpointer.is_held(now_ns):
            return 0
        changed = change()
        self._mark_dirty()
        return changed

    # Events that come from elsewhere than the manager, which drives `turns` itself.

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message."""
        self.turns.step(sender, message, now_ns)

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A link session began."""
        self.turns.peer_up(node, now_ns)

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """A link session ended."""
        self.turns.peer_down(node, now_ns)

    def fail(self, error: Exception, now_ns: int) -> None:
        """The log or the state machine is broken: take no part any more (rules 7 and 26)."""
        self.turns.fail(error, now_ns)

    def distrust(self, error: StoreError | OSError) -> None:
        """A read met damage: the group stops at the end of the turn, and its owner repairs it."""
        self.turns.distrust(error)

    # Snapshots.

    def hold_checkpoint_until(self, until_ns: int) -> None:
        """A peer fetches the newest checkpoint: take no other, and trim nothing, until then (rule 36)."""
        self._checkpointer.hold_until(until_ns)

    def snapshot(self) -> "tuple[Manifest, Checkpoint] | None":
        """The offer to a peer that is behind the log: the newest durable checkpoint, and the blocks it needs."""
        return self._checkpointer.newest()

    async def read_snapshot(self) -> "tuple[Manifest, Checkpoint] | None":
        """The same, with the checkpoint read in a thread: its state may be large. Nothing may be trimmed meanwhile."""
        checkpoint = await run_blocking(self.log.checkpoint_reader())
        return None if checkpoint is None else (self._checkpointer.manifest_of(checkpoint), checkpoint)
