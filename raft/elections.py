"""How a leader is found: timers, pre-votes, votes and the transfer of leadership. Handlers of the core's table.

A pre-vote asks whether an election could be won before it disturbs anybody; a real vote is refused while a leader is
alive, except when that leader asked for the election (rules 18 and 20). Requests of any node are served, also of one
that the own, perhaps old, configuration does not contain; only answers of members are counted (rule 17).
"""

from typing import TYPE_CHECKING

from jetraft.raft.ballot import Ballot
from jetraft.raft.engine import (
    Message,
    PreVoteGrant,
    PreVoteRequest,
    Role,
    TermNotice,
    TransferNow,
    VoteGrant,
    VoteRequest,
)
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState

if TYPE_CHECKING:
    from jetraft.raft.core import Core


# The candidate's side.


def ask_pre_votes(core: "Core", now_ns: int) -> None:
    """Could I win the next term? Nothing changes until a majority says yes."""
    ballot = _begin(core, core.term + 1, now_ns, preliminary=True)
    core.leader = None
    ballot.grant(core.node_id)
    ask(core, ballot)
    count(core, now_ns)


def stand(core: "Core", now_ns: int, *, transfer: bool) -> None:
    """A real election. The own vote counts when it is durable (`Core.persisted`, rule 4)."""
    if core.node_id not in core.configuration.voters:
        return
    core.role, core.leader = Role.CANDIDATE, None
    core.enter_term(core.term + 1, vote=core.node_id)
    ask(core, _begin(core, core.term, now_ns, preliminary=False, transfer=transfer))


def _begin(core: "Core", term: int, now_ns: int, *, preliminary: bool, transfer: bool = False) -> Ballot:
    core.restart_timer(now_ns)
    core.claimed = False
    resend_ns = now_ns + core.timing.vote_retry_ns
    core.ballot = Ballot(term=term, preliminary=preliminary, transfer=transfer, began_ns=now_ns, resend_ns=resend_ns)
    return core.ballot


def ask(core: "Core", ballot: Ballot) -> None:
    """Send the request to every voter that has not granted yet."""
    last_index = core.log.last_index
    last_term = core.log.term_at(last_index) or 0
    request: Message
    if ballot.preliminary:
        request = PreVoteRequest(term=ballot.term, last_index=last_index, last_term=last_term)
    else:
        request = VoteRequest(term=ballot.term, last_index=last_index, last_term=last_term, transfer=ballot.transfer)
    for voter in ballot.silent(core.configuration):
        if voter != core.node_id:
            core.send(voter, request)


def on_grant(core: "Core", sender: NodeId, message: PreVoteGrant | VoteGrant, now_ns: int) -> None:
    """A yes, which counts for the ballot of its term and kind only."""
    ballot = core.ballot
    is_preliminary = isinstance(message, PreVoteGrant)
    if ballot is not None and ballot.term == message.term and ballot.preliminary == is_preliminary:
        ballot.grant(sender)
        count(core, now_ns)


def count(core: "Core", now_ns: int) -> None:
    """Go on to the real election, or to leading, when the ballot is won."""
    ballot = core.ballot
    if ballot is None or not ballot.is_won(core.configuration):
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
    if message.term <= core.term:
        core.sends.append((sender, TermNotice(term=core.term)))
    elif not core.has_leader and is_up_to_date(core, message) and not _goes_first(core, sender, message, now_ns):
        core.sends.append((sender, PreVoteGrant(term=message.term)))
        core.stand_back(now_ns)


def _goes_first(core: "Core", sender: NodeId, request: PreVoteRequest, now_ns: int) -> bool:
    """Of two candidates that began together the one with the better log, or name, goes first: no split vote.

    Only for a moment, as it may be that the other one alone reaches a majority; it asks again.
    """
    ballot = core.ballot
    if ballot is None or now_ns - ballot.began_ns >= core.timing.precedence_ns:
        return False
    last_index = core.log.last_index
    mine = (core.log.term_at(last_index) or 0, last_index, core.node_id)
    return mine > (request.last_term, request.last_index, sender)


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
    if may_vote and is_up_to_date(core, message):
        if core.vote is None:
            core.vote = sender
            core.log.set_hard_state(HardState(term=core.term, vote=sender))
        core.ballot = None
        core.restart_timer(now_ns)
        core.send(sender, VoteGrant(term=core.term))


def _doubt_leader(core: "Core", sender: NodeId, term: int, now_ns: int) -> None:
    """The node that we follow asks for votes of a later term: it does not lead any more."""
    if sender == core.leader and term > core.term and core.leadership is None:
        core.drop_claim(now_ns)


def _reassert(core: "Core", sender: NodeId) -> None:
    """A member that does not know us as its leader (its replica is new in this session) is told again."""
    if core.leadership is not None:
        core.leadership.replication.probe_again(sender)


def on_term_notice(core: "Core", _sender: NodeId, message: TermNotice, now_ns: int) -> None:
    """Somebody is in a higher term: so are we."""
    if message.term > core.term:
        core.follow(message.term, None, now_ns)


def on_transfer_now(core: "Core", sender: NodeId, message: TransferNow, now_ns: int) -> None:
    """The current leader asks us to take over (rule 20)."""
    if message.term == core.term and sender == core.leader and core.leadership is None:
        stand(core, now_ns, transfer=True)
