"""One group on one node: engine, log and state machine, and the proposals that wait for their outcome.

Everything happens inside a turn of the node. Between turns proposals queue up; `learn` and `advance`, called by the
manager's flush, are the whole life of a group: learn what became durable, say what is committed; apply it, tell the
proposers, seal what is queued, let the engine send. Then the manager hands the log to the writer. Nothing here awaits.

An unexpected exception of apply stops the group (rule 26), as an error of the log does (rule 7): it takes no further
part, and says so in `failed`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from jetraft.raft.acceptor import LogDivergedError
from jetraft.raft.checkpointing import Checkpointer
from jetraft.raft.engine import CoreSetup, Engine, Message, Proposal, Resigned, Role, TermNotice
from jetraft.raft.group_spec import GroupSetting, GroupSpec, GroupStatistics, ReplicaLag, lags_of
from jetraft.raft.machine import StateMachine, apply_entries
from jetraft.raft.membership import Configuration
from jetraft.raft.proposals import Committed, Done, NotLeaderError, Outcome, Proposals, result_of
from jetraft.raft.recovery import recover
from jetraft.store.io import run_blocking
from jetraft.store.model.clock import Clock
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Checkpoint, Entry, GroupLog, StoreCorrupt, StoreError

if TYPE_CHECKING:
    from jetraft.store.snapshot import Manifest

log_ = logging.getLogger(__name__)

# What a bad disk answers. It ends this group and no other: the owner opens the log again, and has it repaired.
DISK_ERRORS: Final = (StoreError, OSError)
APPLY_BYTES_MAX = 1 << 20  # applied in one go; a replay at start is cut into turns of some milliseconds
READ_WAIT_S = 1.5  # a leader out of contact steps down after a second
BLOCKING_BYTES_MAX: Final = 128 << 10  # more than this takes longer to write than a thread takes to wake


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
    ) -> None:
        now_ns = clock.mono_ns()
        self._clock = clock
        self.group_id = spec.group_id
        self.group_name = spec.group_id.encode()
        self.incarnation = spec.incarnation
        self.node_id = setting.node_id
        self.log = log
        self.machine = machine
        self.failed: Exception | None = None
        self.leader: NodeId | None = None
        self.leader_since_ns = now_ns
        self.is_leader = False
        self.scheduled_ns: int | None = None  # the manager's: the entry in its deadline heap
        self._mark_dirty = mark_dirty
        self._proposals = Proposals()
        self._committed: Sequence[Entry] = ()  # between `learn` and `advance`: what is to be applied
        self._term_led = 0
        self._elections_won = 0
        self._submitted_token = -1
        self._is_awaited = True  # of what is queued or not yet handed to the writer, somebody waits for something
        self._persisted_token = -1
        self._damage: StoreCorrupt | OSError | None = None
        recovered = recover(log, machine, Configuration(voters=spec.members))
        self.applied_index = recovered.applied_index
        self._configurations = recovered.configurations
        self._checkpointer = Checkpointer(
            setting.checkpoints,
            log=log,
            machine=machine,
            configurations=recovered.configurations,
            index=recovered.applied_index,
            state_bytes=recovered.state_bytes,
            term=recovered.checkpoint_term,
        )
        setup = CoreSetup(
            node_id=setting.node_id,
            incarnation=spec.incarnation,
            seal=setting.seal,
            rng=setting.rng,
            timing=setting.timing,
            limits=setting.limits,
            eager=spec.preferred_leader == setting.node_id,
            tempo=setting.tempo,
        )
        self.core: Engine = setting.engine(
            setup,
            log=log,
            configurations=recovered.configurations,
            commit_index=recovered.applied_index,
            snapshot_offer=self._checkpointer.offer,
        )
        log.on_durable = self._on_durable
        self.core.start(now_ns)

    # What others read.

    @property
    def term(self) -> int:
        """The current term."""
        return self.core.term

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
        committed = self._configurations.at(self.core.commit_index)
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
        """Whether nobody can roll back the configuration in force."""
        return self._configurations.current_index <= self.core.commit_index

    @property
    def deadline_ns(self) -> int | None:
        """When `tick` is due."""
        return None if self.failed is not None else self.core.deadline_ns

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
            proposals_queued=self._proposals.queued,
            proposals_waiting=self._proposals.waiting,
            elections_won=self._elections_won,
            failed=None if self.failed is None else str(self.failed),
        )

    # What others ask for.

    def propose(self, proposal: Proposal, done: Done | None = None, *, committed: Committed | None = None) -> None:
        """Queue one entry until the end of the turn. `done(outcome, result of apply)` is called exactly once, later.

        `committed` is called in the turn in which the entry is applied, before that: what it sends is on its way while
        this node applies. It is not called when leadership is lost first.
        """
        if proposal.is_awaited:
            self._is_awaited = True
        elif not self._proposals.queued and not self.has_unwritten():
            self._is_awaited = False
        self._proposals.add(proposal, done, committed)
        self._mark_dirty(self)

    async def propose_and_wait(self, proposal: Proposal) -> object:
        """The result of apply. Raises NotLeaderError or OutcomeUnknownError; waits as long as the group does."""
        finished = trio.Event()
        ended: list[tuple[Outcome, object]] = []

        def done(outcome: Outcome, result: object) -> None:
            ended.append((outcome, result))
            finished.set()

        self.propose(proposal, done)
        await finished.wait()
        return result_of(*ended[0], group_id=self.group_id)

    def read_barrier(self, done: Done) -> None:
        """Call `done` when everything committed before now is applied here: a read then is linearizable (rule 21)."""
        if not self.is_leader:
            done(Outcome.REFUSED, None)
            return
        self._proposals.add_read(self.core.begin_read(), self.core.commit_index, done)
        self._mark_dirty(self)

    async def confirm_leadership(self) -> None:
        """Return when everything committed before the call is applied here (`read_barrier`). Raises NotLeaderError."""
        finished = trio.Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome, _result: object) -> None:
            outcomes.append(outcome)
            finished.set()

        self.read_barrier(done)
        with trio.move_on_after(READ_WAIT_S):
            await finished.wait()
        if outcomes != [Outcome.OK]:
            raise NotLeaderError(f"this node cannot say whether it still leads {self.group_id}")

    def transfer_leadership(self, to: NodeId | None) -> bool:
        """Hand leadership to `to`, or to the most advanced voter. Returns whether a transfer has begun."""
        self._mark_dirty(self)
        return self.is_leader and self.core.transfer(to, self._clock.mono_ns())

    def prefer_others(self, *, wanted: bool) -> None:
        """Let other members stand first when a leader is looked for: this one could not do what a leader should."""
        self.core.reluctant = wanted

    def change_members(self, configuration: Configuration, done: Done | None = None) -> None:
        """Change the members by one voter, or the learners. Raises MembershipChangeRefusedError."""
        self._mark_dirty(self)  # also when it is refused: the entry that has to be committed first was appended then
        index = self.core.change_members(configuration, self._clock.mono_ns())
        if done is not None:
            self._proposals.add_waiting(index, done)

    def outlive(self, configuration: Configuration, term: int) -> None:
        """Lead alone from now on: too few others remember this group (raft/survivor.py)."""
        self.core.outlive(configuration, term, self._clock.mono_ns())
        self._mark_dirty(self)

    def has_no_replica(self, node: NodeId) -> None:
        """A node that asks to be admitted does not lead, and holds nothing, whatever it said before."""
        self.step(node, Resigned(term=self.term), self._clock.mono_ns())

    def promise(self, term: int) -> int:
        """Hear no leader below a term (raft/repair.py). Returns the durably promised one, 0 while that is not sure."""
        now_ns = self._clock.mono_ns()
        if term > self.term:
            self.step(self.node_id, TermNotice(term=term), now_ns)
        return self.log.hard_state.term if self.log.durable_token >= self.log.hard_state_token else 0

    def forget_member(self, node: NodeId) -> None:
        """A member that does not vote has lost its log: follow it from the beginning."""
        self.core.forget_member(node)
        self._mark_dirty(self)

    def checkpoint(self) -> None:
        """Checkpoint and trim now: after a purge the space should come back soon. No-op when nothing was applied."""
        now_ns = self._clock.mono_ns()
        checkpointer = self._checkpointer
        if self._takes_part(now_ns) and not checkpointer.is_held(now_ns) and self.applied_index > checkpointer.index:
            try:
                checkpointer.save(self.applied_index)
            except DISK_ERRORS as error:
                self.fail(error, now_ns)
            self._mark_dirty(self)

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
        if not self._takes_part(now_ns) or self._checkpointer.is_held(now_ns):
            return 0
        changed = change()
        self._mark_dirty(self)
        return changed

    # Events, from the manager.

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message."""
        if not self._takes_part(now_ns):
            return
        self._let(now_ns, self.core.step, sender, message)
        self._observe(now_ns)
        self._mark_dirty(self)

    def tick(self, now_ns: int) -> None:
        """The deadline passed."""
        if self._takes_part(now_ns):
            self._let(now_ns, self.core.tick)
            self._observe(now_ns)
            self._mark_dirty(self)

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A link session began."""
        self._let(now_ns, self.core.peer_up, node)
        self._mark_dirty(self)

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """A link session ended."""
        self._let(now_ns, self.core.peer_down, node)
        self._observe(now_ns)
        self._mark_dirty(self)

    def _let(self, now_ns: int, event: Callable[..., None], *arguments: object) -> None:
        """Let the engine take an event. What it finds wrong with the log ends this group, and no other."""
        try:
            event(*arguments, now_ns)
        except (LogDivergedError, *DISK_ERRORS) as error:
            self.fail(error, now_ns)

    def _on_durable(self) -> None:
        self._mark_dirty(self)

    def _takes_part(self, now_ns: int) -> bool:
        """Whether the group works. A log that has failed since the last turn ends it here, before anything is said."""
        if self.failed is None and self.log.failed is not None:
            self.fail(self.log.failed, now_ns)
        return self.failed is None

    def stop(self, now_ns: int) -> None:
        """The replica is removed: peers learn it, proposers get UNKNOWN or REFUSED."""
        if self.failed is None:
            self.core.resign(now_ns)
            self._end_leadership()
            self.failed = GroupStoppedError(f"group {self.group_id} was stopped")

    def fail(self, error: Exception, now_ns: int) -> None:
        """The log or the state machine is broken: take no part any more (rules 7 and 26)."""
        if self.failed is not None:
            return
        error = self.log.failed or error  # after a failed write every other one is refused because of it
        log_.error("group %s stops at term %d, applied %d: %r", self.group_id, self.term, self.applied_index, error)
        self.core.resign(now_ns)
        self._end_leadership()
        self.failed = error
        self.leader = None
        self.machine.became_follower(self.core.term, None)
        self._mark_dirty(self)  # peers learn it at the end of the turn, whoever found the error

    def distrust(self, error: StoreCorrupt | OSError) -> None:
        """Damage was met by someone who reads: the group stops at the end of the turn, and its owner has it repaired.

        Not at once: the reader is in the middle of something, and can still answer with an error. What is proposed
        until then is refused.
        """
        self._damage = self._damage or error
        self._mark_dirty(self)

    # The life of a group.

    def learn(self, now_ns: int) -> bool:
        """Count what became durable, and tell those who asked what is committed; returns whether anybody did.

        Called at the end of a turn for groups that were marked dirty. `advance` follows in the same turn.
        """
        self._committed = ()
        log = self.log
        if self.failed is not None or log.failed is not None or self._damage is not None:
            return False
        try:
            if log.durable_token != self._persisted_token:
                self._persisted_token = log.durable_token
                self.core.persisted(now_ns)
                self._observe(now_ns)
                self._checkpointer.trim_if_durable(now_ns)
            target = self.core.applicable_index
            if self.applied_index >= target:
                return False
            self._committed = log.entries(self.applied_index + 1, target, APPLY_BYTES_MAX)
        except DISK_ERRORS as error:  # the owner repairs the log
            self.fail(error, now_ns)
            return False
        return self._proposals.tell_committed(self._committed[-1].index)

    def advance(self, now_ns: int) -> None:
        """Apply what is committed, append what is queued, let the engine send."""
        if not self._takes_part(now_ns):
            return
        if self._damage is not None:
            self.fail(self._damage, now_ns)
            return
        try:
            if self._committed:
                self._apply(self._committed, now_ns)
            if self._term_led:
                self._lead()
            self._seal_queue()
            self.core.flush(now_ns)
        except DISK_ERRORS as error:  # an entry that was to be sent, or a message that a new leader looks at
            self.fail(error, now_ns)

    def has_unwritten(self) -> bool:
        """Whether something waits for the writer."""
        return self.failed is None and self.log.token() != self._submitted_token

    def would_block(self) -> bool:
        """Whether `write(may_block=True)` is likely to wait for the disk: little is to be written, and nobody helps.

        What nobody waits for is the writer's: those who come meanwhile would wait for it here.
        """
        if not self._is_awaited:
            return False
        configuration = self.core.configuration
        is_alone = len(configuration.voters) == 1 and not configuration.learners
        return is_alone and self.log.would_block(BLOCKING_BYTES_MAX)

    def write(self, *, may_block: bool) -> None:
        """Hand the log to the writer; with `may_block` it may write here and now, as nobody else has work for it."""
        self._submitted_token, self._is_awaited = self.log.token(), True
        self.log.submit(may_block=may_block)

    def _observe(self, now_ns: int) -> None:
        """Notice a change of leadership."""
        core = self.core
        leads = core.role is Role.LEADER
        if self._term_led and not (leads and core.term == self._term_led):
            self._end_leadership()
            self.leader, self.leader_since_ns = core.leader, now_ns
            self.machine.became_follower(core.term, core.leader)
        if leads and not self._term_led:
            self._term_led = core.term
            self._elections_won += 1
            self.leader, self.leader_since_ns = core.leader, now_ns
        elif core.leader != self.leader:
            self.leader, self.leader_since_ns = core.leader, now_ns
            self.machine.became_follower(core.term, core.leader)

    def _end_leadership(self) -> None:
        self._term_led = 0
        self.is_leader = False
        self._proposals.end()

    def _apply(self, entries: Sequence[Entry], now_ns: int) -> None:
        """Apply what is committed and durable here, up to a bound per turn."""
        try:
            results = apply_entries(self.machine, entries)
        except Exception as error:  # noqa: BLE001  (whatever apply raises is a bug of the machine: rule 26)
            self.fail(error, now_ns)
            return
        self._committed = ()
        self.applied_index = entries[-1].index
        self._checkpointer.note_applied(entries)
        self._proposals.tell_applied(entries[0].index, results)
        if self.applied_index < self.core.applicable_index:
            self._mark_dirty(self)
        self._checkpointer.save_if_due(self.applied_index, now_ns)

    def _lead(self) -> None:
        """Begin to lead once everything before the own term is applied; answer reads."""
        if not self.is_leader and self.applied_index >= self.core.term_start_index:
            self.is_leader = True
            self.machine.became_leader(self._term_led)
        if self._proposals.has_reads:
            self._proposals.tell_readers(self.core.confirmed_read_round, self.applied_index)

    def _seal_queue(self) -> None:
        """Append the queued proposals, one entry each; while a transfer runs they wait for its end."""
        if not self._proposals.queued:
            return
        if not self.is_leader:
            self._proposals.refuse_queued()
        elif self.core.accepts_proposals:
            self._proposals.seal(self.core.propose)

    # Snapshots.

    def hold_checkpoint_until(self, until_ns: int) -> None:
        """A peer fetches the newest checkpoint: take no other, and trim nothing, until then (rule 36)."""
        self._checkpointer.hold_until(until_ns)

    def snapshot(self) -> "tuple[Manifest, Checkpoint] | None":
        """What a peer that is behind the log may fetch: the newest durable checkpoint, and the blocks it needs."""
        return self._checkpointer.newest()

    async def read_snapshot(self) -> "tuple[Manifest, Checkpoint] | None":
        """The same, with the checkpoint read in a thread: its state may be large. Nothing may be trimmed meanwhile."""
        checkpoint = await run_blocking(self.log.checkpoint_reader())
        return None if checkpoint is None else (self._checkpointer.manifest_of(checkpoint), checkpoint)


class GroupStoppedError(Exception):
    """The group was removed from this node."""
