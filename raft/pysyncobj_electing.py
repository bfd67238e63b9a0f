"""Elections around PySyncObj: when it may stand, who may ask it for a vote, and whose votes it gets to count.

Stock PySyncObj asks nobody before it raises the term, grants a vote to whoever disturbs a living leader, and counts
answers, not voters. Here pre-votes come first, a leader that is alive is not voted out except when it asks for that,
and every voter is counted once (rules 17, 18 and 20). The vote itself, one per term to a log that is up to date, is
PySyncObj's decision.
"""

from typing import TYPE_CHECKING

from jetraft.raft.ballot import Ballot
from jetraft.raft.engine import (
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


def look_for_leader(guard: "Guard", now_ns: int) -> None:
    """The timer has run out. A leader that claims the group is asked before it is given up (rule 41)."""
    if guard.claimed:
        if guard.timer.may_rest(now_ns):
            return
        if not guard.timer.is_doubting:
            guard.timer.doubt(now_ns)
            _canvass(guard, now_ns)
            return
    ask_pre_votes(guard, now_ns)


def ask_pre_votes(guard: "Guard", now_ns: int) -> None:
    """Could I win the next term? Nothing changes until a majority says yes; votes of this term still count."""
    guard.leader, guard.claimed = None, False
    guard.restart_timer(now_ns)
    _canvass(guard, now_ns)


def _canvass(guard: "Guard", now_ns: int) -> None:
    before = guard.pre_ballot
    asked = before.asked if before is not None and before.term == guard.term + 1 else 0
    guard.pre_ballot = _begin(guard, guard.term + 1, now_ns, preliminary=True, asked=asked)
    guard.pre_ballot.grant(guard.node_id)
    stand_if_wanted(guard, now_ns)


def stand_if_wanted(guard: "Guard", now_ns: int) -> None:
    """Go on to the real election when a majority would vote for us."""
    if guard.pre_ballot is not None and guard.pre_ballot.is_won(guard.configuration):
        stand(guard, now_ns, transfer=False)


def stand(guard: "Guard", now_ns: int, *, transfer: bool) -> None:
    """A real election. The request leaves when the own vote is durable, so a grant proves that too (rule 4)."""
    if not guard.may_stand:
        return
    guard.timer.ballots += 1
    guard.replica.stand()
    guard.notice(now_ns)
    guard.ballot = _begin(guard, guard.term, now_ns, preliminary=False, transfer=transfer)


def _begin(  # noqa: PLR0913  (what a ballot is)
    guard: "Guard", term: int, now_ns: int, *, preliminary: bool, transfer: bool = False, asked: int = 0
) -> Ballot:
    """A new round of asking; `asked` is how often the same was asked before, without an answer."""
    ballot = Ballot(term=term, preliminary=preliminary, transfer=transfer, now_ns=now_ns, asked=asked)
    ask(guard, ballot, now_ns)
    return ballot


def ask(guard: "Guard", ballot: Ballot, now_ns: int) -> None:
    """Send the request to every voter that has not granted yet."""
    ballot.ask(now_ns, guard.timer.retry_ns(now_ns, preliminary=ballot.preliminary, asked=ballot.asked + 1))
    last_index = guard.log.last_index
    last_term = guard.log.term_at(last_index) or 0
    voters = [voter for voter in ballot.silent(guard.configuration) if voter != guard.node_id]
    if ballot.preliminary:  # promises nothing: it need not wait for the disk
        pre_vote = PreVoteRequest(term=ballot.term, last_index=last_index, last_term=last_term)
        guard.sends.extend((voter, pre_vote) for voter in voters)
        return
    request = VoteRequest(term=ballot.term, last_index=last_index, last_term=last_term, transfer=ballot.transfer)
    for voter in voters:
        guard.send(voter, request)


def on_promise_kept(guard: "Guard", now_ns: int) -> None:
    """Term and vote are durable: the requests have left, and the waiting begins."""
    guard.timer.kept(now_ns)
    if guard.ballot is not None:
        guard.ballot.began_ns = now_ns
        guard.ballot.ask(now_ns, guard.timer.retry_ns(now_ns, preliminary=False, asked=1))
    if not guard.has_leader:
        guard.restart_timer(now_ns)


def on_grant(guard: "Guard", sender: NodeId, message: PreVoteGrant | VoteGrant, now_ns: int) -> None:
    """A yes, which counts once, for the ballot of its term and kind, and from a voter only (rule 17)."""
    is_preliminary = isinstance(message, PreVoteGrant)
    ballot = guard.pre_ballot if is_preliminary else guard.ballot
    if ballot is None or ballot.term != message.term or sender not in ballot.silent(guard.configuration):
        return
    measured = guard.timer.tempo.round_trip if is_preliminary else guard.timer.tempo.answer
    measured.note(now_ns, now_ns - ballot.asked_ns)
    ballot.grant(sender)
    if is_preliminary:
        stand_if_wanted(guard, now_ns)
    else:
        guard.replica.count_vote(sender)
        lead_if_won(guard, now_ns)


def on_pre_vote_request(guard: "Guard", sender: NodeId, message: PreVoteRequest, now_ns: int) -> None:
    """Say yes when the real request would be granted; promises nothing, but lets the other one go first."""
    _doubt_leader(guard, sender, message.term, now_ns)
    if guard.leadership is not None:
        guard.leadership.replication.probe_again(sender)  # it does not know us as its leader: claim again
    if guard.timer.pending_ns is not None:
        return  # a vote is on its way to disk, ours or the sender's: let that election come to its end
    if message.term <= guard.term:
        guard.sends.append((sender, TermNotice(term=guard.term)))
        return
    last_index = guard.log.last_index
    own_end = (guard.log.term_at(last_index) or 0, last_index)
    its_end = (message.last_term, message.last_index)
    if its_end < own_end or guard.has_leader:
        return
    ballot = guard.ballot or guard.pre_ballot
    if ballot is not None:
        if (*own_end, guard.node_id) < (*its_end, sender):
            if not guard.is_preferred:
                guard.pre_ballot = None  # it goes first; a grant that crosses this one must not make both stand
        elif now_ns - ballot.began_ns < guard.timer.precedence_ns(now_ns, preliminary=ballot.preliminary):
            return
    guard.sends.append((sender, PreVoteGrant(term=message.term)))
    if guard.ballot is None and guard.pre_ballot is None:
        guard.timer.stand_back(now_ns)


def on_vote_request(guard: "Guard", sender: NodeId, message: VoteRequest, now_ns: int) -> None:
    """Let the replica judge, unless a leader is alive (rule 18). A vote given before is given again."""
    _doubt_leader(guard, sender, message.term, now_ns)
    if message.term < guard.term:
        guard.sends.append((sender, TermNotice(term=guard.term)))
        return
    if guard.has_leader and not message.transfer:
        return
    was_given = guard.log.hard_state == HardState(term=message.term, vote=sender)
    if was_given and guard.timer.pending_ns is not None:
        return  # asked again before the vote was durable: the grant leaves when it is
    is_given = guard.replica.asked_for_vote(sender, message) or was_given
    guard.notice(now_ns)
    if is_given:
        guard.note_promise(now_ns)
        guard.pre_ballot = None
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
