"""A member and its leader's messages, with either engine.

A message that only a leader sends makes its sender the leader of the term, and, in a living link session, lets it
claim the group: the election timer stops until the claim ends. The effect of the leader's entries on the log is for the
decider to say.
"""

from typing import TYPE_CHECKING

from jetraft.raft.engine import candidacy
from jetraft.raft.engine.acceptor import AppendRefused
from jetraft.raft.engine.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    CommitNotice,
    LeaderSeen,
    ReadProbe,
    ReadProbeSeen,
    Resigned,
    Role,
    SnapshotOffer,
    TermNotice,
)
from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.raft.engine.member_state import MemberState


def hears_leader(member: "MemberState", sender: NodeId, term: int, now_ns: int) -> bool:
    """Follow the sender, or tell it that its term is over and return False (rule 8)."""
    if term < member.term:
        member.effects.send_now(sender, TermNotice(term=member.term))
        return False
    assert not (term == member.term and member.leadership is not None), "two leaders in one term"
    if term > member.term or sender != member.leader or member.role is not Role.FOLLOWER:
        member.decider.follow(member, sender, term, now_ns)
    member.timer.heard_ns = now_ns
    if sender not in member.up:
        member.restart_timer(now_ns)  # a late message of an old session: contact, but no claim
    elif not member.claimed or member.timer.is_doubting:
        _accept_claim(member, now_ns)
        member.effects.send_now(sender, LeaderSeen(term=term))
    return True


def _accept_claim(member: "MemberState", now_ns: int) -> None:
    """The leader speaks in a live session: no election is sought until its claim or its lease ends."""
    if not member.claimed:
        member.told_index = None
    member.claimed, member.is_removed = True, False
    member.pre_ballot = None
    if member.may_stand:
        member.timer.claimed(now_ns)
    else:
        member.timer.stop()


def on_append(member: "MemberState", sender: NodeId, message: Append, now_ns: int) -> None:
    """Bring the log in line and acknowledge, once durable, exactly what was verified (rules 9 to 12)."""
    if not hears_leader(member, sender, message.term, now_ns):
        return
    outcome = member.decider.take(member, sender, message, now_ns)
    if isinstance(outcome, AppendRefused):
        rejected = AppendRejected(term=member.term, prev_index=message.prev_index, hint_index=outcome.hint_index)
        member.effects.send_when_durable(sender, rejected)
        return
    member.told_index = message.commit_index
    accepted = AppendAccepted(term=member.term, prev_index=message.prev_index, verified_index=outcome)
    member.effects.send_when_durable(sender, accepted)
    if member.members_may_change and not message.entries:
        _tell_of_remains(member, sender, outcome)


def _tell_of_remains(member: "MemberState", leader: NodeId, verified_index: int) -> None:
    """Behind what the leader has asked about there are entries of an earlier term: only one of this term ends them.

    A configuration among them would stay in force here, and this member could not be elected without those of it.
    """
    last_index = member.log.last_index
    last_term = member.log.term_at(last_index)
    if last_index > verified_index and last_term is not None and last_term < member.term:
        remains = AppendRejected(term=member.term, prev_index=last_index, hint_index=verified_index + 1)
        member.effects.send_when_durable(leader, remains)


def on_commit_notice(member: "MemberState", sender: NodeId, message: CommitNotice, now_ns: int) -> None:
    """The leader's commit index moved."""
    if hears_leader(member, sender, message.term, now_ns):
        member.told_index = message.commit_index
        member.decider.learn_commit(member, sender, message.commit_index)


def on_resigned(member: "MemberState", sender: NodeId, message: Resigned, now_ns: int) -> None:
    """The leader gave up, or a member takes no part any more."""
    if message.term != member.term:
        return
    if member.leadership is not None:
        member.leadership.on_gone(sender, now_ns)
    elif sender == member.leader:
        candidacy.drop_claim(member, now_ns)


def on_read_probe(member: "MemberState", sender: NodeId, message: ReadProbe, now_ns: int) -> None:
    """The leader asks whether we still follow it."""
    if hears_leader(member, sender, message.term, now_ns):
        # Neither a vote nor an acceptance (rule 2): it need not wait for the disk.
        member.effects.send_now(sender, ReadProbeSeen(term=member.term, round=message.round))


def on_snapshot_offer(member: "MemberState", sender: NodeId, message: SnapshotOffer, now_ns: int) -> None:
    """Ignore what this log covers (rule 35), else ask the shell to fetch it.

    After the shell has replaced the log the member starts again, and the leader's next offer finds the log covering it.
    """
    if not hears_leader(member, sender, message.term, now_ns):
        return
    # The same (index, term) means the same log up to there: nothing is missing here.
    if message.index <= member.commit_index or member.log.term_at(message.index) == message.index_term:
        member.verified_index = max(member.verified_index, message.index)
        accepted = AppendAccepted(term=member.term, prev_index=0, verified_index=message.index)
        member.effects.send_when_durable(sender, accepted)
    else:
        member.effects.fetch(sender, message)
