"""The guard around PySyncObj: what stands between one member of a group and a library that would break its promises.

PySyncObj (the *replica* here) decides terms, the one vote of a term, who won an election, what is appended and cut, and
what a majority has. The guard decides what it gets to see and what of its decisions leaves the node, and when:

    hole in PySyncObj 0.3.17                         closed by
    nothing is fsynced before it is promised         answers wait in `_held` for the log's token (rules 2 and 3)
    a leader counts itself before its disk has it    commit = min(the replica's, durable); a group of one has its disk
                                                     as second voter (rules 4 and 5)
    an append deletes what is equal                  `pysyncobj_compare` (rule 9)
    it commits beyond what was compared              commit = min(the leader's, verified) (rule 10)
    acks without a term, votes without a voter       the wire has both; each voter is counted once (rules 12 and 17)
    no pre-vote, a living leader is voted out        pre-votes come first; a replica that sees no peer never stands
    diverged peers swing, everything is resent       peers are fed by `replication`; the replica learns the matches
    snapshots and membership commands are pickles    snapshots are the group's, the membership is fixed

A leader steps down by a higher term, in a request from nobody in particular that cannot be granted. What PySyncObj has
no notion of (contact with a majority, transfer, read rounds, windows) is the core's own `Leadership`; elections and
following are written anew, so that the comparison of the two engines in the simulator means something. Messages,
claims and waits are those of raft/engine.py: members with either engine understand each other.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from jetraft.raft import pysyncobj_electing as electing
from jetraft.raft import pysyncobj_following as following
from jetraft.raft import pysyncobj_leading as leading
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
from jetraft.raft.leadership import MembershipChangeRefusedError
from jetraft.raft.membership import Configuration, ConfigurationHistory
from jetraft.raft.pysyncobj_replica import OWN_DISK, Replica
from jetraft.store.model.fifo import Fifo
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog

if TYPE_CHECKING:
    from jetraft.raft.ballot import Ballot


class Guard:
    """One member of one group: implements jetraft.raft.engine.Engine with the help of a replica."""

    __slots__ = (
        "_alone",
        "_held",
        "_term_seen",
        "ballot",
        "claimed",
        "commit_index",
        "configurations",
        "leader",
        "leadership",
        "log",
        "node_id",
        "pending_offer",
        "pre_ballot",
        "reluctant",
        "replica",
        "sends",
        "setup",
        "snapshot_offer",
        "timer",
        "timing",
        "told_index",
        "up",
        "verified_index",
    )

    members_may_change: Final = False

    def __init__(  # noqa: PLR0913  (as Core, and the door to the library)
        self,
        setup: CoreSetup,
        *,
        log: GroupLog,
        configurations: ConfigurationHistory,
        commit_index: int,
        snapshot_offer: Callable[[int], SnapshotOffer | None],
        open_replica: Callable[[Sequence[NodeId]], Replica],
    ) -> None:
        self.setup = setup
        self.snapshot_offer = snapshot_offer
        self.configurations = configurations
        self._held: Fifo[tuple[int, NodeId, Message]] = Fifo()
        self.node_id = setup.node_id
        self.timing = setup.timing
        self.log = log
        self.leader: NodeId | None = None
        self.leadership: leading.GuardedLeadership | None = None  # exactly while leader
        self.ballot: Ballot | None = None  # of the present term, while asking for votes; a pre-vote leaves it alone
        self.pre_ballot: Ballot | None = None  # of the next term, while asking whether that could be won
        self.timer = ElectionTimer(setup)
        self.claimed = False  # the leader spoke in this link session
        self.told_index: int | None = None  # the commit index that it spoke of last, since the claim began
        self.commit_index = commit_index
        self.verified_index = 0  # the log equals that of this term's leader up to here
        self.up: set[NodeId] = set()
        self.sends: list[tuple[NodeId, Message]] = []
        self.pending_offer: tuple[NodeId, SnapshotOffer] | None = None
        self.reluctant = False
        voters = self.configuration.voters
        self._alone = voters == (self.node_id,)
        others = [voter for voter in voters if voter != self.node_id]
        self.replica = open_replica([OWN_DISK] if self._alone else others)
        self._term_seen = self.replica.term

    # What the shell reads.

    @property
    def role(self) -> Role:
        """The role in the current term."""
        if self.leadership is not None:
            return Role.LEADER
        return Role.CANDIDATE if self.replica.stands else Role.FOLLOWER

    @property
    def term(self) -> int:
        """The current term."""
        return self.replica.term

    @property
    def vote(self) -> NodeId | None:
        """Whom this member voted for in the current term."""
        return self.log.hard_state.vote

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
        if self._alone:
            electing.stand(self, now_ns, transfer=False)
        elif self.is_preferred:
            electing.ask_pre_votes(self, now_ns)
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
                self.raise_term(self.term + 1, now_ns)  # PySyncObj leads until it hears of a higher term
            return
        due_ns = self.timer.deadline_ns
        if due_ns is None:
            return
        if due_ns <= now_ns:
            electing.look_for_leader(self, now_ns)
        for ballot in (self.ballot, self.pre_ballot):
            if ballot is not None and ballot.resend_ns <= now_ns:
                electing.ask(self, ballot, now_ns)

    def persisted(self, now_ns: int) -> None:
        """The log's durable token moved: release what waited, and let the own disk of a group of one speak."""
        durable_token = self.log.durable_token
        while self._held and self._held[0][0] <= durable_token:
            _, to, message = self._held.popleft()
            self.sends.append((to, message))
        if self.timer.pending_ns is not None and self.log.hard_state_token <= durable_token:
            electing.on_promise_kept(self, now_ns)
        if self._alone and self.log.hard_state_token <= durable_token:
            if self.replica.stands:
                self.replica.count_vote(OWN_DISK)
                leading.lead_if_won(self, now_ns)
            if self.leadership is not None:
                self.replica.holds(OWN_DISK, self.log.durable_index)
        if self.leadership is not None:
            self.count_commit()

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

    def forget_member(self, node: NodeId) -> None:
        """Members never change here, so none is admitted that has lost its memory."""

    def change_members(self, configuration: Configuration, now_ns: int) -> int:  # noqa: ARG002  (the engine's face)
        """Always raises MembershipChangeRefusedError."""
        raise MembershipChangeRefusedError("raft_engine pysyncobj keeps a group's members as they were at its creation")

    def outlive(self, configuration: Configuration, term: int, now_ns: int) -> None:  # noqa: ARG002
        """Never called: `members_may_change` says no."""
        raise MembershipChangeRefusedError("raft_engine pysyncobj keeps a group's members as they were at its creation")

    def resign(self, now_ns: int) -> None:  # noqa: ARG002  (the engine's face)
        """Take no part any more: the replica is removed or its log has failed. Peers learn it at once."""
        if self.leadership is not None:
            self._end_leadership(self.leadership)
        elif self.leader is not None:
            self.sends.append((self.leader, Resigned(term=self.term)))
        self.leader = self.ballot = self.pre_ballot = None
        self.timer.stop()
        self._held.clear()

    # Terms and timers.

    def raise_term(self, term: int, now_ns: int) -> None:
        """Follow nobody in a higher term."""
        self.replica.raise_term(term)
        self.notice(now_ns)

    def notice(self, now_ns: int) -> None:
        """The replica may be in another term now: what belonged to the old one is over."""
        if self.term == self._term_seen:
            return
        self._term_seen = self.term
        if self.leadership is not None:
            self._end_leadership(self.leadership)
        self.leader, self.claimed, self.verified_index = None, False, 0
        self.ballot = self.pre_ballot = None
        self._held.clear()
        self.note_promise(now_ns)
        self.restart_timer(now_ns)

    def note_promise(self, now_ns: int) -> None:
        """The replica may have set term or vote: until they are durable this member waits for nothing else."""
        if self.log.hard_state_token > self.log.durable_token:
            self.timer.promise(now_ns)

    def _end_leadership(self, leadership: leading.GuardedLeadership) -> None:
        for node in leadership.replication.peers:
            self.sends.append((node, Resigned(term=leadership.term)))
        self.leadership = None

    def drop_claim(self, now_ns: int) -> None:
        """The leader is silent or gave up: look for another soon, not all members at the same moment."""
        self.claimed, self.leader = False, None
        if self.ballot is None and self.may_stand:
            self.pre_ballot = None  # it asked whether the leader is alive
            self.timer.look_soon(now_ns, is_reluctant=self.reluctant)

    def _look_soon(self, now_ns: int) -> None:
        """Nobody is known to lead and a majority can be asked, as after the start of all: do not wait for the timer."""
        asks = self.leader is None and not self.reluctant and self.ballot is None and self.pre_ballot is None
        if asks and self.may_stand and self.configuration.has_quorum({*self.up, self.node_id}):
            self.timer.look_no_later(now_ns)

    @property
    def is_preferred(self) -> bool:
        """Whether the others would rather have this one: the group is new, and was given to it."""
        return self.setup.eager and self.log.last_index == 0

    @property
    def may_stand(self) -> bool:
        """Only voters stand for election."""
        return self.node_id in self.configuration.voters

    def restart_timer(self, now_ns: int) -> None:
        """Wait for a leader for a random while."""
        if self.may_stand:
            self.timer.wait(now_ns, is_reluctant=self.reluctant)
        else:
            self.timer.stop()

    def count_commit(self) -> None:
        """As leader: what the replica counted, but the own vote for an entry is its fsync (rule 4)."""
        self.commit_index = max(self.commit_index, min(self.replica.commit_index, self.log.durable_index))

    # Sending.

    def send(self, to: NodeId, message: Message) -> None:
        """Send when everything written so far is durable."""
        token = self.log.token()
        if token <= self.log.durable_token:
            self.sends.append((to, message))
        else:
            self._held.append((token, to, message))

    def send_in_term(self, to: NodeId, message: Message) -> None:
        """Send as leader, when term and vote are durable: entries may still be on their way to the disk."""
        if self.log.hard_state_token <= self.log.durable_token:
            self.sends.append((to, message))
        else:
            self.send(to, message)


HANDLERS: Final[dict[type, Callable[..., None]]] = {
    PreVoteRequest: electing.on_pre_vote_request,
    PreVoteGrant: electing.on_grant,
    VoteRequest: electing.on_vote_request,
    VoteGrant: electing.on_grant,
    TermNotice: electing.on_term_notice,
    TransferNow: electing.on_transfer_now,
    Append: following.on_append,
    CommitNotice: following.on_commit_notice,
    Resigned: following.on_resigned,
    Removed: following.on_removed,
    ReadProbe: following.on_read_probe,
    SnapshotOffer: following.on_snapshot_offer,
    AppendAccepted: leading.on_append_accepted,
    AppendRejected: leading.on_append_rejected,
    LeaderSeen: leading.on_leader_seen,
    ReadProbeSeen: leading.on_read_probe_seen,
}
