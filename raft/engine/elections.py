"""How a leader is found: timers, pre-votes, votes and the transfer of leadership, with either engine.

A pre-vote asks whether an election could be won before it disturbs the group; a real vote is refused while a leader is
alive, except when that leader asked for the election (rules 18 and 20). Requests of any node are served, also of one
that this member's configuration, which may be old, does not contain; only answers of voters are counted (rule 17). Who
gets the vote of a term, and who has won it, is for the decider to say.

The work of a busy disk is not thrown away (rule 41). While its term and vote are not durable a member begins and
grants nothing else, and the votes of a real ballot count until a pre-vote of the next term is won.
"""

from typing import TYPE_CHECKING

from jetraft.raft.engine import candidacy
from jetraft.raft.engine.ballot import Ballot
from jetraft.raft.engine.messages import (
    PreVoteGrant,
    PreVoteRequest,
    Removed,
    Role,
    TermNotice,
    TransferNow,
    VoteGrant,
    VoteRequest,
)
from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.raft.engine.member_state import MemberState


# The candidate's side.


def look_for_leader(member: "MemberState", now_ns: int) -> None:
    """The timer has run out. A leader that claims the group is asked before it is given up (rule 41)."""
    if member.claimed:
        if member.timer.may_rest(now_ns):
            return
        if not member.timer.is_doubting:
            member.timer.doubt(now_ns)
            _canvass(member, now_ns)
            return
    ask_pre_votes(member, now_ns)


def ask_pre_votes(member: "MemberState", now_ns: int) -> None:
    """Could I win the next term? Nothing changes until a majority says yes; votes of this term still count."""
    member.leader, member.claimed = None, False
    member.restart_timer(now_ns)
    _canvass(member, now_ns)


def _canvass(member: "MemberState", now_ns: int) -> None:
    before = member.pre_ballot
    asked = before.asked if before is not None and before.term == member.term + 1 else 0
    member.pre_ballot = _begin(member, member.term + 1, now_ns, preliminary=True, asked=asked)
    member.pre_ballot.grant(member.node_id)
    stand_if_wanted(member, member.pre_ballot, now_ns)


def stand_if_wanted(member: "MemberState", pre_ballot: Ballot, now_ns: int) -> None:
    """Go on to the real election when a majority would vote for us."""
    if pre_ballot.is_won(member.configuration):
        stand(member, now_ns, transfer=False)


def stand(member: "MemberState", now_ns: int, *, transfer: bool) -> None:
    """A real election. The member's vote for itself counts once it is durable (`on_promise_kept`, rule 4)."""
    if not member.may_stand:
        return
    member.timer.ballots += 1
    member.decider.stand(member, now_ns)
    member.role = Role.CANDIDATE
    member.ballot = _begin(member, member.term, now_ns, preliminary=False, transfer=transfer)
    if member.is_founder and member.decider.founders_lead_at_once:
        member.decider.count_own_vote(member, member.ballot, now_ns)


def _begin(  # noqa: PLR0913  (what a ballot is)
    member: "MemberState", term: int, now_ns: int, *, preliminary: bool, transfer: bool = False, asked: int = 0
) -> Ballot:
    """`asked` is how often the same was asked before, without an answer."""
    ballot = Ballot(term=term, preliminary=preliminary, transfer=transfer, now_ns=now_ns, asked=asked)
    ask(member, ballot, now_ns)
    return ballot


def ask(member: "MemberState", ballot: Ballot, now_ns: int) -> None:
    """Send the request to every voter that has not granted yet."""
    ballot.ask(now_ns, member.timer.retry_ns(now_ns, preliminary=ballot.preliminary, asked=ballot.asked + 1))
    last_index = member.log.last_index
    last_term = member.log.term_at(last_index) or 0
    voters = [voter for voter in ballot.silent(member.configuration) if voter != member.node_id]
    if ballot.preliminary:  # promises nothing: it need not wait for the disk
        pre_vote = PreVoteRequest(term=ballot.term, last_index=last_index, last_term=last_term)
        for voter in voters:
            member.effects.send_now(voter, pre_vote)
        return
    request = VoteRequest(term=ballot.term, last_index=last_index, last_term=last_term, transfer=ballot.transfer)
    for voter in voters:
        member.effects.send_when_durable(voter, request)


def on_promise_kept(member: "MemberState", now_ns: int) -> None:
    """Term and vote are durable: its own vote counts, the requests leave, and the waiting begins."""
    member.timer.kept(now_ns)
    ballot = member.ballot
    if ballot is not None:
        ballot.began_ns = now_ns
        ballot.ask(now_ns, member.timer.retry_ns(now_ns, preliminary=False, asked=1))
        member.decider.count_own_vote(member, ballot, now_ns)
    if not member.has_leader:
        member.restart_timer(now_ns)


def on_grant(member: "MemberState", sender: NodeId, message: PreVoteGrant | VoteGrant, now_ns: int) -> None:
    """A yes, which counts once, for the ballot of its term and kind, and from a voter only (rule 17)."""
    is_preliminary = isinstance(message, PreVoteGrant)
    ballot = member.pre_ballot if is_preliminary else member.ballot
    if ballot is None or ballot.term != message.term:
        return
    # Since the last request, whichever is answered: too short a time at worst, which the next one corrects.
    measured = member.timer.tempo.round_trip if is_preliminary else member.timer.tempo.answer
    measured.note(now_ns, now_ns - ballot.asked_ns)
    # A grant may come twice, because requests are repeated; a decider that counts answers must hear of it once.
    is_first = sender in ballot.silent(member.configuration)
    ballot.grant(sender)
    if is_preliminary:
        stand_if_wanted(member, ballot, now_ns)
    elif is_first:
        member.decider.count_vote(member, sender, now_ns)


