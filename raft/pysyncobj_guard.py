"""The guard around PySyncObj: what stands between one member of a group and a library that would break its promises.

PySyncObj (the *replica* here) decides terms, the one vote of a term, who won an election, what is appended and cut, and
what a majority has. The guard decides what it gets to see and what of its decisions leaves the node, and when:

    hole in PySyncObj 0.3.17                          closed by
    nothing is fsynced before it is promised          answers wait in `_held` for the log's token (rules 2 and 3)
    a leader counts itself before its disk has it     commit = min(replica's, durable); a group of one has its disk as
                                                      second voter (rules 4 and 5)
    an append deletes what is equal                   `pysyncobj_compare`
    commits beyond what was compared                  commit = min(leader's, verified) (rule 10)
    answers without term, votes without voter         both are on the wire here; each voter is counted once (rules 12, 17)
    no pre-vote, no stickiness, disruptive returns    pre-votes are the guard's; a replica that sees no peer never stands
    follower and leader swing, resend, never pause    peers are fed by `replication`, the replica learns only the matches
    snapshots and membership commands are pickles     snapshots are the group's, the membership is fixed

A replica steps down when it hears of a higher term, from nobody in particular, in a request that it cannot grant. What
PySyncObj has no notion of (contact with a majority, transfer, read rounds, windows) is the core's own `Leadership`.
Contact, claims and waits are those of raft/engine.py, so members with either engine understand each other.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from jetraft.raft.acceptor import LogDivergedError
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
from jetraft.raft.pysyncobj_compare import Mismatch, news_of
from jetraft.store.format import Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog, HardState

OWN_DISK: Final = NodeId("own disk")  # the second voter of a group of one: it grants and holds what is durable


class FixedMembershipError(LogDivergedError):
    """The log of the group changes its members, which this engine does not follow. The group halts."""


class Replica(Protocol):
    """PySyncObj as the guard sees it. Indices are the log's; every method returns when its effect is in the log."""

    @property
    def term(self) -> int:
        """The current term."""
        ...

    @property
    def leads(self) -> bool:
        """Whether it takes itself for the leader."""
        ...

    @property
    def stands(self) -> bool:
        """Whether it is a candidate."""
        ...

    @property
    def commit_index(self) -> int:
        """What it takes for committed, durable or not."""
        ...

    def stand(self) -> None:
        """Begin an election in the next term, with the own vote."""
        ...

    def raise_term(self, term: int) -> None:
        """Be a follower in a higher term, without a vote and a leader."""
        ...

    def asked_for_vote(self, candidate: NodeId, request: VoteRequest) -> bool:
        """Take over the candidate's term if it is higher; returns whether the vote is given."""
        ...

    def count_vote(self, voter: NodeId) -> None:
        """One more vote of the current term."""
        ...

    def follow(self, leader: NodeId, term: int) -> None:
        """Be a follower of this leader."""
        ...

    def take(self, leader: NodeId, *, prev_index: int, entries: Sequence[Entry], commit_index: int) -> None:
        """Cut what follows `prev_index`, append, and move the commit index up to `commit_index` at most."""
        ...

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Append one entry each, as leader."""
        ...

    def holds(self, member: NodeId, index: int) -> None:
        """A voter holds the log up to `index`: count anew what a majority has."""
        ...


class GuardedLeadership(Leadership):
    """One term of leadership whose entries PySyncObj appends, the no-op at its start by itself."""

    def __init__(  # noqa: PLR0913  (what the guard lends it)
        self,
        setup: CoreSetup,
        *,
        log: GroupLog,
        term: int,
        configurations: ConfigurationHistory,
        up: set[NodeId],
        now_ns: int,
        send: Callable[[NodeId, Message], None],
        snapshot_offer: Callable[[int], SnapshotOffer | None],
        append: Callable[[Sequence[Proposal]], None],
    ) -> None:
        self._append = append
        super().__init__(
            setup,
            log=log,
            term=term,
            configurations=configurations,
            up=up,
            now_ns=now_ns,
            send=send,
            snapshot_offer=snapshot_offer,
        )
        for peer in self.replication.peers.values():
            peer.next_index = self.term_start_index  # ask for the match just before the no-op, which is new to all

    def propose(self, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal and return the first index. The no-op is there already."""
        if proposals[0].kind == Kind.NOOP:
            return self._log.last_index
        first_index = self._log.last_index + 1
        self._append(proposals)
        assert self._log.last_index == first_index + len(proposals) - 1, "PySyncObj appends what its leader proposes"
        return first_index


