"""When a member looks for a leader: after silence, at once, or not at all. Pure.

elections.py holds the election itself; here is what starts it, and which of several members goes first.
"""

from typing import TYPE_CHECKING, Final

from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.raft.engine.member_state import MemberState

MIXER: Final = 2_654_435_769  # Knuth's multiplicative hash: incarnations may be all even


def drop_claim(member: "MemberState", now_ns: int) -> None:
    """The leader is silent or gave up: look for another soon, not all members at the same moment."""
    gone, member.claimed, member.leader = member.leader, False, None
    if member.ballot is None and member.may_stand:
        member.pre_ballot = None  # it asked whether the leader is alive
        is_first = member.reluctant or _goes_first(member, gone)
        member.timer.look_soon(now_ns, is_reluctant=member.reluctant, is_first=is_first)


def _goes_first(member: "MemberState", gone: NodeId | None) -> bool:
    """Whether this is the one that looks for a leader first: one of those that are left, another in each group.

    Where all begin together most ballots meet another one, and with thousands of groups the disks are busy with both.
    Members that see different nodes as down may choose none or two: then they ask a moment later, or at once.
    """
    up = member.up - {gone}
    there = [voter for voter in member.configuration.voters if voter == member.node_id or voter in up]
    return there[(member.setup.incarnation * MIXER >> 32) % len(there)] == member.node_id


def look_soon(member: "MemberState", now_ns: int) -> None:
    """No leader is known and a majority can be asked, as after the start of all: do not wait for the timer.

    If there is a leader after all, the pre-vote does not disturb it, and the leader answers with its claim.
    """
    asks = member.leader is None and not member.reluctant and member.ballot is None and member.pre_ballot is None
    if asks and member.may_stand and member.configuration.has_quorum({*member.up, member.node_id}):
        member.timer.look_no_later(now_ns)


def configuration_changed(member: "MemberState", now_ns: int) -> None:
    """Another configuration is in force: stop or start standing for election."""
    member.is_removed = False
    if not member.may_stand:
        member.timer.stop()
        member.ballot = member.pre_ballot = None
    elif member.timer.due_ns is not None:
        return  # it stands for election already: a change of other members is no news
    elif member.claimed:
        member.timer.claimed(now_ns)
    elif not member.has_leader:
        member.restart_timer(now_ns)
