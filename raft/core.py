"""The project's own Raft engine: one member of one group, as a pure and deterministic state machine.

Here are the state, the events and the changes of role; what a message does stands in three files of handlers, and
`HANDLERS` is the table: `elections` (finding a leader), `following` (a leader's messages), `leadership` (answers to
one). Votes are counted in `ballot`, a follower's log is compared in `acceptor`, a leader's peers are fed in
`replication`, configurations are kept in `membership`. The rule numbers are those of ARCHITECTURE.md (Raft).

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
        "election_ns",
        "leader",
        "leadership",
        "log",
        "node_id",
        "pending_offer",
        "reluctant",
        "role",
        "sends",
        "stood_back",
        "term",
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
        self.ballot: Ballot | None = None  # while asking for votes
        self.election_ns: int | None = None  # None while a leader claims the group, and for those who do not vote
        self.stood_back = False  # the timer waited once for another candidate
        self.claimed = False  # the leader spoke in this link session
        self.told_index: int | None = None  # the commit index that it spoke of last, since the claim began
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
        """The index of the own no-op while leader, else 0."""
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
        if self.ballot is not None and self.election_ns is not None:
            return min(self.ballot.resend_ns, self.election_ns)
        return self.election_ns

    def peer_progress(self) -> list[PeerProgress]:
        """What the leader knows of the members; nothing elsewhere."""
        return self.leadership.replication.report() if self.leadership is not None else []

    # Events.

    def start(self, now_ns: int) -> None:
        """Begin: a group of one stands for election at once, others wait for a leader or their timer."""
        if self.configuration.voters == (self.node_id,):
            elections.stand(self, now_ns, transfer=False)
        elif self._setup.eager and self.log.last_index == 0:
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
        elif self.election_ns is not None and self.election_ns <= now_ns:
            elections.ask_pre_votes(self, now_ns)
        elif self.ballot is not None and self.ballot.resend_ns <= now_ns:
            self.ballot.resend_ns = now_ns + self.timing.vote_retry_ns
            elections.ask(self, self.ballot)

    def persisted(self, now_ns: int) -> None:
        """The log's durable token moved: release what waited, count the own vote and the own entries."""
        durable_token = self.log.durable_token
        while self._held and self._held[0][0] <= durable_token:
            _, to, message = self._held.popleft()
            self.sends.append((to, message))
        ballot = self.ballot
        if ballot is not None and not ballot.preliminary and self.log.hard_state_token <= durable_token:
            ballot.grant(self.node_id)
            elections.count(self, now_ns)
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
        elif self.ballot is not None:
            self.ballot.resend_ns = now_ns
        else:
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
        self.election_ns = self.ballot = None
        self._held.clear()

    # Roles and terms, for the handlers.

    def enter_term(self, term: int, *, vote: NodeId | None) -> None:
        """Go on to a higher term; what was promised in a lower one and not yet sent is void."""
        assert term > self.term
        self.term, self.vote, self.verified_index = term, vote, 0
        self.log.set_hard_state(HardState(term=term, vote=vote))
        self._held.clear()

    def follow(self, term: int, leader: NodeId | None, now_ns: int) -> None:
        """Be a follower in `term`, of `leader` when it is known."""
        assert term >= self.term
        if self.leadership is not None:
            for node in self.leadership.replication.peers:
                self.sends.append((node, Resigned(term=self.term)))
            self.leadership = None
        if term > self.term:
            self.enter_term(term, vote=None)
        self.role, self.leader, self.ballot = Role.FOLLOWER, leader, None
        self.claimed = False
        self.restart_timer(now_ns)

    def lead(self, now_ns: int) -> None:
        """The election is won."""
        assert self.role is Role.CANDIDATE
        self.role, self.leader, self.ballot, self.election_ns = Role.LEADER, self.node_id, None, None
        self.leadership = Leadership(
            self._setup,
            log=self.log,
            term=self.term,
            configurations=self.configurations,
            up=self.up,
            now_ns=now_ns,
            send=self._send_in_term,
            snapshot_offer=self._snapshot_offer,
        )

    def drop_claim(self, now_ns: int) -> None:
        """The leader is silent or gave up: look for another soon, not all members at the same moment."""
        self.claimed, self.leader = False, None
        if self.ballot is None:
            self._arm_timer(now_ns, 0, self.timing.failover_spread_ns)

    def _look_soon(self, now_ns: int) -> None:
        """Nobody is known to lead and a majority can be asked, as after the start of all: do not wait for the timer.

        If somebody leads after all, the pre-vote disturbs nobody, and the leader answers it by claiming the group.
        """
        asks = self.leader is None and not self.reluctant and self.ballot is None and self.election_ns is not None
        if asks and self.configuration.has_quorum({*self.up, self.node_id}):
            soon_ns = now_ns + self._setup.rng.randrange(0, self.timing.failover_spread_ns)
            self.election_ns = min(soon_ns, self.election_ns or soon_ns)

    def restart_timer(self, now_ns: int) -> None:
        """Wait for a leader for a random while."""
        self._arm_timer(now_ns, self.timing.election_min_ns, self.timing.election_max_ns)

    def stand_back(self, now_ns: int) -> None:
        """Another member has good chances: let it try first, once per timer, so that it cannot hold us off for ever."""
        if self.election_ns is not None and self.ballot is None and not self.stood_back:
            self.election_ns = max(self.election_ns, now_ns + self.timing.precedence_ns)
            self.stood_back = True

    def _arm_timer(self, now_ns: int, low_ns: int, high_ns: int) -> None:
        """Only voters stand for election: a learner waits to be promoted, a removed member for its removal."""
        is_voter = self.node_id in self.configuration.voters
        self.stood_back = False
        begins_ns = now_ns + (self.timing.reluctance_ns if self.reluctant else 0)
        self.election_ns = begins_ns + self._setup.rng.randrange(low_ns, high_ns) if is_voter else None

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
    ReadProbe: following.on_read_probe,
    SnapshotOffer: following.on_snapshot_offer,
    AppendAccepted: leadership.on_append_accepted,
    AppendRejected: leadership.on_append_rejected,
    LeaderSeen: leadership.on_leader_seen,
    ReadProbeSeen: leadership.on_read_probe_seen,
}