# The voter's side.


def is_up_to_date(member: "MemberState", request: PreVoteRequest | VoteRequest) -> bool:
    """Whether the candidate's log ends at least as late as this one (thesis 3.6.1)."""
    last_index = member.log.last_index
    # >=, not >: members with equal logs must be able to elect one another.
    return (request.last_term, request.last_index) >= (member.log.term_at(last_index) or 0, last_index)


def _is_filled(member: "MemberState") -> bool:
    """False while this member, a learner without memory, lacks what was committed when it was admitted (rule 30).

    Others than the present members may still count on its name, and what it forgot would have refused them its vote.
    """
    last_index = member.log.last_index
    is_voter = member.node_id in member.configuration.voters
    return is_voter or member.configurations.is_filled(last_index, member.log.term_at(last_index) or 0)


def on_pre_vote_request(member: "MemberState", sender: NodeId, message: PreVoteRequest, now_ns: int) -> None:
    """Say yes when the real request would be granted; promises nothing."""
    _doubt_leader(member, sender, message.term, now_ns)
    _reassert(member, sender)
    if member.timer.pending_ns is not None:
        return  # a vote is on its way to disk, ours or the sender's: let that election come to its end
    # <=, unlike a vote request: a pre-vote asks about a term that is still to come.
    if message.term <= member.term:
        member.effects.send_now(sender, TermNotice(term=member.term))
    elif member.has_leader or not _is_filled(member):
        return
    elif not is_up_to_date(member, message):
        _ask_instead(member, now_ns)
    elif not _goes_first(member, sender, message, now_ns):
        member.effects.send_now(sender, PreVoteGrant(term=message.term))
        if member.ballot is None and member.pre_ballot is None:
            member.timer.stand_back(now_ns)


def _ask_instead(member: "MemberState", now_ns: int) -> None:
    """The candidate lacks something that this member has, so that one cannot be waited for."""
    if member.ballot is None and member.pre_ballot is None and member.may_stand and not member.reluctant:
        member.timer.look_now(now_ns)


def _goes_first(member: "MemberState", sender: NodeId, request: PreVoteRequest, now_ns: int) -> bool:
    """Of two candidates that began together the one with the better log, or name, goes first: no split vote.

    The other one gives its own attempt up, so that grants that cross on a slow link do not make both stand. It goes
    first only for a moment, as it may be that the other one alone reaches a majority; that one asks again.
    """
    ballot = member.ballot or member.pre_ballot
    if ballot is None:
        return False
    last_index = member.log.last_index
    mine = (member.log.term_at(last_index) or 0, last_index, member.node_id)
    if mine < (request.last_term, request.last_index, sender):
        if not member.is_preferred:
            member.pre_ballot = None
        return False
    return now_ns - ballot.began_ns < member.timer.precedence_ns(now_ns, preliminary=ballot.preliminary)


def on_vote_request(member: "MemberState", sender: NodeId, message: VoteRequest, now_ns: int) -> None:
    """Have the request judged, unless a leader is alive (rule 18). The grant waits for the disk."""
    _doubt_leader(member, sender, message.term, now_ns)
    if message.term < member.term:
        member.effects.send_now(sender, TermNotice(term=member.term))
        return
    if (member.has_leader and not message.transfer) or not _is_filled(member):
        return
    if member.decider.grants_vote(member, sender, message, now_ns):
        member.note_promise(now_ns)
        member.pre_ballot = None
        member.restart_timer(now_ns)
        member.effects.send_when_durable(sender, VoteGrant(term=member.term))


def _doubt_leader(member: "MemberState", sender: NodeId, term: int, now_ns: int) -> None:
    """The node that we follow asks for votes of a later term: it does not lead any more."""
    if sender == member.leader and term > member.term and member.leadership is None:
        candidacy.drop_claim(member, now_ns)


def _reassert(member: "MemberState", sender: NodeId) -> None:
    """A member that does not know us as its leader (its replica is new in this session) is told again.

    One that was removed is told that: until the owner of its replica deletes it, it would ask again and again.
    """
    if member.leadership is None:
        return
    if sender in member.configuration.members:
        member.leadership.replication.probe_again(sender)
    elif member.members_may_change and member.configurations.current_index <= member.applicable_index:
        member.effects.send_now(sender, Removed(term=member.term))


def on_term_notice(member: "MemberState", _sender: NodeId, message: TermNotice, now_ns: int) -> None:
    """Another member is in a higher term: enter it."""
    if message.term > member.term:
        member.decider.follow(member, None, message.term, now_ns)


def on_removed(member: "MemberState", sender: NodeId, message: Removed, now_ns: int) -> None:
    """A leader says that we are no member. That may be old news: ask again, but slowly (rule 41).

    With an engine whose members never change it says nothing: its sender goes by another configuration.
    """
    if not member.members_may_change:
        return
    if message.term < member.term or member.leadership is not None or (member.claimed and sender == member.leader):
        return
    member.is_removed = True
    member.decider.follow(member, None, message.term, now_ns)


def on_transfer_now(member: "MemberState", sender: NodeId, message: TransferNow, now_ns: int) -> None:
    """The current leader asks us to take over (rule 20)."""
    if message.term == member.term and sender == member.leader and member.leadership is None:
        member.handed_by = sender
        stand(member, now_ns, transfer=True)
