"""A leader's messages on their way to PySyncObj: what it is told, and what is answered when.

PySyncObj is told who leads, what to cut and append, and how far the log is committed and verified. Its own answer, its
last index whether it was compared or not, stays here; the member acknowledges exactly what was verified, once durable.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetraft.raft.acceptor import LogDivergedError
from jetraft.raft.engine import (
    Append,
    AppendAccepted,
    AppendRejected,
    CommitNotice,
    LeaderSeen,
    ReadProbe,
    ReadProbeSeen,
    Removed,
    Resigned,
    SnapshotOffer,
    TermNotice,
)
from jetraft.raft.pysyncobj_compare import Mismatch, News, news_of, nothing_new
from jetraft.store.format import Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry

if TYPE_CHECKING:
    from jetraft.raft.pysyncobj_guard import Guard


class FixedMembershipError(LogDivergedError):
    """The log of the group changes its members, which this engine does not follow. The group halts."""


def hears_leader(guard: "Guard", sender: NodeId, term: int, now_ns: int) -> bool:
    """Follow the sender, or tell it that its term is over and return False (rule 8)."""
    if term < guard.term:
        guard.sends.append((sender, TermNotice(term=guard.term)))
        return False
    assert not (term == guard.term and guard.leadership is not None), "two leaders in one term"
    if term > guard.term or sender != guard.leader or guard.replica.stands:
        guard.replica.follow(sender, term)
        guard.notice(now_ns)
        guard.leader, guard.claimed = sender, False
        guard.ballot = guard.pre_ballot = None
        guard.restart_timer(now_ns)
    guard.timer.heard_ns = now_ns
    if sender not in guard.up:
        guard.restart_timer(now_ns)  # a late message of an old session: contact, but no claim
    elif not guard.claimed or guard.timer.is_doubting:
        if not guard.claimed:
            guard.told_index = None
        guard.claimed, guard.pre_ballot = True, None
        if guard.may_stand:
            guard.timer.claimed(now_ns)
        guard.sends.append((sender, LeaderSeen(term=term)))
    return True


def on_append(guard: "Guard", sender: NodeId, message: Append, now_ns: int) -> None:
    """Bring the log in line and acknowledge, once durable, exactly what was verified (rules 9 to 12)."""
    if not hears_leader(guard, sender, message.term, now_ns):
        return
    news = news_of(guard.log, guard.commit_index, message)
    if isinstance(news, Mismatch):
        rejected = AppendRejected(term=guard.term, prev_index=message.prev_index, hint_index=news.hint_index)
        guard.send(sender, rejected)
        return
    _refuse_other_members(guard, news.entries, cut_index=news.prev_index + 1 if news.cuts else None)
    guard.verified_index = max(guard.verified_index, news.verified_index)
    _take(guard, sender, news, message.commit_index)
    accepted = AppendAccepted(term=guard.term, prev_index=message.prev_index, verified_index=news.verified_index)
    guard.send(sender, accepted)


def _refuse_other_members(guard: "Guard", entries: Sequence[Entry], *, cut_index: int | None) -> None:
    """Halt at a configuration entry, new or to be cut: both change who votes, and PySyncObj would not know."""
    arrives = any(entry.kind == Kind.RAFT_CONFIG for entry in entries)
    goes = cut_index is not None and guard.configurations.current_index >= cut_index
    if arrives or goes:
        raise FixedMembershipError("raft_engine pysyncobj does not follow a change of members; use raft_engine core")


def _take(guard: "Guard", leader: NodeId, news: News, leader_commit: int) -> None:
    """Tell PySyncObj. Only what was verified against this leader can be known to be committed (rule 10)."""
    guard.told_index = leader_commit
    commit_index = min(leader_commit, guard.verified_index)
    if news.entries or commit_index > guard.replica.commit_index:
        guard.replica.take(leader, prev_index=news.prev_index, entries=news.entries, commit_index=commit_index)
    guard.commit_index = max(guard.commit_index, min(commit_index, guard.replica.commit_index))


def on_commit_notice(guard: "Guard", sender: NodeId, message: CommitNotice, now_ns: int) -> None:
    """The leader's commit index moved."""
    if hears_leader(guard, sender, message.term, now_ns):
        _take(guard, sender, nothing_new(guard.log, guard.verified_index), message.commit_index)


def on_resigned(guard: "Guard", sender: NodeId, message: Resigned, now_ns: int) -> None:
    """The leader gave up, or a member takes no part any more."""
    if message.term != guard.term:
        return
    if guard.leadership is not None:
        guard.leadership.on_gone(sender, now_ns)
    elif sender == guard.leader:
        guard.drop_claim(now_ns)


def on_removed(_guard: "Guard", _sender: NodeId, _message: Removed, _now_ns: int) -> None:
    """Members do not change with this engine: a leader that says so follows another configuration, and is not heard."""


def on_read_probe(guard: "Guard", sender: NodeId, message: ReadProbe, now_ns: int) -> None:
    """The leader asks whether we still follow it."""
    if hears_leader(guard, sender, message.term, now_ns):
        guard.sends.append((sender, ReadProbeSeen(term=guard.term, round=message.round)))


def on_snapshot_offer(guard: "Guard", sender: NodeId, message: SnapshotOffer, now_ns: int) -> None:
    """Ignore what the own log covers (rule 35), else ask the shell to fetch it (`pending_offer`)."""
    if not hears_leader(guard, sender, message.term, now_ns):
        return
    if message.index <= guard.commit_index or guard.log.term_at(message.index) == message.index_term:
        guard.verified_index = max(guard.verified_index, message.index)
        guard.send(sender, AppendAccepted(term=guard.term, prev_index=0, verified_index=message.index))
    else:
        guard.pending_offer = (sender, message)
