"""The project's own Raft engine: one member of one group, as a pure and deterministic state machine.

Roles and terms are decided here; the parts live beside it: votes in `ballot`, a follower's log in `acceptor`, a
leader's term in `leadership` and its peers in `replication`, the configuration in `membership`. `engine` has the
messages and the contract; the rule numbers are those of ARCHITECTURE.md (Raft). The log is written through its port:
buffered at once, durable later, and a token names how far. A message that promises something waits in `_held` for the
token that covers every log write made before it; only appends wait for less, the term and vote (rules 2 and 3).

    follower --(no leader: timer)--> pre-vote round --(majority)--> candidate --(durable own vote + majority)--> leader
    any role --(higher term)--> follower          leader --(no majority in contact for 1 s)--> follower

Source: Ongaro's thesis, chapters 3, 4, 6 and 9.6; etcd-io/raft for probe and replicate.
"""

from collections import deque
from collections.abc import Callable, Sequence

from jetraft.raft.acceptor import Refused, accept
from jetraft.raft.ballot import Ballot
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
from jetraft.store.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog, HardState


class Core:
    """One member of one group: implements jetraft.raft.engine.Engine."""

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
        self._log = log
        self.configurations = configurations
        self._snapshot_offer = snapshot_offer
        self.node_id = setup.node_id
        self.term = log.hard_state.term
        self._vote = log.hard_state.vote
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.commit_index = commit_index
        self.sends: list[tuple[NodeId, Message]] = []
        self.pending_offer: tuple[NodeId, SnapshotOffer] | None = None  # for the shell: fetch it, then `installed`
        self._held: deque[tuple[int, NodeId, Message]] = deque()
        self._up: set[NodeId] = set()
        self._ballot: Ballot | None = None
        self._election_ns: int | None = None
        self._claimed = False  # the leader spoke in this link session: no election timer
        self._verified_index = 0  # the log equals the current leader's up to here
        self._leadership: Leadership | None = None
        self._steps: dict[type, Callable[[NodeId, Message, int], None]] = {}
        for message_type, handler in _HANDLERS.items():
            self._steps[message_type] = getattr(self, handler)

    # What the shell reads.

    @property
    def applicable_index(self) -> int:
        """The highest index that may be applied: committed and durable here (rule 5)."""
        return min(self.commit_index, self._log.durable_index)

    @property
    def term_start_index(self) -> int:
        """The index of the own no-op while leader, else 0."""
        return self._leadership.term_start_index if self._leadership is not None else 0

    @property
    def accepts_proposals(self) -> bool:
        """Whether this member leads and no transfer is running."""
        return self._leadership is not None and self._leadership.transfer is None

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self.configurations.current

    @property
    def confirmed_read_round(self) -> int:
        """The newest read round that a majority answered; 0 when not leader."""
        return self._leadership.confirmed_read_round if self._leadership is not None else 0

    @property
    def deadline_ns(self) -> int | None:
        """When `tick` is due; None for a member that waits for events only."""
        if self._leadership is not None:
            return self._leadership.deadline_ns(self.commit_index)
        if self._ballot is not None and self._election_ns is not None:
            return min(self._ballot.resend_ns, self._election_ns)
        return self._election_ns

    def peer_progress(self) -> list[PeerProgress]:
        """What the leader knows of the members; nothing elsewhere."""
        return self._leadership.replication.report() if self._leadership is not None else []

    # Events.

    def start(self, now_ns: int) -> None:
        """Begin: a group of one stands for election at once, others wait for a leader or their timer."""
        if self.configuration.voters == (self.node_id,):
            self._stand(now_ns, transfer=False)
        elif self._setup.eager and self._log.last_index == 0:
            self._ask_pre_votes(now_ns)
        else:
            self._restart_timer(now_ns)

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message arrived. Raises LogDivergedError, after which the group must stop."""
        self._steps[type(message)](sender, message, now_ns)

    def tick(self, now_ns: int) -> None:
        """The deadline passed."""
        if self._leadership is not None:
            if self._leadership.tick(now_ns):
                self._follow(self.term, None, now_ns)
            return
        if self._election_ns is not None and self._election_ns <= now_ns:
            self._ask_pre_votes(now_ns)
        elif self._ballot is not None and self._ballot.resend_ns <= now_ns:
            self._ballot.resend_ns = now_ns + self._setup.timing.vote_retry_ns
            self._ask(self._ballot)

    def persisted(self, now_ns: int) -> None:
        """The log's durable token moved: release what waited, count the own vote and the own entries."""
        durable_token = self._log.durable_token
        while self._held and self._held[0][0] <= durable_token:
            _, to, message = self._held.popleft()
            self.sends.append((to, message))
        ballot = self._ballot
        if ballot is not None and not ballot.preliminary and self._log.hard_state_token <= durable_token:
            ballot.grant(self.node_id)  # the own vote counts when it is durable (rule 4)
            self._count(now_ns)
        self._advance_commit()

    def propose(self, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal; returns the index of the first."""
        assert self._leadership is not None, "only a leader proposes"
        return self._leadership.propose(proposals)

    def flush(self, now_ns: int) -> None:
        """End of a turn: emit appends and commit notices."""
        if self._leadership is not None:
            self._leadership.pump(now_ns, self.commit_index)

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A new link session with the node began."""
        self._up.add(node)
        if self._leadership is not None:
            self._leadership.link_changed(node, up=True, now_ns=now_ns)
        elif self._ballot is not None:
            self._ballot.resend_ns = now_ns

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """The link session ended: its claim and what was in flight are gone."""
        self._up.discard(node)
        if self._leadership is not None:
            self._leadership.link_changed(node, up=False, now_ns=now_ns)
        elif node == self.leader:
            self._drop_claim(now_ns)

    def transfer(self, target: NodeId | None, now_ns: int) -> bool:
        """Hand leadership over, to whoever is most advanced when `target` is None. Returns whether that has begun."""
        return self._leadership is not None and self._leadership.begin_transfer(target, now_ns) is not None

    def begin_read(self) -> int:
        """Start a read round (rule 21): the commit index of now may be read when the round is confirmed."""
        assert self._leadership is not None, "only a leader confirms reads"
        return self._leadership.begin_read()

    def change_members(self, configuration: Configuration, now_ns: int) -> int:
        """Append a configuration entry. Raises MembershipChangeRefusedError."""
        if self._leadership is None:
            raise MembershipChangeRefusedError("not the leader")
        index = self._leadership.change_members(configuration, self.commit_index, now_ns)
        self._advance_commit()
        return index

    def resign(self, now_ns: int) -> None:
        """Take no part any more: the replica is removed or its log has failed. Peers learn it at once."""
        if self._leadership is not None:
            self._follow(self.term, None, now_ns)
        elif self.leader is not None:
            self.sends.append((self.leader, Resigned(term=self.term)))
        self._election_ns = self._ballot = None
        self._held.clear()

    # Roles and terms.

    def _follow(self, term: int, leader: NodeId | None, now_ns: int) -> None:
        """Be a follower in `term`; what was promised in a lower term is void and what was held for it is dropped."""
        assert term >= self.term
        if self._leadership is not None:
            for node in self._leadership.replication.peers:
                self.sends.append((node, Resigned(term=self.term)))
            self._leadership = None
        if term > self.term:
            self.term, self._vote = term, None
            self._log.set_hard_state(HardState(term=term, vote=None))
            self._held.clear()
        if leader is None or leader != self.leader or self.role is not Role.FOLLOWER:
            self._verified_index = 0
        self.role, self.leader, self._ballot, self._claimed = Role.FOLLOWER, leader, None, False
        self._restart_timer(now_ns)

    def _restart_timer(self, now_ns: int) -> None:
        timing = self._setup.timing
        self._arm_timer(now_ns, timing.election_min_ns, timing.election_max_ns)

    def _arm_timer(self, now_ns: int, low_ns: int, high_ns: int) -> None:
        """Only voters stand for election (a learner waits to be promoted, a removed member for its removal)."""
        is_voter = self.node_id in self.configuration.voters
        self._election_ns = now_ns + self._setup.rng.randrange(low_ns, high_ns) if is_voter else None

    def _drop_claim(self, now_ns: int) -> None:
        """The leader is silent or gave up: look for another soon, not all members at the same moment."""
        self._claimed = False
        self.leader = None
        self._verified_index = 0
        if self._ballot is None:
            self._arm_timer(now_ns, 0, self._setup.timing.failover_spread_ns)

    def _has_leader(self) -> bool:
        """Whether votes are refused because a leader is alive (rule 18)."""
        return self._leadership is not None or self._claimed

    # Elections.

    def _ask_pre_votes(self, now_ns: int) -> None:
        resend_ns = now_ns + self._setup.timing.vote_retry_ns
        self._begin(Ballot(term=self.term + 1, preliminary=True, transfer=False, resend_ns=resend_ns), now_ns)
        assert self._ballot is not None
        self._ballot.grant(self.node_id)
        self._ask(self._ballot)
        self._count(now_ns)

    def _stand(self, now_ns: int, *, transfer: bool) -> None:
        """A real election; the own vote counts when it is durable (`persisted`)."""
        if self.node_id not in self.configuration.voters:
            return
        self.term += 1
        self._vote = self.node_id
        self.role, self.leader = Role.CANDIDATE, None
        self._log.set_hard_state(HardState(term=self.term, vote=self.node_id))
        self._held.clear()
        resend_ns = now_ns + self._setup.timing.vote_retry_ns
        self._begin(Ballot(term=self.term, preliminary=False, transfer=transfer, resend_ns=resend_ns), now_ns)
        assert self._ballot is not None
        self._ask(self._ballot)

    def _begin(self, ballot: Ballot, now_ns: int) -> None:
        self._restart_timer(now_ns)
        self._ballot, self._claimed = ballot, False

    def _ask(self, ballot: Ballot) -> None:
        last_index = self._log.last_index
        last_term = self._log.term_at(last_index) or 0
        request: Message
        if ballot.preliminary:
            request = PreVoteRequest(term=ballot.term, last_index=last_index, last_term=last_term)
        else:
            request = VoteRequest(
                term=ballot.term, last_index=last_index, last_term=last_term, transfer=ballot.transfer
            )
        for voter in ballot.silent(self.configuration):
            if voter != self.node_id:
                self._send(voter, request)

    def _count(self, now_ns: int) -> None:
        ballot = self._ballot
        if ballot is None or not ballot.is_won(self.configuration):
            return
        if ballot.preliminary:
            self._stand(now_ns, transfer=False)
        else:
            self._lead(now_ns)

    def _lead(self, now_ns: int) -> None:
        assert self.role is Role.CANDIDATE
        self.role, self.leader, self._ballot, self._election_ns = Role.LEADER, self.node_id, None, None
        self._leadership = Leadership(
            self._setup,
            log=self._log,
            term=self.term,
            configurations=self.configurations,
            up=self._up,
            now_ns=now_ns,
            send=self._send,
            send_append=self._send_append,
            snapshot_offer=self._snapshot_offer,
        )

    def _is_up_to_date(self, request: PreVoteRequest | VoteRequest) -> bool:
        last_index = self._log.last_index
        return (request.last_term, request.last_index) >= (self._log.term_at(last_index) or 0, last_index)

    def _on_pre_vote_request(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, PreVoteRequest)
        self._doubt_leader(sender, now_ns)
        if message.term <= self.term:
            self.sends.append((sender, TermNotice(term=self.term)))
        elif not self._has_leader() and self._is_up_to_date(message):
            self.sends.append((sender, PreVoteGrant(term=message.term)))

    def _on_vote_request(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, VoteRequest)
        self._doubt_leader(sender, now_ns)
        if message.term < self.term:
            self.sends.append((sender, TermNotice(term=self.term)))
            return
        if self._has_leader() and not message.transfer:
            return
        if message.term > self.term:
            self._follow(message.term, None, now_ns)
        may_vote = self.role is Role.FOLLOWER and self.leader is None and self._vote in {None, sender}
        if may_vote and self._is_up_to_date(message):
            if self._vote is None:
                self._vote = sender
                self._log.set_hard_state(HardState(term=self.term, vote=sender))
            self._restart_timer(now_ns)
            self._ballot = None
            self._send(sender, VoteGrant(term=self.term))

    def _doubt_leader(self, sender: NodeId, now_ns: int) -> None:
        """The node that we follow asks for votes: it does not lead any more."""
        if sender == self.leader and self._leadership is None:
            self._drop_claim(now_ns)

    def _on_grant(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, PreVoteGrant | VoteGrant)
        ballot = self._ballot
        is_preliminary = isinstance(message, PreVoteGrant)
        if ballot is not None and ballot.term == message.term and ballot.preliminary == is_preliminary:
            ballot.grant(sender)
            self._count(now_ns)

    def _on_term_notice(self, _sender: NodeId, message: Message, now_ns: int) -> None:
        if message.term > self.term:
            self._follow(message.term, None, now_ns)

    def _on_transfer_now(self, sender: NodeId, message: Message, now_ns: int) -> None:
        if message.term == self.term and sender == self.leader and self._leadership is None:
            self._stand(now_ns, transfer=True)

    # Following.

    def _hears_leader(self, sender: NodeId, term: int, now_ns: int) -> bool:
        """A message that only a leader sends: follow it, or tell it that its term is over (rule 8)."""
        if term < self.term:
            self.sends.append((sender, TermNotice(term=self.term)))
            return False
        assert not (term == self.term and self._leadership is not None), "two leaders in one term"
        if term > self.term or sender != self.leader or self.role is not Role.FOLLOWER:
            self._follow(term, sender, now_ns)
        if sender not in self._up:
            self._ballot = None
            self._restart_timer(now_ns)  # a late message of an old session: contact, but no claim
        elif not self._claimed:
            self._claimed = True
            self._election_ns = self._ballot = None
            self.sends.append((sender, LeaderSeen(term=term)))
        return True

    def _on_append(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, Append)
        if not self._hears_leader(sender, message.term, now_ns):
            return
        outcome = accept(self._log, self.commit_index, message)
        if isinstance(outcome, Refused):
            self._send(
                sender,
                AppendRejected(term=self.term, prev_index=message.prev_index, hint_index=outcome.hint_index),
            )
            return
        if outcome.cut_index is not None and self.configurations.cut_from(outcome.cut_index):
            self._configuration_changed(now_ns)
        if outcome.appended_from is not None:
            self._note_configurations(message.entries[outcome.appended_from :], now_ns)
        self._verified_index = max(self._verified_index, outcome.index)
        self._learn_commit(message.commit_index)
        self._send(sender, AppendAccepted(term=self.term, prev_index=message.prev_index, verified_index=outcome.index))

    def _note_configurations(self, entries: Sequence[Entry], now_ns: int) -> None:
        """A configuration is in force as soon as it is in the log (rule 27)."""
        for entry in entries:
            if entry.kind == Kind.RAFT_CONFIG:
                self.configurations.append(entry.index, Configuration.decode(entry.frame[FRAME_HEADER_BYTES:]))
                self._configuration_changed(now_ns)

    def _configuration_changed(self, now_ns: int) -> None:
        if self.node_id not in self.configuration.voters:
            self._election_ns = self._ballot = None
        elif not self._has_leader() and self._election_ns is None:
            self._restart_timer(now_ns)

    def _learn_commit(self, leader_commit: int) -> None:
        """Only what was verified against this leader can be known to be committed (rule 10)."""
        self.commit_index = max(self.commit_index, min(leader_commit, self._verified_index))

    def _on_commit_notice(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, CommitNotice)
        if self._hears_leader(sender, message.term, now_ns):
            self._learn_commit(message.commit_index)

    def _on_resigned(self, sender: NodeId, message: Message, now_ns: int) -> None:
        if message.term != self.term:
            return
        if self._leadership is not None:
            self._leadership.on_gone(sender, now_ns)
        elif sender == self.leader:
            self._drop_claim(now_ns)

    def _on_read_probe(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, ReadProbe)
        if self._hears_leader(sender, message.term, now_ns):
            self.sends.append((sender, ReadProbeSeen(term=self.term, round=message.round)))

    # Snapshots: the shell fetches and installs, the core judges before and answers after.

    def _on_snapshot_offer(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, SnapshotOffer)
        if not self._hears_leader(sender, message.term, now_ns):
            return
        is_old = message.index <= self.commit_index or self._log.term_at(message.index) == message.index_term
        if is_old:  # never go backwards (rule 35); the leader finds the match by probing from here
            self._verified_index = max(self._verified_index, min(message.index, self._log.last_index))
            self._send(sender, AppendAccepted(term=self.term, prev_index=0, verified_index=self._verified_index))
        else:
            self.pending_offer = (sender, message)

    def installed(self, sender: NodeId, offer: SnapshotOffer, now_ns: int) -> None:
        """The log now begins after the offered snapshot; acknowledged when that is durable (rule 34)."""
        assert self._log.boundary == (offer.index, offer.index_term)
        self.configurations.reset(offer.index, Configuration.decode(offer.members))
        self.commit_index = max(self.commit_index, offer.index)
        self._configuration_changed(now_ns)
        if sender == self.leader and offer.term == self.term:
            self._verified_index = max(self._verified_index, offer.index)
            self._send(sender, AppendAccepted(term=self.term, prev_index=0, verified_index=offer.index))

    # Leading.

    def _leads(self, term: int) -> Leadership | None:
        """The leadership that an answer of `term` belongs to; answers of other terms are dropped (rule 12)."""
        return self._leadership if term == self.term else None

    def _on_append_accepted(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, AppendAccepted)
        leadership = self._leads(message.term)
        if leadership is not None:
            leadership.on_accepted(sender, message, now_ns)
            self._advance_commit()

    def _on_append_rejected(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, AppendRejected)
        leadership = self._leads(message.term)
        if leadership is not None:
            leadership.on_rejected(sender, message, now_ns)

    def _on_leader_seen(self, sender: NodeId, message: Message, now_ns: int) -> None:
        leadership = self._leads(message.term)
        if leadership is not None:
            leadership.on_seen(sender, now_ns)

    def _on_read_probe_seen(self, sender: NodeId, message: Message, now_ns: int) -> None:
        assert isinstance(message, ReadProbeSeen)
        leadership = self._leads(message.term)
        if leadership is not None:
            leadership.on_read_seen(sender, message, now_ns)

    def _advance_commit(self) -> None:
        if self._leadership is not None:
            self.commit_index = max(self.commit_index, self._leadership.quorum_index())

    # Sending.

    def _send(self, to: NodeId, message: Message) -> None:
        """Send when everything written so far is durable."""
        token = self._log.token()
        if token <= self._log.durable_token:
            self.sends.append((to, message))
        else:
            self._held.append((token, to, message))

    def _send_append(self, to: NodeId, message: Message) -> None:
        """Send when term and vote are durable: the entries themselves may still be on their way to the disk."""
        if self._log.hard_state_token <= self._log.durable_token:
            self.sends.append((to, message))
        else:
            self._send(to, message)


_HANDLERS: dict[type, str] = {
    PreVoteRequest: "_on_pre_vote_request",
    PreVoteGrant: "_on_grant",
    VoteRequest: "_on_vote_request",
    VoteGrant: "_on_grant",
    TermNotice: "_on_term_notice",
    TransferNow: "_on_transfer_now",
    Append: "_on_append",
    CommitNotice: "_on_commit_notice",
    ReadProbe: "_on_read_probe",
    Resigned: "_on_resigned",
    SnapshotOffer: "_on_snapshot_offer",
    AppendAccepted: "_on_append_accepted",
    AppendRejected: "_on_append_rejected",
    LeaderSeen: "_on_leader_seen",
    ReadProbeSeen: "_on_read_probe_seen",
}
