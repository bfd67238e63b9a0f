"""How a leader is found: timers, pre-votes, votes and the transfer of leadership. Handlers of the core's table.

A pre-vote asks whether an election could be won before it disturbs anybody; a real vote is refused while a leader is
alive, except when that leader asked for the election (rules 18 and 20). Requests of any node are served, also of one
that the own, perhaps old, configuration does not contain; only answers of members are counted (rule 17).

What a disk is busy with is not thrown away (rule 41). While the own term and vote are not durable nothing else is begun
or granted, and the votes of a real ballot count until a pre-vote of the next term is won.
"""

from typing import TYPE_CHECKING

from jetraft.raft.ballot import Ballot
from jetraft.raft.engine import (
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
    from jetraft.raft.core import Core


# The candidate's side.


def look_for_leader(core: "Core", now_ns: int) -> None:
    """The timer has run out. A leader that claims the group is asked before it is given up (rule 41)."""
    if core.claimed:
        if core.timer.may_rest(now_ns):
            return
        if not core.timer.is_doubting:
            core.timer.doubt(now_ns)
            _canvass(core, now_ns)
            return
    ask_pre_votes(core, now_ns)


def ask_pre_votes(core: "Core", now_ns: int) -> None:
    """Could I win the next term? Nothing changes until a majority says yes; votes of this term still count."""
    core.leader, core.claimed = None, False
    core.restart_timer(now_ns)
    _canvass(core, now_ns)


def _canvass(core: "Core", now_ns: int) -> None:
    before = core.pre_ballot
    asked = before.asked if before is not None and before.term == core.term + 1 else 0
    core.pre_ballot = _begin(core, core.term + 1, now_ns, preliminary=True, asked=asked)
    core.pre_ballot.grant(core.node_id)
    count(core, core.pre_ballot, now_ns)


def stand(core: "Core", now_ns: int, *, transfer: bool) -> None:
    """A real election. The own vote counts when it is durable (`on_promise_kept`, rule 4)."""
    if not core.may_stand:
        return
    core.role, core.leader, core.claimed = Role.CANDIDATE, None, False
    core.pre_ballot = None
    core.timer.ballots += 1
    core.enter_term(core.term + 1, now_ns, vote=core.node_id)
    core.restart_timer(now_ns)
    core.ballot = _begin(core, core.term, now_ns, preliminary=False, transfer=transfer)


def _begin(  # noqa: PLR0913  (what a ballot is)
    core: "Core", term: int, now_ns: int, *, preliminary: bool, transfer: bool = False, asked: int = 0
) -> Ballot:
    """`asked` is how often the same was asked before, without an answer."""
    ballot = Ballot(term=term, preliminary=preliminary, transfer=transfer, now_ns=now_ns, asked=asked)
    ask(core, ballot, now_ns)
    return ballot


def ask(core: "Core", ballot: Ballot, now_ns: int) -> None:
    """Send the request to every voter that has not granted yet."""
    ballot.ask(now_ns, core.timer.retry_ns(now_ns, preliminary=ballot.preliminary, asked=ballot.asked + 1))
    last_index = core.log.last_index
    last_term = core.log.term_at(last_index) or 0
    voters = [voter for voter in ballot.silent(core.configuration) if voter != core.node_id]
    if ballot.preliminary:  # promises nothing: it need not wait for the disk
        pre_vote = PreVoteRequest(term=ballot.term, last_index=last_index, last_term=last_term)
        core.sends.extend((voter, pre_vote) for voter in voters)
        return
    request = VoteRequest(term=ballot.term, last_index=last_index, last_term=last_term, transfer=ballot.transfer)
    for voter in voters:
        core.send(voter, request)


def on_promise_kept(core: "Core", now_ns: int) -> None:
    """Term and vote are durable: the own vote counts, the requests have left, and the waiting begins."""
    core.timer.kept(now_ns)
    ballot = core.ballot
    if ballot is not None:
        ballot.began_ns = now_ns
        ballot.ask(now_ns, core.timer.retry_ns(now_ns, preliminary=False, asked=1))
        ballot.grant(core.node_id)
        count(core, ballot, now_ns)
    if not core.has_leader:
        core.restart_timer(now_ns)


def on_grant(core: "Core", sender: NodeId, message: PreVoteGrant | VoteGrant, now_ns: int) -> None:
    """A yes, which counts for the ballot of its term and kind only."""
    is_preliminary = isinstance(message, PreVoteGrant)
    ballot = core.pre_ballot if is_preliminary else core.ballot
    if ballot is not None and ballot.term == message.term:
        # Since the last request, whichever is answered: too short a time at worst, which the next one corrects.
        measured = core.timer.tempo.round_trip if is_preliminary else core.timer.tempo.answer
        measured.note(now_ns, now_ns - ballot.asked_ns)
        ballot.grant(sender)
        count(core, ballot, now_ns)


def count(core: "Core", ballot: Ballot, now_ns: int) -> None:
    """Go on to the real election, or to leading, when the ballot is won."""
    if not ballot.is_won(core.configuration):
        return
    if ballot.preliminary:
        stand(core, now_ns, transfer=False)
    else:
        core.lead(now_ns)


# The voter's side.


def is_up_to_date(core: "Core", request: PreVoteRequest | VoteRequest) -> bool:
    """Whether the candidate's log ends at least as late as the own one (thesis 3.6.1)."""
    last_index = core.log.last_index
    return (request.last_term, request.last_index) >= (core.log.term_at(last_index) or 0, last_index)


def on_pre_vote_request(core: "Core", sender: NodeId, message: PreVoteRequest, now_ns: int) -> None:
    """Say yes when the real request would be granted; promises nothing."""
    _doubt_leader(core, sender, message.term, now_ns)
    _reassert(core, sender)
    if core.timer.pending_ns is not None:
        return  # a vote is on its way to disk, ours or the sender's: let that election come to its end
    if message.term <= core.term:
        core.sends.append((sender, TermNotice(term=core.term)))
    elif not core.has_leader and is_up_to_date(core, message) and not _goes_first(core, sender, message, now_ns):
        core.sends.append((sender, PreVoteGrant(term=message.term)))
        if core.ballot is None and core.pre_ballot is None:
            core.timer.stand_back(now_ns)


def _goes_first(core: "Core", sender: NodeId, request: PreVoteRequest, now_ns: int) -> bool:
    """Of two candidates that began together the one with the better log, or name, goes first: no split vote.

    The other one gives its own attempt up, so that grants that cross on a slow link do not make both stand. It goes
    first only for a moment, as it may be that the other one alone reaches a majority; that one asks again.
    """
    ballot = core.ballot or core.pre_ballot
    if ballot is None:
        return False
    last_index = core.log.last_index
    mine = (core.log.term_at(last_index) or 0, last_index, core.node_id)
    if mine < (request.last_term, request.last_index, sender):
        if not core.is_preferred:
            core.pre_ballot = None
        return False
    return now_ns - ballot.began_ns < core.timer.precedence_ns(now_ns, preliminary=ballot.preliminary)


def on_vote_request(core: "Core", sender: NodeId, message: VoteRequest, now_ns: int) -> None:
    """Give the one vote of the term to the first candidate whose log is up to date."""
    _doubt_leader(core, sender, message.term, now_ns)
    if message.term < core.term:
        core.sends.append((sender, TermNotice(term=core.term)))
        return
    if core.has_leader and not message.transfer:
        return
    if message.term > core.term:
        core.follow(message.term, None, now_ns)
    may_vote = core.role is Role.FOLLOWER and core.leader is None and core.vote in {None, sender}
    if not may_vote or not is_up_to_date(core, message):
        return
    if core.vote is None:
        core.promise(sender, now_ns)
    elif core.timer.pending_ns is not None:
        return  # asked again before the vote was durable: the grant leaves when it is
    core.pre_ballot = None
    core.restart_timer(now_ns)
    core.send(sender, VoteGrant(term=core.term))


def _doubt_leader(core: "Core", sender: NodeId, term: int, now_ns: int) -> None:
    """The node that we follow asks for votes of a later term: it does not lead any more."""
    if sender == core.leader and term > core.term and core.leadership is None:
        core.drop_claim(now_ns)


def _reassert(core: "Core", sender: NodeId) -> None:
    """A member that does not know us as its leader (its replica is new in this session) is told again.

    One that was removed is told that: until the owner of its replica deletes it, it would ask again and again.
    """
    if core.leadership is None:
        return
    if sender in core.configuration.members:
        core.leadership.replication.probe_again(sender)
    elif core.configurations.current_index <= core.applicable_index:
        core.sends.append((sender, Removed(term=core.term)))


def on_term_notice(core: "Core", _sender: NodeId, message: TermNotice, now_ns: int) -> None:
    """Somebody is in a higher term: so are we."""
    if message.term > core.term:
        core.follow(message.term, None, now_ns)


def on_removed(core: "Core", sender: NodeId, message: Removed, now_ns: int) -> None:
    """A leader says that we are no member. That may be old news: ask again, but slowly (rule 41)."""
    if message.term < core.term or core.leadership is not None or (core.claimed and sender == core.leader):
        return
    core.is_removed = True
    core.follow(message.term, None, now_ns)


def on_transfer_now(core: "Core", sender: NodeId, message: TransferNow, now_ns: int) -> None:
    """The current leader asks us to take over (rule 20)."""
    if message.term == core.term and sender == core.leader and core.leadership is None:
        stand(core, now_ns, transfer=True)
