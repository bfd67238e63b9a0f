"""The project's own decisions: the vote of a term, the log of a follower, what is committed.

A member's state and its questions are in `member`; here is what the rules of docs/raft.md say. A follower's log
is compared in `acceptor`, a leader's peers are fed in `replication`, configurations are kept in `membership`.

    follower --(no leader: timer)--> pre-vote round --(majority)--> candidate --(durable own vote + majority)--> leader
    any role --(higher term)--> follower          leader --(no majority in contact for 1 s)--> follower

Source: Ongaro's thesis, chapters 3, 4, 6 and 9.6; etcd-io/raft for probe and replicate.
"""

from collections.abc import Callable, Sequence
from typing import Final

from jetraft.raft.engine import candidacy, elections
from jetraft.raft.engine.acceptor import AppendRefused, accept
from jetraft.raft.engine.ballot import Ballot
from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.member import Member
from jetraft.raft.engine.member_state import MemberState
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Append, Role, SnapshotOffer, VoteRequest
from jetraft.raft.engine.port import CoreSetup, Proposal
from jetraft.store.frames.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog, HardState


def create_engine(
    setup: CoreSetup,
    *,
    log: GroupLog,
    configurations: ConfigurationHistory,
    commit_index: int,
    snapshot_offer: Callable[[int], SnapshotOffer | None],
) -> Member:
    """One member of one group that goes by the rules of this project."""
    return Member(
        setup,
        decider=Core(),
        log=log,
        configurations=configurations,
        commit_index=commit_index,
        snapshot_offer=snapshot_offer,
    )


class Core:
    """Implements jetraft.raft.engine.decider.Decider. It keeps nothing: all state is the member's and its log's."""

    __slots__ = ()

    members_may_change: Final = True
    founders_lead_at_once: Final = True

    # Terms and votes.

    def stand(self, member: MemberState, now_ns: int) -> None:
        """See Decider."""
        self._enter_term(member, member.term + 1, now_ns, vote=member.node_id)
        member.follow(None, now_ns)

    def follow(self, member: MemberState, leader: NodeId | None, term: int, now_ns: int) -> None:
        """See Decider."""
        if term > member.term:
            self._enter_term(member, term, now_ns, vote=None)
        member.follow(leader, now_ns)

    def _enter_term(self, member: MemberState, term: int, now_ns: int, *, vote: NodeId | None) -> None:
        member.log.set_hard_state(HardState(term=term, vote=vote))
        member.enter_term(term, now_ns)

    def step_down(self, member: MemberState, now_ns: int) -> None:
        """See Decider."""
        member.follow(None, now_ns)

    def grants_vote(self, member: MemberState, candidate: NodeId, request: VoteRequest, now_ns: int) -> bool:
        """Give the one vote of the term to the first candidate whose log is up to date."""
        if request.term > member.term:
            self.follow(member, None, request.term, now_ns)
        vote = member.vote
        # A member that knows a leader of this term gives no vote in it: the election is over.
        may_vote = member.role is Role.FOLLOWER and member.leader is None and vote in {None, candidate}
        if not may_vote or not elections.is_up_to_date(member, request):
            return False
        if vote is None:
            member.log.set_hard_state(HardState(term=member.term, vote=candidate))
            return True
        return member.timer.pending_ns is None  # asked again before the vote was durable: that grant leaves when it is

    def count_own_vote(self, member: MemberState, ballot: Ballot, now_ns: int) -> None:
        """See Decider."""
        ballot.grant(member.node_id)
        self._lead_if_won(member, now_ns)

    def count_vote(self, member: MemberState, voter: NodeId, now_ns: int) -> None:  # noqa: ARG002  (the ballot counts)
        """See Decider."""
        self._lead_if_won(member, now_ns)

    def _lead_if_won(self, member: MemberState, now_ns: int) -> None:
        if member.ballot is not None and member.ballot.is_won(member.configuration):
            member.lead(now_ns)

    # The log.

    def propose(self, member: MemberState, proposals: Sequence[Proposal]) -> int:
        """See Decider."""
        log, setup, term = member.log, member.setup, member.term
        first_index = log.last_index + 1
        # A group of one cannot repair a damaged entry from another member: there each message has its own checksum.
        is_summed = len(member.configurations.current.members) == 1 and log.sums_records
        entries = []
        for index, proposal in enumerate(proposals, first_index):  # no comprehension: it is a call of its own
            frame = setup.seal(
                proposal.kind,
                index=index,
                term=term,
                incarnation=setup.incarnation,
                body=proposal.body,
                first_seq=proposal.first_seq,
                count=proposal.count,
                summed=is_summed and proposal.count > 1,
            )
            entries.append(Entry(index=index, term=term, kind=proposal.kind, frame=frame))
        log.append(entries)
        return first_index

    def take(self, member: MemberState, leader: NodeId, append: Append, now_ns: int) -> int | AppendRefused:
        """See Decider."""
        outcome = accept(member.log, member.commit_index, append)
        if isinstance(outcome, AppendRefused):
            return outcome
        # First the cut, then what follows it: the configuration before the cut one is in force in between (rule 27).
        if outcome.cut_index is not None and member.configurations.cut_from(outcome.cut_index):
            candidacy.configuration_changed(member, now_ns)
        if outcome.appended_from is not None:
            _note_configurations(member, append.entries[outcome.appended_from :], now_ns)
        member.verified_index = max(member.verified_index, outcome.index)
        self.learn_commit(member, leader, append.commit_index)
        return outcome.index

    def learn_commit(self, member: MemberState, leader: NodeId, leader_commit: int) -> None:  # noqa: ARG002
        """See Decider."""
        # Beyond what was verified against this leader the log may hold entries that it has not (rule 10).
        member.commit_index = max(member.commit_index, min(leader_commit, member.verified_index))

    def count_durable(self, member: MemberState, now_ns: int) -> None:  # noqa: ARG002  (counting takes no time)
        """See Decider."""
        _advance_commit(member)

    def count_match(self, member: MemberState, node: NodeId) -> None:  # noqa: ARG002  (all are counted)
        """See Decider."""
        _advance_commit(member)

    # Members.

    def change_members(self, member: MemberState, configuration: Configuration, now_ns: int) -> int:
        """See Decider."""
        if member.leadership is None:
            raise MembershipChangeRefusedError("not the leader")
        index = member.leadership.change_members(configuration, member.commit_index, now_ns)
        _advance_commit(member)
        return index

    def outlive(self, member: MemberState, configuration: Configuration, term: int, now_ns: int) -> None:
        """Go on alone from the end of this log, in a term above every known one."""
        assert member.leadership is None
        assert configuration.voters == (member.node_id,)
        self.follow(member, None, term, now_ns)
        index = self.propose(member, [Proposal(kind=Kind.RAFT_CONFIG, body=configuration.encode())])
        member.configurations.append(index, term, configuration)
        elections.stand(member, now_ns, transfer=False)


def _advance_commit(member: MemberState) -> None:
    """Commit what a majority holds."""
    if member.leadership is not None and (index := member.leadership.quorum_index()) > member.commit_index:
        member.commit_index = index


def _note_configurations(member: MemberState, entries: Sequence[Entry], now_ns: int) -> None:
    """A configuration is in force as soon as it is in the log (rule 27)."""
    for entry in entries:
        if entry.kind == Kind.RAFT_CONFIG:
            configuration = Configuration.decode(entry.frame[FRAME_HEADER_BYTES:])
            member.configurations.append(entry.index, entry.term, configuration)
            candidacy.configuration_changed(member, now_ns)
