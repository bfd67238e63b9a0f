"""The guard around PySyncObj: what stands between one member of a group and a library that would break its promises.

PySyncObj (the *replica* here) decides terms, the one vote of a term, who won an election, what is appended and cut, and
what a majority has. The guard decides what it gets to see and what of its decisions leaves the node, and when:

    hole in PySyncObj 0.3.17                         closed by
    nothing is fsynced before it is promised         answers wait for the log's token (`ready`, rules 2 and 3)
    a leader counts itself before its disk has it    commit = min(the replica's, durable); a group of one has its disk
                                                     as second voter (rules 4 and 5)
    an append deletes what is equal                  raft/pysyncobj/compare.py (rule 9)
    it commits beyond what was compared              commit = min(the leader's, verified) (rule 10)
    acks without a term, votes without a voter       the wire has both; each voter is counted once (rules 12 and 17)
    no pre-vote, a living leader is voted out        pre-votes come first; a replica that sees no peer never stands
    diverged peers swing, everything is resent       peers are fed by `replication`; the replica learns the matches
    snapshots and membership commands are pickles    snapshots are the group's, the membership is fixed

A leader steps down by a higher term, in a request without a real sender that cannot be granted. What PySyncObj has
no notion of (pre-votes, claims, contact with a majority, transfer, read rounds, windows) is the `Member`'s, as with the
project's own engine. So what the comparison of the two engines in the simulator compares is what Raft decides: votes,
who has won, what is appended and cut, what is committed.
"""

from collections.abc import Sequence
from typing import Final

from jetraft.raft.engine.acceptor import AppendRefused, LogDivergedError
from jetraft.raft.engine.ballot import Ballot
from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.member_state import MemberState
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Append, Role, VoteRequest
from jetraft.raft.engine.port import Proposal
from jetraft.raft.pysyncobj.compare import News, news_of, nothing_new
from jetraft.raft.pysyncobj.replica import OWN_DISK, PySyncObjReplica
from jetraft.store.frames.format import Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, HardState


class FixedMembershipError(LogDivergedError):
    """The log of the group changes its members, which this engine does not follow. The group halts."""


