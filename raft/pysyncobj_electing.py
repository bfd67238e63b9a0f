"""Elections around PySyncObj: when it may stand, who may ask it for a vote, and whose votes it gets to count.

Stock PySyncObj asks nobody before it raises the term, grants a vote to whoever disturbs a living leader, and counts
answers, not voters. Here pre-votes come first, a leader that is alive is not voted out except when it asks for that,
and every voter is counted once (rules 17, 18 and 20). The vote itself, one per term to a log that is up to date, is
PySyncObj's decision.
"""

from typing import TYPE_CHECKING

from jetraft.raft.ballot import Ballot
from jetraft.raft.engine import (
    Message,
    PreVoteGrant,
    PreVoteRequest,
    TermNotice,
    TransferNow,
    VoteGrant,
    VoteRequest,
)
from jetraft.raft.pysyncobj_leading import lead_if_won
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState

if TYPE_CHECKING:
    from jetraft.raft.pysyncobj_guard import Guard


def ask_pre_votes(guard: "Guard", now_ns: int) -> None:
    """Could I win the next term? Nothing changes until a majority says yes."""
    ballot = _begin(guard, guard.term + 1, now_ns, preliminary=True)
    ballot.grant(guard.node_id)
    ask(guard, ballot)
    stand_if_wanted(guard, now_ns)


def stand_if_wanted(guard: "Guard", now_ns: int) -> None:
    """Go on to the real election when a majority would vote for us."""
    if guard.ballot is not None and guard.ballot.preliminary and guard.ballot.is_won(guard.configuration):
        stand(guard, now_ns, transfer=False)


def stand(guard: "Guard", now_ns: int, *, transfer: bool) -> None:
    """A real election. The request leaves when the own vote is durable, so a grant proves that too (rule 4)."""
    if guard.node_id not in guard.configuration.voters:
        return
    guard.replica.stand()
    guard.notice(now_ns)
    ask(guard, _begin(guard, guard.term, now_ns, preliminary=False, transfer=transfer))


def _begin(guard: "Guard", term: int, now_ns: int, *, preliminary: bool, transfer: bool = False) -> Ballot:
    """A new round of asking; whoever led until now does not any more."""
    guard.restart_timer(now_ns)
    guard.claimed, guard.leader = False, None
    resend_ns = now_ns + guard.timing.vote_retry_ns
    guard.ballot = Ballot(term=term, preliminary=preliminary, transfer=transfer, began_ns=now_ns, resend_ns=resend_ns)
    return guard.ballot


def ask(guard: "Guard", ballot: Ballot) -> None:
    """Send the request to every voter that has not granted yet."""
    last_index = guard.log.last_index
    last_term = guard.log.term_at(last_index) or 0
    request: Message
    if ballot.preliminary:
        request = PreVoteRequest(term=ballot.term, last_index=last_index, last_term=last_term)
    else:
        request = VoteRequest(term=ballot.term, last_index=last_index, last_term=last_term, transfer=ballot.transfer)
    for voter in ballot.silent(guard.configuration):
        if voter != guard.node_id:
            guard.send(voter, request)


def on_grant(guard: "Guard", sender: NodeId, message: PreVoteGrant | VoteGrant, now_ns: int) -> None:
    """A yes, which counts once, for the ballot of its term and kind, and from a voter only (rule 17)."""
    ballot = guard.ballot
    if ballot is None or (ballot.term, ballot.preliminary) != (message.term, isinstance(message, PreVoteGrant)):
        return
    if sender not in ballot.silent(guard.configuration):
        return
    ballot.grant(sender)
    if ballot.preliminary:
        stand_if_wanted(guard, now_ns)
    else:
        guard.replica.count_vote(sender)
        lead_if_won(guard, now_ns)


def on_pre_vote_request(guard: "Guard", sender: NodeId, message: PreVoteRequest, now_ns: int) -> None:
    """Say yes when the real request would be granted; promises nothing, but lets the other one go first."""
    _doubt_leader(guard, sender, message.term, now_ns)
    if guard.leadership is not None:
        guard.leadership.replication.probe_again(sender)  # it does not know us as its leader: claim again
    if message.term <= guard.term:
        guard.sends.append((sender, TermNotice(term=guard.term)))
        return
    ballot, last_index = guard.ballot, guard.log.last_index
    own_end = (guard.log.term_at(last_index) or 0, last_index)
    its_end = (message.last_term, message.last_index)
    asks_too = ballot is not None and now_ns - ballot.began_ns < guard.timing.precedence_ns
    goes_first = asks_too and (*own_end, guard.node_id) > (*its_end, sender)
    if its_end >= own_end and not guard.has_leader and not goes_first:
        guard.sends.append((sender, PreVoteGrant(term=message.term)))
        guard.stand_back(now_ns)


def on_vote_request(guard: "Guard", sender: NodeId, message: VoteRequest, now_ns: int) -> None:
    """Let the replica judge, unless a leader is alive (rule 18). A vote given before is given again."""
    _doubt_leader(guard, sender, message.term, now_ns)
    if message.term < guard.term:
        guard.sends.append((sender, TermNotice(term=guard.term)))
        return
    if guard.has_leader and not message.transfer:
        return
    given = guard.log.hard_state == HardState(term=message.term, vote=sender)
    given = guard.replica.asked_for_vote(sender, message) or given
    guard.notice(now_ns)
    if given:
        guard.ballot = None
        guard.restart_timer(now_ns)
        guard.send(sender, VoteGrant(term=guard.term))


def _doubt_leader(guard: "Guard", sender: NodeId, term: int, now_ns: int) -> None:
    """The node that we follow asks for votes of a later term: it does not lead any more."""
    if sender == guard.leader and term > guard.term and guard.leadership is None:
        guard.drop_claim(now_ns)


def on_term_notice(guard: "Guard", _sender: NodeId, message: TermNotice, now_ns: int) -> None:
    """Somebody is in a higher term: so are we."""
    if message.term > guard.term:
        guard.raise_term(message.term, now_ns)


def on_transfer_now(guard: "Guard", sender: NodeId, message: TransferNow, now_ns: int) -> None:
    """The current leader asks us to take over (rule 20)."""
    if message.term == guard.term and sender == guard.leader and guard.leadership is None:
        stand(guard, now_ns, transfer=True)
