"""A leader and the answers of members, with either engine. Answers of other terms are dropped (rule 12).

A member that says whom it follows may have been misled by a late message of a leader that is one no longer. The node
that it follows says so (rule 44), whether it has the group open or not: else the claim lasts until its lease ends.
"""

from typing import TYPE_CHECKING

from jetraft.raft.engine.leadership import Leadership
from jetraft.raft.engine.messages import AppendAccepted, AppendRejected, LeaderSeen, ReadProbeSeen, Resigned
from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.raft.engine.member_state import MemberState


def _leads(member: "MemberState", term: int) -> Leadership | None:
    return member.leadership if term == member.term else None


def on_append_accepted(member: "MemberState", sender: NodeId, message: AppendAccepted, now_ns: int) -> None:
    """A member holds more of the log."""
    leading = _leads(member, message.term)
    if leading is not None and leading.on_accepted(sender, message, now_ns):
        member.decider.count_match(member, sender)


def on_append_rejected(member: "MemberState", sender: NodeId, message: AppendRejected, now_ns: int) -> None:
    """A member's log differs."""
    leading = _leads(member, message.term)
    if leading is not None:
        leading.on_rejected(sender, message, now_ns)


def on_leader_seen(member: "MemberState", sender: NodeId, message: LeaderSeen, now_ns: int) -> None:
    """A member follows us in this link session."""
    leading = _leads(member, message.term)
    if leading is not None:
        leading.on_seen(sender, now_ns)
    else:
        member.effects.send_now(sender, disclaimer(message))


def disclaimer(message: LeaderSeen) -> Resigned:
    """The answer of a node that does not lead in the term in which it is followed; it never will again."""
    return Resigned(term=message.term)


def on_read_probe_seen(member: "MemberState", sender: NodeId, message: ReadProbeSeen, now_ns: int) -> None:
    """A member still followed us when the probe came."""
    leading = _leads(member, message.term)
    if leading is not None:
        leading.on_read_seen(sender, message, now_ns)