class Guard:
    """One member of one group: implements jetraft.raft.engine.Engine with the help of a replica."""

    __slots__ = (
        "_alone",
        "_configurations",
        "_held",
        "_open_replica",
        "_replica",
        "_setup",
        "_snapshot_offer",
        "_term_seen",
        "ballot",
        "claimed",
        "commit_index",
        "election_ns",
        "leader",
        "leadership",
        "log",
        "node_id",
        "pending_offer",
        "sends",
        "timing",
        "up",
        "verified_index",
    )

    def __init__(  # noqa: PLR0913  (as Core, and the door to the library)
        self,
        setup: CoreSetup,
        *,
        log: GroupLog,
        configurations: ConfigurationHistory,
        commit_index: int,
        snapshot_offer: Callable[[int], SnapshotOffer | None],
        open_replica: Callable[[Sequence[NodeId], int], Replica],
    ) -> None:
        self._setup = setup
        self._snapshot_offer = snapshot_offer
        self._open_replica = open_replica
        self._configurations = configurations
        self._held: deque[tuple[int, NodeId, Message]] = deque()
        self.node_id = setup.node_id
        self.timing = setup.timing
        self.log = log
        self.leader: NodeId | None = None
        self.leadership: GuardedLeadership | None = None  # exactly while leader
        self.ballot: Ballot | None = None  # while asking for votes
        self.election_ns: int | None = None  # None while a leader claims the group, and for those who do not vote
        self.claimed = False  # the leader spoke in this link session
        self.commit_index = commit_index
        self.verified_index = 0  # the log equals the current leader's up to here
        self.up: set[NodeId] = set()
        self.sends: list[tuple[NodeId, Message]] = []
        self.pending_offer: tuple[NodeId, SnapshotOffer] | None = None
        self._boot()

    def _boot(self) -> None:
        """A replica over the log as it is now."""
        voters = self.configuration.voters
        self._alone = voters == (self.node_id,)
        others = [OWN_DISK] if self._alone else [voter for voter in voters if voter != self.node_id]
        self._replica = self._open_replica(others, self.commit_index)
        self._term_seen = self._replica.term

    # What the shell reads.

    @property
    def role(self) -> Role:
        """The role in the current term."""
        if self.leadership is not None:
            return Role.LEADER
        return Role.CANDIDATE if self._replica.stands else Role.FOLLOWER

    @property
    def term(self) -> int:
        """The current term."""
        return self._replica.term

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
        """The configuration that the group was created with."""
        return self._configurations.current

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
        if self._alone:
            self._stand(now_ns, transfer=False)
        elif self._setup.eager and self.log.last_index == 0:
            self._ask_pre_votes(now_ns)
        else:
            self._restart_timer(now_ns)

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message arrived. Raises LogDivergedError, after which the group must stop."""
        HANDLERS[type(message)](self, sender, message, now_ns)

    def tick(self, now_ns: int) -> None:
        """The deadline passed."""
        if self.leadership is not None:
            if self.leadership.tick(now_ns):
                self._raise_term(self.term + 1, now_ns)  # PySyncObj leads until it hears of a higher term
        elif self.election_ns is not None and self.election_ns <= now_ns:
            self._ask_pre_votes(now_ns)
        elif self.ballot is not None and self.ballot.resend_ns <= now_ns:
            self.ballot.resend_ns = now_ns + self.timing.vote_retry_ns
            self._ask(self.ballot)

    def persisted(self, now_ns: int) -> None:
        """The log's durable token moved: release what waited, and let the own disk of a group of one speak."""
        durable_token = self.log.durable_token
        while self._held and self._held[0][0] <= durable_token:
            _, to, message = self._held.popleft()
            self.sends.append((to, message))
        if self._alone and self.log.hard_state_token <= durable_token:
            if self._replica.stands:
                self._replica.count_vote(OWN_DISK)
                self._lead_if_won(now_ns)
            if self.leadership is not None:
                self._replica.holds(OWN_DISK, self.log.durable_index)
        self._advance_commit()

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

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """The link session ended: its claim and what was in flight are gone."""
        self.up.discard(node)
        if self.leadership is not None:
            self.leadership.link_changed(node, up=False, now_ns=now_ns)
        elif node == self.leader:
            self._drop_claim(now_ns)

    def installed(self, sender: NodeId, offer: SnapshotOffer, last_index: int, now_ns: int) -> None:
        """The log was replaced by the leader's, up to `last_index`: a new replica goes on with it."""
        assert self.leadership is None
        assert self.log.boundary[0] <= offer.index <= last_index
        self._configurations.reset(offer.index, Configuration.decode(offer.members))
        self.commit_index = max(self.commit_index, offer.index)
        leader = self.leader
        self._boot()
        if sender == leader and offer.term == self.term:
            self._replica.follow(sender, self.term)
            self.verified_index = max(self.verified_index, last_index)
            self._send(sender, AppendAccepted(term=self.term, prev_index=0, verified_index=last_index))

    def transfer(self, target: NodeId | None, now_ns: int) -> bool:
        """Hand leadership over, to whoever is most advanced when `target` is None. Returns whether that has begun."""
        return self.leadership is not None and self.leadership.begin_transfer(target, now_ns) is not None

    def begin_read(self) -> int:
        """Start a read round (rule 21): the commit index of now may be read when the round is confirmed."""
        assert self.leadership is not None, "only a leader confirms reads"
        return self.leadership.begin_read()

    def change_members(self, _configuration: Configuration, _now_ns: int) -> int:
        """Always raises MembershipChangeRefusedError."""
        raise MembershipChangeRefusedError("raft_engine pysyncobj keeps a group's members as they were at its creation")

    def resign(self, now_ns: int) -> None:
        """Take no part any more: the replica is removed or its log has failed. Peers learn it at once."""
        if self.leadership is not None:
            self._end_leadership(self.leadership)
        elif self.leader is not None:
            self.sends.append((self.leader, Resigned(term=self.term)))
        self.leader = self.election_ns = self.ballot = None
        self._held.clear()

    # Elections.

    def _ask_pre_votes(self, now_ns: int) -> None:
        """Could I win the next term? Nothing changes until a majority says yes."""
        ballot = self._begin(self.term + 1, now_ns, preliminary=True)
        ballot.grant(self.node_id)
        self._ask(ballot)
        self._stand_if_wanted(now_ns)

    def _stand_if_wanted(self, now_ns: int) -> None:
        if self.ballot is not None and self.ballot.preliminary and self.ballot.is_won(self.configuration):
            self._stand(now_ns, transfer=False)

    def _stand(self, now_ns: int, *, transfer: bool) -> None:
        """A real election. The request leaves when the own vote is durable, so a grant proves that it counts (rule 4)."""
        if self.node_id not in self.configuration.voters:
            return
        self._replica.stand()
        self._notice(now_ns)
        self._ask(self._begin(self.term, now_ns, preliminary=False, transfer=transfer))

    def _begin(self, term: int, now_ns: int, *, preliminary: bool, transfer: bool = False) -> Ballot:
        self._restart_timer(now_ns)
        self.claimed, self.leader = False, None
        resend_ns = now_ns + self.timing.vote_retry_ns
        self.ballot = Ballot(term=term, preliminary=preliminary, transfer=transfer, resend_ns=resend_ns)
        return self.ballot

    def _ask(self, ballot: Ballot) -> None:
        """Send the request to every voter that has not granted yet."""
        last_index = self.log.last_index
        last_term = self.log.term_at(last_index) or 0
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

    def _on_grant(self, sender: NodeId, message: PreVoteGrant | VoteGrant, now_ns: int) -> None:
        """A yes, which counts once, for the ballot of its term and kind, and from a voter only (rule 17)."""
        ballot = self.ballot
        if ballot is None or (ballot.term, ballot.preliminary) != (message.term, isinstance(message, PreVoteGrant)):
            return
        if sender not in ballot.silent(self.configuration):
            return
        ballot.grant(sender)
        if ballot.preliminary:
            self._stand_if_wanted(now_ns)
        else:
            self._replica.count_vote(sender)
            self._lead_if_won(now_ns)

    def _on_pre_vote_request(self, sender: NodeId, message: PreVoteRequest, now_ns: int) -> None:
        """Say yes when the real request would be granted; promises nothing."""
        self._doubt_leader(sender, now_ns)
        if self.leadership is not None:
            self.leadership.replication.probe_again(sender)  # it does not know us as its leader: claim again
        last_index = self.log.last_index
        own_end = (self.log.term_at(last_index) or 0, last_index)
        if message.term <= self.term:
            self.sends.append((sender, TermNotice(term=self.term)))
        elif not self.has_leader and (message.last_term, message.last_index) >= own_end:
            self.sends.append((sender, PreVoteGrant(term=message.term)))

    def _on_vote_request(self, sender: NodeId, message: VoteRequest, now_ns: int) -> None:
        """Let the replica judge, unless a leader is alive (rule 18). A vote given before is given again."""
        self._doubt_leader(sender, now_ns)
        if message.term < self.term:
            self.sends.append((sender, TermNotice(term=self.term)))
            return
        if self.has_leader and not message.transfer:
            return
        given = self.log.hard_state == HardState(term=message.term, vote=sender)
        given = self._replica.asked_for_vote(sender, message) or given
        self._notice(now_ns)
        if given:
            self.ballot = None
            self._restart_timer(now_ns)
            self._send(sender, VoteGrant(term=self.term))

    def _doubt_leader(self, sender: NodeId, now_ns: int) -> None:
        """The node that we follow asks for votes: it does not lead any more."""
        if sender == self.leader and self.leadership is None:
            self._drop_claim(now_ns)

    def _on_term_notice(self, _sender: NodeId, message: TermNotice, now_ns: int) -> None:
        """Somebody is in a higher term: so are we."""
        if message.term > self.term:
            self._raise_term(message.term, now_ns)

    def _on_transfer_now(self, sender: NodeId, message: TransferNow, now_ns: int) -> None:
        """The current leader asks us to take over (rule 20)."""
        if message.term == self.term and sender == self.leader and self.leadership is None:
            self._stand(now_ns, transfer=True)

    # Following.

    def _hears_leader(self, sender: NodeId, term: int, now_ns: int) -> bool:
        """Follow the sender, or tell it that its term is over and return False (rule 8)."""
        if term < self.term:
            self.sends.append((sender, TermNotice(term=self.term)))
            return False
        assert not (term == self.term and self.leadership is not None), "two leaders in one term"
        if term > self.term or sender != self.leader or self._replica.stands:
            self._replica.follow(sender, term)
            self._notice(now_ns)
            self.leader, self.ballot, self.claimed, self.verified_index = sender, None, False, 0
            self._restart_timer(now_ns)
        if sender not in self.up:
            self.ballot = None
            self._restart_timer(now_ns)  # a late message of an old session: contact, but no claim
        elif not self.claimed:
            self.claimed = True
            self.election_ns = self.ballot = None
            self.sends.append((sender, LeaderSeen(term=term)))
        return True

    def _on_append(self, sender: NodeId, message: Append, now_ns: int) -> None:
        """Bring the log in line and acknowledge, once durable, exactly what was verified (rules 9 to 12)."""
        if not self._hears_leader(sender, message.term, now_ns):
            return
        news = news_of(self.log, self.commit_index, message)
        if isinstance(news, Mismatch):
            rejected = AppendRejected(term=self.term, prev_index=message.prev_index, hint_index=news.hint_index)
            self._send(sender, rejected)
            return
        self._refuse_other_members(news.entries, cut_index=news.prev_index + 1 if news.cuts else None)
        self.verified_index = max(self.verified_index, news.verified_index)
        commit_index = min(message.commit_index, self.verified_index)
        if news.entries or commit_index > self._replica.commit_index:
            self._replica.take(sender, prev_index=news.prev_index, entries=news.entries, commit_index=commit_index)
        self._advance_commit()
        accepted = AppendAccepted(term=self.term, prev_index=message.prev_index, verified_index=news.verified_index)
        self._send(sender, accepted)

    def _refuse_other_members(self, entries: Sequence[Entry], *, cut_index: int | None) -> None:
        """Halt at a configuration entry, new or to be cut: both change who votes, and PySyncObj would not know."""
        arrives = any(entry.kind == Kind.RAFT_CONFIG for entry in entries)
        goes = cut_index is not None and self._configurations.current_index >= cut_index
        if arrives or goes:
            raise FixedMembershipError(
                "raft_engine pysyncobj does not follow a change of members; use raft_engine core"
            )

    def _on_commit_notice(self, sender: NodeId, message: CommitNotice, now_ns: int) -> None:
        """The leader's commit index moved; what was verified against this leader can be committed (rule 10)."""
        if self._hears_leader(sender, message.term, now_ns):
            commit_index = min(message.commit_index, self.verified_index)
            if commit_index > self._replica.commit_index:
                self._replica.take(sender, prev_index=self.log.last_index, entries=(), commit_index=commit_index)
                self._advance_commit()

    def _on_resigned(self, sender: NodeId, message: Resigned, now_ns: int) -> None:
        """The leader gave up, or a member takes no part any more."""
        if message.term != self.term:
            return
        if self.leadership is not None:
            self.leadership.on_gone(sender, now_ns)
        elif sender == self.leader:
            self._drop_claim(now_ns)

    def _on_read_probe(self, sender: NodeId, message: ReadProbe, now_ns: int) -> None:
        """The leader asks whether we still follow it."""
        if self._hears_leader(sender, message.term, now_ns):
            self.sends.append((sender, ReadProbeSeen(term=self.term, round=message.round)))

    def _on_snapshot_offer(self, sender: NodeId, message: SnapshotOffer, now_ns: int) -> None:
        """Ignore what the own log covers (rule 35), else ask the shell to fetch it (`pending_offer`)."""
        if not self._hears_leader(sender, message.term, now_ns):
            return
        if message.index <= self.commit_index or self.log.term_at(message.index) == message.index_term:
            self.verified_index = max(self.verified_index, message.index)
            self._send(sender, AppendAccepted(term=self.term, prev_index=0, verified_index=message.index))
        else:
            self.pending_offer = (sender, message)

    # Leading.

    def _lead_if_won(self, now_ns: int) -> None:
        """The replica counts the votes; its no-op is in the log when it leads."""
        if not self._replica.leads or self.leadership is not None:
            return
        self.leader, self.ballot, self.election_ns = self.node_id, None, None
        self.leadership = GuardedLeadership(
            self._setup,
            log=self.log,
            term=self.term,
            configurations=self._configurations,
            up=self.up,
            now_ns=now_ns,
            send=self._send_in_term,
            snapshot_offer=self._snapshot_offer,
            append=self._replica.propose,
        )

    def _leads(self, term: int) -> GuardedLeadership | None:
        """Answers of other terms are dropped (rule 12)."""
        return self.leadership if term == self.term else None

    def _on_append_accepted(self, sender: NodeId, message: AppendAccepted, now_ns: int) -> None:
        """A member holds more of the log; the replica is told of voters only."""
        leading = self._leads(message.term)
        peer = None if leading is None else leading.replication.peers.get(sender)
        if leading is None or peer is None:
            return
        match_index = peer.match_index
        leading.on_accepted(sender, message, now_ns)
        if peer.match_index > match_index and sender in self.configuration.voters:
            self._replica.holds(sender, peer.match_index)
            self._advance_commit()

    def _on_append_rejected(self, sender: NodeId, message: AppendRejected, now_ns: int) -> None:
        """A member's log differs."""
        leading = self._leads(message.term)
        if leading is not None:
            leading.on_rejected(sender, message, now_ns)

    def _on_leader_seen(self, sender: NodeId, message: LeaderSeen, now_ns: int) -> None:
        """A member follows us in this link session."""
        leading = self._leads(message.term)
        if leading is not None:
            leading.on_seen(sender, now_ns)

    def _on_read_probe_seen(self, sender: NodeId, message: ReadProbeSeen, now_ns: int) -> None:
        """A member still followed us when the probe came."""
        leading = self._leads(message.term)
        if leading is not None:
            leading.on_read_seen(sender, message, now_ns)

    # Terms and timers.

    def _raise_term(self, term: int, now_ns: int) -> None:
        self._replica.raise_term(term)
        self._notice(now_ns)

    def _notice(self, now_ns: int) -> None:
        """The replica may be in another term now: what belonged to the old one is over."""
        if self.term == self._term_seen:
            return
        self._term_seen = self.term
        if self.leadership is not None:
            self._end_leadership(self.leadership)
        self.leader, self.ballot, self.claimed, self.verified_index = None, None, False, 0
        self._held.clear()
        self._restart_timer(now_ns)

    def _end_leadership(self, leadership: GuardedLeadership) -> None:
        for node in leadership.replication.peers:
            self.sends.append((node, Resigned(term=leadership.term)))
        self.leadership = None

    def _drop_claim(self, now_ns: int) -> None:
        """The leader is silent or gave up: look for another soon, not all members at the same moment."""
        self.claimed, self.leader, self.verified_index = False, None, 0
        if self.ballot is None:
            self._arm_timer(now_ns, 0, self.timing.failover_spread_ns)

    def _restart_timer(self, now_ns: int) -> None:
        """Wait for a leader for a random while."""
        self._arm_timer(now_ns, self.timing.election_min_ns, self.timing.election_max_ns)

    def _arm_timer(self, now_ns: int, low_ns: int, high_ns: int) -> None:
        is_voter = self.node_id in self.configuration.voters
        self.election_ns = now_ns + self._setup.rng.randrange(low_ns, high_ns) if is_voter else None

    def _advance_commit(self) -> None:
        """A leader's own vote for an entry is its fsync: the replica's count without it is capped (rule 4)."""
        self.commit_index = max(self.commit_index, min(self._replica.commit_index, self.log.durable_index))

    # Sending.

    def _send(self, to: NodeId, message: Message) -> None:
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
            self._send(to, message)


HANDLERS: Final[dict[type, Callable[..., None]]] = {
    PreVoteRequest: Guard._on_pre_vote_request,
    PreVoteGrant: Guard._on_grant,
    VoteRequest: Guard._on_vote_request,
    VoteGrant: Guard._on_grant,
    TermNotice: Guard._on_term_notice,
    TransferNow: Guard._on_transfer_now,
    Append: Guard._on_append,
    CommitNotice: Guard._on_commit_notice,
    Resigned: Guard._on_resigned,
    ReadProbe: Guard._on_read_probe,
    SnapshotOffer: Guard._on_snapshot_offer,
    AppendAccepted: Guard._on_append_accepted,
    AppendRejected: Guard._on_append_rejected,
    LeaderSeen: Guard._on_leader_seen,
    ReadProbeSeen: Guard._on_read_probe_seen,
}
