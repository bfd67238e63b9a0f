"""The project's own Raft engine: one member of one group, as a pure and deterministic state machine.

Here are the state, the events and the changes of role; what a message does stands in three files of handlers, and
`HANDLERS` is the table: `elections` (finding a leader), `following` (a leader's messages), `leadership` (answers to
one). When an election begins is decided in `election_timer`, votes are counted in `ballot`, a follower's log is
compared in `acceptor`, a leader's peers are fed in `replication`, configurations are kept in `membership`. The rule
numbers are those of ARCHITECTURE.md (Raft).

The log is written through its port: buffered at once, durable later, and a token names how far. A message that promises
something waits in `_held` for the token that covers every log write made before it; only appends wait for less, the
term and vote (rules 2 and 3).

    follower --(no leader: timer)--> pre-vote round --(majority)--> candidate --(durable own vote + majority)--> leader
    any role --(higher term)--> follower          leader --(no majority in contact for 1 s)--> follower

Source: Ongaro's thesis, chapters 3, 4, 6 and 9.6; etcd-io/raft for probe and replicate.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from jetraft.raft import elections, following, leadership
from jetraft.raft.election_timer import ElectionTimer
from jetraft.raft.engine import (
    Append,
    AppendAccepted,
    AppendRejected,
    CommitNotice,
    CoreSetup,
    LeaderSeen,
    Message,
    PeerProgress,
    PreVoteGrant,
    PreVoteRequest,
    Proposal,
    ReadProbe,
    ReadProbeSeen,
    Removed,
    Resigned,
    Role,
    SnapshotOffer,
    TermNotice,
    TransferNow,
    VoteGrant,
    VoteRequest,
)
from jetraft.raft.leadership import Leadership, MembershipChangeRefusedError
from jetraft.raft.membership import Configuration, ConfigurationHistory
from jetraft.store.format import Kind
from jetraft.store.model.fifo import Fifo
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog, HardState

if TYPE_CHECKING:
    from jetraft.raft.ballot import Ballot


class Core:
    """One member of one group: implements jetraft.raft.engine.Engine."""

    __slots__ = (
        "_held",
        "_setup",
        "_snapshot_offer",
        "ballot",
        "claimed",
        "commit_index",
        "configurations",
        "is_removed",
        "leader",
        "leadership",
        "log",
        "node_id",
        "pending_offer",
        "pre_ballot",
        "reluctant",
        "role",
        "sends",
        "term",
        "timer",
        "timing",
        "told_index",
        "up",
        "verified_index",
        "vote",
    )

    members_may_change: Final = True

    def __init__(
        self,
        setup: CoreSetup,
        *,
        log: GroupLog,
        configurations: ConfigurationHistory,
        commit_index: int,
        snapshot_offer: Callable[[int], SnapshotOffer | None],
    ) -> None:
        self._setup = setup
        self._snapshot_offer = snapshot_offer
        self._held: Fifo[tuple[int, NodeId, Message]] = Fifo()
        self.node_id = setup.node_id
        self.timing = setup.timing
        self.log = log
        self.configurations = configurations
        self.term = log.hard_state.term
        self.vote = log.hard_state.vote
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
        self.sends: list[tuple[NodeId, Message]] = []
        self.pending_offer: tuple[NodeId, SnapshotOffer] | None = None  # for the shell: fetch it
        self.reluctant = False  # waits longer than others before it stands

    # What the shell reads.

    @property
    def applicable_index(self) -> int:
        """The highest index that may be applied: committed and durable here (rule 5)."""
        return min(self.commit_index, self.log.durable_index)

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
        """The commit index that the leader told last in this link session; None when nobody claims the group."""
        return self.told_index if self.claimed else None

    @property
    def confirmed_read_round(self) -> int:
        """The newest read round that a majority answered; 0 when not leader."""
        return self.leadership.confirmed_read_round if self.leadership is not None else 0

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
        """What the leader knows of the members; nothing elsewhere."""
        return self.leadership.replication.report() if self.leadership is not None else []

    # Events.

    def start(self, now_ns: int) -> None:
        """Begin: a group of one stands for election at once, others wait for a leader or their timer."""
        if self.configuration.voters == (self.node_id,):
            elections.stand(self, now_ns, transfer=False)
        elif self.is_preferred:
            elections.ask_pre_votes(self, now_ns)
        else:
            self.restart_timer(now_ns)
            self._look_soon(now_ns)

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message arrived. Raises LogDivergedError, after which the group must stop."""
        HANDLERS[type(message)](self, sender, message, now_ns)

    def tick(self, now_ns: int) -> None:
        """The deadline passed."""
        if self.leadership is not None:
            if self.leadership.tick(now_ns):
                self.follow(self.term, None, now_ns)
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
        """The log's durable token moved: release what waited, count the own vote and the own entries."""
        durable_token = self.log.durable_token
        while self._held and self._held[0][0] <= durable_token:
            _, to, message = self._held.popleft()
            self.sends.append((to, message))
        if self.timer.pending_ns is not None and self.log.hard_state_token <= durable_token:
            elections.on_promise_kept(self, now_ns)
        self.advance_commit()

    def propose(self, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal; returns the index of the first."""
        assert self.leadership is not None, "only a leader proposes"
        return self.leadership.propose(proposals)

    def flush(self, now_ns: int) -> None:
        """End of a turn: emit appends and commit notices."""
        if self.leadership is not None:
            self.leadership.pump(now_ns, self.commit_index)

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A new link session with the node began."""
        self.up.add(node)
        if self.leadership is not None:
            self.leadership.link_changed(node, up=True, now_ns=now_ns)
            return
        for ballot in (self.ballot, self.pre_ballot):
            if ballot is not None:
                ballot.resend_ns = now_ns
        self._look_soon(now_ns)

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """The link session ended: its claim and what was in flight are gone."""
        self.up.discard(node)
        if self.leadership is not None:
            self.leadership.link_changed(node, up=False, now_ns=now_ns)
        elif node == self.leader:
            self.drop_claim(now_ns)

    def transfer(self, target: NodeId | None, now_ns: int) -> bool:
        """Hand leadership over, to whoever is most advanced when `target` is None. Returns whether that has begun."""
        return self.leadership is not None and self.leadership.begin_transfer(target, now_ns) is not None

    def begin_read(self) -> int:
        """Start a read round (rule 21): the commit index of now may be read when the round is confirmed."""
        assert self.leadership is not None, "only a leader confirms reads"
        return self.leadership.begin_read()

    def change_members(self, configuration: Configuration, now_ns: int) -> int:
        """Append a configuration entry and return its index. Raises MembershipChangeRefusedError."""
        if self.leadership is None:
            raise MembershipChangeRefusedError("not the leader")
        index = self.leadership.change_members(configuration, self.commit_index, now_ns)
        self.advance_commit()
        return index

    def outlive(self, configuration: Configuration, term: int, now_ns: int) -> None:
        """Go on alone, from the end of the own log, in a term that nobody has heard of: raft/survivor.py says when."""
        assert self.leadership is None
        assert configuration.voters == (self.node_id,)
        self.follow(term, None, now_ns)
        index = self.log.last_index + 1
        frame = self._setup.seal(
            Kind.RAFT_CONFIG, index=index, term=term, incarnation=self._setup.incarnation, body=configuration.encode()
        )
        self.log.append([Entry(index=index, term=term, kind=Kind.RAFT_CONFIG, frame=frame)])
        self.configurations.append(index, configuration)
        elections.stand(self, now_ns, transfer=False)

    def forget_member(self, node: NodeId) -> None:
        """The member has lost its memory: what it acknowledged to this leader counts no more."""
        if self.leadership is not None:
            self.leadership.forget_member(node)

    def resign(self, now_ns: int) -> None:
        """Take no part any more: the replica is removed or its log has failed. Peers learn it at once."""
        if self.leadership is not None:
            self.follow(self.term, None, now_ns)
        elif self.leader is not None:
            self.sends.append((self.leader, Resigned(term=self.term)))
        self.timer.stop()
        self.ballot = self.pre_ballot = None
        self._held.clear()

    # Roles and terms, for the handlers.

    def enter_term(self, term: int, now_ns: int, *, vote: NodeId | None) -> None:
        """Go on to a higher term; what was promised in a lower one and not yet sent is void."""
        assert term > self.term
        self.term, self.verified_index = term, 0
        self._held.clear()
        self.promise(vote, now_ns)

    def promise(self, vote: NodeId | None, now_ns: int) -> None:
        """Have term and vote written down. Until they are durable this member waits for nothing else (rule 41)."""
        self.vote = vote
        self.log.set_hard_state(HardState(term=self.term, vote=vote))
        self.timer.promise(now_ns)

    def follow(self, term: int, leader: NodeId | None, now_ns: int) -> None:
        """Be a follower in `term`, of `leader` when it is known."""
        assert term >= self.term
        if self.leadership is not None:
            for node in self.leadership.replication.peers:
                self.sends.append((node, Resigned(term=self.term)))
            self.leadership = None
        if term > self.term:
            self.enter_term(term, now_ns, vote=None)
        self.role, self.leader = Role.FOLLOWER, leader
        self.ballot = self.pre_ballot = None
        self.claimed = False
        self.restart_timer(now_ns)

    def lead(self, now_ns: int) -> None:
        """The election is won."""
        assert self.role is Role.CANDIDATE
        self.role, self.leader = Role.LEADER, self.node_id
        self.ballot = self.pre_ballot = None
        self.timer.stop()
        self.timer.ballots = 0
        self.leadership = Leadership(
            self._setup,
            log=self.log,
            term=self.term,
            configurations=self.configurations,
            up=self.up,
            commit_index=self.commit_index,
            now_ns=now_ns,
            send=self._send_in_term,
            snapshot_offer=self._snapshot_offer,
        )

    def drop_claim(self, now_ns: int) -> None:
        """The leader is silent or gave up: look for another soon, not all members at the same moment."""
        self.claimed, self.leader = False, None
        if self.ballot is None and self.may_stand:
            self.pre_ballot = None  # it asked whether the leader is alive
            self.timer.look_soon(now_ns, is_reluctant=self.reluctant)

    def _look_soon(self, now_ns: int) -> None:
        """Nobody is known to lead and a majority can be asked, as after the start of all: do not wait for the timer.

        If somebody leads after all, the pre-vote disturbs nobody, and the leader answers it by claiming the group.
        """
        asks = self.leader is None and not self.reluctant and self.ballot is None and self.pre_ballot is None
        if asks and self.may_stand and self.configuration.has_quorum({*self.up, self.node_id}):
            self.timer.look_no_later(now_ns)

    @property
    def is_preferred(self) -> bool:
        """Whether the others would rather have this one: the group is new, and was given to it."""
        return self._setup.eager and self.log.last_index == 0

    @property
    def may_stand(self) -> bool:
        """Only voters stand for election: a learner waits to be promoted, a removed member for its removal."""
        return self.node_id in self.configuration.voters

    def restart_timer(self, now_ns: int) -> None:
        """Wait for a leader for a random while; for a long one when we were told that none is to come."""
        if not self.may_stand:
            self.timer.stop()
        elif self.is_removed:
            self.timer.wait_slowly(now_ns)
        else:
            self.timer.wait(now_ns, is_reluctant=self.reluctant)

    def advance_commit(self) -> None:
        """Commit what a majority holds."""
        if self.leadership is not None:
            self.commit_index = max(self.commit_index, self.leadership.quorum_index())

    # Sending, for the handlers.

    def send(self, to: NodeId, message: Message) -> None:
        """Send when everything written so far is durable."""
        token = self.log.token()
        if token <= self.log.durable_token:
            self.sends.append((to, message))
        else:
            self._held.append((token, to, message))

    def _send_in_term(self, to: NodeId, message: Message) -> None:
        """Send as leader, when term and vote are durable: entries may still be on their way to the disk."""
        if self.log.hard_state_token <= self.log.durable_token:
            self.sends.append((to, message))
        else:
            self.send(to, message)


HANDLERS: Final[dict[type, Callable[..., None]]] = {
    PreVoteRequest: elections.on_pre_vote_request,
    PreVoteGrant: elections.on_grant,
    VoteRequest: elections.on_vote_request,
    VoteGrant: elections.on_grant,
    TermNotice: elections.on_term_notice,
    TransferNow: elections.on_transfer_now,
    Append: following.on_append,
    CommitNotice: following.on_commit_notice,
    Resigned: following.on_resigned,
    Removed: elections.on_removed,
    ReadProbe: following.on_read_probe,
    SnapshotOffer: following.on_snapshot_offer,
    AppendAccepted: leadership.on_append_accepted,
    AppendRejected: leadership.on_append_rejected,
    LeaderSeen: leadership.on_leader_seen,
    ReadProbeSeen: leadership.on_read_probe_seen,
}