class Guard:
    """Implements jetraft.raft.engine.decider.Decider with the help of a replica."""

    __slots__ = ("_is_alone", "replica")

    members_may_change: Final = False
    founders_lead_at_once: Final = False  # its disk is a second voter (`count_own_vote`)

    def __init__(self, replica: PySyncObjReplica, *, is_alone: bool) -> None:
        """`is_alone`: in a group of one, whose other voter is its own disk (`other_voters`)."""
        self.replica = replica
        self._is_alone = is_alone

    # Terms and votes.

    def stand(self, member: MemberState, now_ns: int) -> None:
        """See Decider."""
        self.replica.stand()
        self._notice_term(member, now_ns)

    def follow(self, member: MemberState, leader: NodeId | None, term: int, now_ns: int) -> None:
        """See Decider."""
        if leader is None:
            self.replica.raise_term(term)
            self._notice_term(member, now_ns)
        else:
            self.replica.follow(leader, term)
            self._notice_term(member, now_ns)
            member.follow(leader, now_ns)

    def step_down(self, member: MemberState, now_ns: int) -> None:
        """See Decider. PySyncObj leads until it hears of a higher term."""
        self.follow(member, None, member.term + 1, now_ns)

    def _notice_term(self, member: MemberState, now_ns: int) -> None:
        """The replica may be in another term now: what belonged to the old one is over."""
        if self.replica.term != member.term:
            member.enter_term(self.replica.term, now_ns)
            member.follow(None, now_ns)

    def grants_vote(self, member: MemberState, candidate: NodeId, request: VoteRequest, now_ns: int) -> bool:
        """Let the replica judge. A vote given before is given again."""
        was_given = member.log.hard_state == HardState(term=request.term, vote=candidate)
        if was_given and member.timer.pending_ns is not None:
            return False  # asked again before the vote was durable: the grant leaves when it is
        is_given = self.replica.asked_for_vote(candidate, request) or was_given
        self._notice_term(member, now_ns)
        return is_given

    def count_own_vote(self, member: MemberState, ballot: Ballot, now_ns: int) -> None:
        """The replica has counted it when it stood. Others are asked when it is durable, so their grants prove that."""

    def count_vote(self, member: MemberState, voter: NodeId, now_ns: int) -> None:
        """See Decider. PySyncObj counts answers, not voters: it must hear of each voter once."""
        self.replica.count_vote(voter)
        if self.replica.leads and member.role is Role.CANDIDATE:
            member.lead(now_ns, noop_index=member.log.last_index)  # PySyncObj has appended it

    # The log.

    def propose(self, member: MemberState, proposals: Sequence[Proposal]) -> int:
        """See Decider."""
        first_index = member.log.last_index + 1
        self.replica.propose(proposals)
        assert member.log.last_index == first_index + len(proposals) - 1, "PySyncObj appends what its leader proposes"
        return first_index

    def take(self, member: MemberState, leader: NodeId, append: Append, now_ns: int) -> int | AppendRefused:  # noqa: ARG002
        """See Decider. Raises FixedMembershipError for a change of members."""
        news = news_of(member.log, member.commit_index, append)
        if isinstance(news, AppendRefused):
            return news
        _refuse_other_members(member, news.entries, cut_index=news.prev_index + 1 if news.cuts else None)
        member.verified_index = max(member.verified_index, news.verified_index)
        self._tell(member, leader, news, append.commit_index)
        return news.verified_index

    def learn_commit(self, member: MemberState, leader: NodeId, leader_commit: int) -> None:
        """See Decider."""
        self._tell(member, leader, nothing_new(member.log, member.verified_index), leader_commit)

    def _tell(self, member: MemberState, leader: NodeId, news: News, leader_commit: int) -> None:
        """Tell PySyncObj. Only what was verified against this leader can be known to be committed (rule 10)."""
        commit_index = min(leader_commit, member.verified_index)
        if news.entries or commit_index > self.replica.commit_index:
            self.replica.take(leader, prev_index=news.prev_index, entries=news.entries, commit_index=commit_index)
        member.commit_index = max(member.commit_index, min(commit_index, self.replica.commit_index))

    def count_durable(self, member: MemberState, now_ns: int) -> None:
        """See Decider. In a group of one the disk is the second voter: it speaks when term and vote are durable."""
        if self._is_alone and member.log.hard_state_token <= member.log.durable_token:
            if member.role is Role.CANDIDATE:
                self.count_vote(member, OWN_DISK, now_ns)
            if member.leadership is not None:
                self.replica.holds(OWN_DISK, member.log.durable_index)
        if member.leadership is not None:
            self.count_commit(member)

    def count_match(self, member: MemberState, node: NodeId) -> None:
        """See Decider. The replica is told of voters only."""
        assert member.leadership is not None
        if node in member.configuration.voters:
            self.replica.holds(node, member.leadership.replication.peers[node].match_index)
            self.count_commit(member)

    def count_commit(self, member: MemberState) -> None:
        """As leader: what the replica counted, but a member votes for an entry with its fsync (rule 4)."""
        member.commit_index = max(member.commit_index, min(self.replica.commit_index, member.log.durable_index))

    # Members never change.

    def change_members(self, member: MemberState, configuration: Configuration, now_ns: int) -> int:  # noqa: ARG002
        """Always raises MembershipChangeRefusedError."""
        raise MembershipChangeRefusedError("raft_engine pysyncobj keeps a group's members as they were at its creation")

    def outlive(self, member: MemberState, configuration: Configuration, term: int, now_ns: int) -> None:  # noqa: ARG002
        """Never called: `members_may_change` says no."""
        raise MembershipChangeRefusedError("raft_engine pysyncobj keeps a group's members as they were at its creation")


def other_voters(node_id: NodeId, voters: Sequence[NodeId]) -> Sequence[NodeId]:
    """Whom the replica of a member sees beside itself; in a group of one that is its own disk."""
    return [voter for voter in voters if voter != node_id] or [OWN_DISK]


def _refuse_other_members(member: MemberState, entries: Sequence[Entry], *, cut_index: int | None) -> None:
    """Halt at a configuration entry, new or to be cut: both change who votes, and PySyncObj would not know."""
    arrives = any(entry.kind == Kind.RAFT_CONFIG for entry in entries)
    goes = cut_index is not None and member.configurations.current_index >= cut_index
    if arrives or goes:
        raise FixedMembershipError("raft_engine pysyncobj does not follow a change of members; use raft_engine core")
