"""One member of one group: what it keeps and when it asks, whatever engine decides. Pure and deterministic.

Here are the state, the events and the changes of role. The effects of messages are in the files of handlers that the
table `HANDLERS` names: `elections` (finding a leader), `following` (a leader's messages), `answers` (answers to one).
When an election begins is decided in `candidacy` and `election_timer`, votes are collected in `ballot`. What the two
engines decide in different ways is behind `decider`. The rule numbers are those of docs/raft.md.

The log is written through its port: buffered at once, durable later, and a token names how far. A message that promises
something waits for the token that covers every log write made before it; only appends wait for less, the term and vote
(rules 2 and 3). `effects` collects what is to be sent, and `take_ready` hands it to the shell as one value.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from jetraft.raft.engine import candidacy, elections
from jetraft.raft.engine.election_timer import ElectionTimer
from jetraft.raft.engine.handlers import HANDLERS
from jetraft.raft.engine.leadership import Leadership
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Message, Resigned, Role, SnapshotOffer
from jetraft.raft.engine.port import CoreSetup, PeerProgress, Proposal
from jetraft.raft.engine.ready import NOTHING, Effects, Ready
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog

if TYPE_CHECKING:
    from jetraft.raft.engine.ballot import Ballot
    from jetraft.raft.engine.decider import Decider


class Member:
    """Implements jetraft.raft.engine.port.Engine over a decider."""

    __slots__ = (
        "_snapshot_offer",
        "ballot",
        "claimed",
        "commit_index",
        "configurations",
        "decider",
        "effects",
        "handed_by",
        "has_handed_over",
        "is_removed",
        "leader",
        "leadership",
        "log",
        "node_id",
        "pre_ballot",
        "progress",
        "reluctant",
        "role",
        "setup",
        "term",
        "timer",
        "told_index",
        "up",
        "verified_index",
    )

    def __init__(  # noqa: PLR0913  (what a member is made of)
        self,
        setup: CoreSetup,
        *,
        decider: "Decider",
        log: GroupLog,
        configurations: ConfigurationHistory,
        commit_index: int,
        snapshot_offer: Callable[[int], SnapshotOffer | None],
    ) -> None:
        self.setup = setup
        self.decider = decider
        self._snapshot_offer = snapshot_offer
        self.node_id = setup.node_id
        self.log = log
        self.progress = log.progress
        self.configurations = configurations
        self.term = log.hard_state.term
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.leadership: Leadership | None = None  # exactly while leader
        self.ballot: Ballot | None = None  # of the present term, while asking for votes; a pre-vote leaves it alone
        self.pre_ballot: Ballot | None = None  # of the next term, while asking whether that could be won
        self.timer = ElectionTimer(setup)
        self.claimed = False  # the leader spoke in this link session
        self.told_index: int | None = None  # the commit index that it spoke of last, since the claim began
        self.is_removed = False  # a leader has said so, and none has claimed the group since
        self.commit_index = commit_index
        self.verified_index = 0  # the log equals that of this term's leader up to here
        self.up: set[NodeId] = set()  # nodes with a link session
        self.reluctant = False  # waits longer than others before it stands
        self.handed_by: NodeId | None = None  # as leader: the leader before, if that one had asked for it
        self.has_handed_over = False  # it was the leader before, and had asked another member to lead
        self.effects = Effects(log, role=self.role, term=self.term, leader=self.leader)

    # What the shell reads.

    @property
    def members_may_change(self) -> bool:
        """Whether `change_members` ever succeeds with this engine."""
        return self.decider.members_may_change

    @property
    def vote(self) -> NodeId | None:
        """Whom this member voted for in the current term."""
        return self.log.hard_state.vote

    @property
    def applicable_index(self) -> int:
        """The highest index that may be applied: committed and durable here (rule 5)."""
        commit_index, durable_index = self.commit_index, self.progress.durable_index
        return commit_index if commit_index < durable_index else durable_index  # noqa: FURB136  (min() takes 200 ns)

    @property
    def term_start_index(self) -> int:
        """As leader: the state is complete when this index is applied. Else 0."""
        return self.leadership.term_start_index if self.leadership is not None else 0

    @property
    def accepts_proposals(self) -> bool:
        """Whether this member leads and no transfer is running."""
        return self.leadership is not None and self.leadership.transfer is None

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self.configurations.current

    @property
    def told_commit_index(self) -> int | None:
        """The commit index that the leader told last in this link session; None without a leader's claim."""
        return self.told_index if self.claimed else None

    @property
    def confirmed_read_round(self) -> int:
        """The newest read round that a majority answered; 0 when not leader."""
        return self.leadership.confirmed_read_round if self.leadership is not None else 0

    def is_majority_with(self, node: NodeId, term: int) -> bool:
        """Whether this member leads in that term, and the node and it are a majority of the voters (rule 21)."""
        return self.leadership is not None and term == self.term and self.configuration.has_quorum([self.node_id, node])

    @property
    def has_leader(self) -> bool:
        """Whether votes are refused because a leader is alive (rule 18)."""
        return self.leadership is not None or self.claimed

    @property
    def deadline_ns(self) -> int | None:
        """When `tick` is due; None for a member that waits for events only."""
        if self.leadership is not None:
            return self.leadership.deadline_ns(self.commit_index)
        due_ns = self.timer.deadline_ns
        if due_ns is None:
            return None
        for ballot in (self.ballot, self.pre_ballot):
            if ballot is not None:
                due_ns = min(due_ns, ballot.resend_ns)
        return due_ns

    def peer_progress(self) -> list[PeerProgress]:
        """The leader's knowledge of the members; nothing elsewhere."""
        return self.leadership.replication.report() if self.leadership is not None else []

    # Events.

    def start(self, now_ns: int) -> None:
        """Begin: a group of one stands for election at once, others wait for a leader or their timer."""
        if self.configuration.voters == (self.node_id,):
            elections.stand(self, now_ns, transfer=False)
        elif self.is_preferred:
            elections.ask_pre_votes(self, now_ns)
        else:
            candidacy.restart_timer(self, now_ns)
            candidacy.look_soon(self, now_ns)

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message arrived. Raises LogDivergedError, after which the group must stop."""
        HANDLERS[type(message)](self, sender, message, now_ns)

    def tick(self, now_ns: int) -> None:
        """The deadline passed."""
        if self.leadership is not None:
            if self.leadership.tick(now_ns):
                self.decider.step_down(self, now_ns)
            return
        due_ns = self.timer.deadline_ns
        if due_ns is None:
            return
        if due_ns <= now_ns:
            elections.look_for_leader(self, now_ns)
        for ballot in (self.ballot, self.pre_ballot):
            if ballot is not None and ballot.resend_ns <= now_ns:
                elections.ask(self, ballot, now_ns)

    def persisted(self, now_ns: int) -> None:
        """The log's durable token moved: count this member's vote and entries."""
        if self.timer.pending_ns is not None and self.log.hard_state_token <= self.progress.durable_token:
            elections.on_promise_kept(self, now_ns)
        self.decider.count_durable(self, now_ns)

    def propose(self, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal; returns the index of the first."""
        assert self.leadership is not None, "only a leader proposes"
        return self.decider.propose(self, proposals)

    def flush(self, now_ns: int) -> None:
        """End of a turn: send the appends and commit notices that became due."""
        leadership = self.leadership
        if leadership is not None and leadership.replication.peers:  # who is alone has no one to tell or hand over to
            leadership.pump(now_ns, self.commit_index)

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A new link session with the node began."""
        self.up.add(node)
        if self.leadership is not None:
            self.leadership.link_changed(node, up=True, now_ns=now_ns)
            return
        for ballot in (self.ballot, self.pre_ballot):
            if ballot is not None:
                ballot.resend_ns = now_ns
        candidacy.look_soon(self, now_ns)

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """The link session ended: its claim and what was in flight are gone."""
        self.up.discard(node)
        if self.leadership is not None:
            self.leadership.link_changed(node, up=False, now_ns=now_ns)
        elif node == self.leader:
            candidacy.drop_claim(self, now_ns)

    def transfer(self, target: NodeId | None, now_ns: int) -> bool:
        """Hand leadership over, to the most advanced voter when `target` is None. Returns whether that has begun."""
        return self.leadership is not None and self.leadership.begin_transfer(target, now_ns) is not None

    def begin_read(self, now_ns: int) -> int:
        """Start a read round (rule 21): the commit index of now may be read when the round is confirmed."""
        assert self.leadership is not None, "only a leader confirms reads"
        return self.leadership.begin_read(now_ns)

    def change_members(self, configuration: Configuration, now_ns: int) -> int:
        """Append a configuration entry and return its index. Raises MembershipChangeRefusedError."""
        return self.decider.change_members(self, configuration, now_ns)

    def outlive(self, configuration: Configuration, term: int, now_ns: int) -> None:
        """Lead alone in a term beyond all others (raft/recovery/survivor.py)."""
        self.decider.outlive(self, configuration, term, now_ns)

    def forget_member(self, node: NodeId) -> None:
        """The member has lost its memory: what it acknowledged to this leader counts no more."""
        if self.leadership is not None and self.members_may_change:
            self.leadership.forget_member(node)

    def resign(self, now_ns: int) -> None:
        """Take no part any more: the replica is removed or its log has failed. Peers learn it at once."""
        if self.leadership is not None:
            self.follow(None, now_ns)
        elif self.leader is not None:
            self.effects.send_now(self.leader, Resigned(term=self.term))
        self.timer.stop()
        self.ballot = self.pre_ballot = None
        self.effects.void_promises()

    # Roles and terms, for handlers and deciders.

    def enter_term(self, term: int, now_ns: int) -> None:
        """The log's hard state is of a higher term; what was promised in a lower one and has not left yet is void."""
        assert term > self.term
        self.term, self.verified_index = term, 0
        self.effects.void_promises()
        self.note_promise(now_ns)

    def note_promise(self, now_ns: int) -> None:
        """Term or vote may have been set: until they are durable this member waits for nothing else (rule 41)."""
        if self.log.hard_state_token > self.log.durable_token:
            self.timer.promise(now_ns)

    def follow(self, leader: NodeId | None, now_ns: int) -> None:
        """Be a follower in the current term, of `leader` when it is known."""
        if self.leadership is not None:
            for node in self.leadership.replication.peers:
                self.effects.send_now(node, Resigned(term=self.leadership.term))
            self.has_handed_over = self.leadership.transfer is not None and self.leadership.transfer.told
            self.leadership = None
        self.role, self.leader = Role.FOLLOWER, leader
        self.ballot = self.pre_ballot = None
        self.claimed = False
        candidacy.restart_timer(self, now_ns)

    def lead(self, now_ns: int, *, noop_index: int | None = None) -> None:
        """The election is won. `noop_index`: where the decider has appended the no-op of the term already."""
        assert self.role is Role.CANDIDATE
        self.role, self.leader = Role.LEADER, self.node_id
        if self.ballot is None or not self.ballot.transfer:
            self.handed_by = None
        self.has_handed_over = False
        self.ballot = self.pre_ballot = None
        self.timer.stop()
        self.timer.ballots = 0
        self.leadership = Leadership(
            self.setup,
            log=self.log,
            term=self.term,
            configurations=self.configurations,
            up=self.up,
            commit_index=self.commit_index,
            now_ns=now_ns,
            append=partial(self.decider.propose, self),
            send=self.effects.send_in_term,
            snapshot_offer=self._snapshot_offer,
            noop_index=noop_index,
        )

    @property
    def is_preferred(self) -> bool:
        """Whether the others would rather have this one: the group is new, and was given to it."""
        return self.setup.eager and self.log.last_index == 0

    @property
    def is_founder(self) -> bool:
        """Whether the group is this member alone, and nothing was ever written in it.

        Its vote need not be durable before it leads (decision 116): there is no other member that it could give it to
        or speak to, no entry that it could contradict, and what it writes is durable with the vote or not at all.
        """
        return self.configuration.members == (self.node_id,) and not self.log.last_index and self.term == 1

    @property
    def may_stand(self) -> bool:
        """Only voters stand for election: a learner waits to be promoted, a removed member for its removal."""
        return self.node_id in self.configuration.voters

    # Effects.

    def take_ready(self) -> Ready:
        """The effects of the events since the last call; NOTHING, which is one object, when there is nothing to do."""
        effects = self.effects
        if not effects.has_something and effects.told == (self.role, self.term, self.leader):
            return NOTHING  # what most calls end with: no object is made for it
        return effects.take(self.role, self.term, self.leader)
