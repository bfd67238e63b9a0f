"""What a member does with a leader's messages. Handlers of the core's table.

A message that only a leader sends makes its sender the leader of the term, and, in a living link session, lets it
claim the group: the election timer stops until the claim ends. What the leader's entries do to the log is `acceptor`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetraft.raft.acceptor import Refused, accept
from jetraft.raft.engine import (
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
from jetraft.raft.membership import Configuration
from jetraft.store.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry

if TYPE_CHECKING:
    from jetraft.raft.core import Core


def hears_leader(core: "Core", sender: NodeId, term: int, now_ns: int) -> bool:
    """Follow the sender, or tell it that its term is over and return False (rule 8)."""
    if term < core.term:
        core.sends.append((sender, TermNotice(term=core.term)))
        return False
    assert not (term == core.term and core.leadership is not None), "two leaders in one term"
    if term > core.term or sender != core.leader or core.role is not Role.FOLLOWER:
        core.follow(term, sender, now_ns)
    core.timer.heard_ns = now_ns
    if sender not in core.up:
        core.restart_timer(now_ns)  # a late message of an old session: contact, but no claim
    elif not core.claimed or core.timer.is_doubting:
        _accept_claim(core, now_ns)
        core.sends.append((sender, LeaderSeen(term=term)))
    return True


def _accept_claim(core: "Core", now_ns: int) -> None:
    """The leader speaks in a living session: nobody else is looked for until the claim ends, or its lease."""
    if not core.claimed:
        core.told_index = None
    core.claimed, core.is_removed = True, False
    core.pre_ballot = None
    if core.may_stand:
        core.timer.claimed(now_ns)
    else:
        core.timer.stop()


def on_append(core: "Core", sender: NodeId, message: Append, now_ns: int) -> None:
    """Bring the log in line and acknowledge, once durable, exactly what was verified (rules 9 to 12)."""
    if not hears_leader(core, sender, message.term, now_ns):
        return
    outcome = accept(core.log, core.commit_index, message)
    if isinstance(outcome, Refused):
        core.send(sender, AppendRejected(term=core.term, prev_index=message.prev_index, hint_index=outcome.hint_index))
        return
    if outcome.cut_index is not None and core.configurations.cut_from(outcome.cut_index):
        configuration_changed(core, now_ns)
    if outcome.appended_from is not None:
        _note_configurations(core, message.entries[outcome.appended_from :], now_ns)
    core.verified_index = max(core.verified_index, outcome.index)
    _learn_commit(core, message.commit_index)
    core.send(sender, AppendAccepted(term=core.term, prev_index=message.prev_index, verified_index=outcome.index))
    if not message.entries:
        _tell_of_remains(core, sender, outcome.index)


def _tell_of_remains(core: "Core", leader: NodeId, verified_index: int) -> None:
    """Behind what the leader has asked about there are entries of an earlier term: only one of this term ends them.

    A configuration among them would stay in force here, and this member could not be elected without those of it.
    """
    last_index = core.log.last_index
    last_term = core.log.term_at(last_index)
    if last_index > verified_index and last_term is not None and last_term < core.term:
        core.send(leader, AppendRejected(term=core.term, prev_index=last_index, hint_index=verified_index + 1))


def _note_configurations(core: "Core", entries: Sequence[Entry], now_ns: int) -> None:
    """A configuration is in force as soon as it is in the log (rule 27)."""
    for entry in entries:
        if entry.kind == Kind.RAFT_CONFIG:
            core.configurations.append(entry.index, Configuration.decode(entry.frame[FRAME_HEADER_BYTES:]))
            configuration_changed(core, now_ns)


def configuration_changed(core: "Core", now_ns: int) -> None:
    """Stop or start standing for election."""
    core.is_removed = False
    if not core.may_stand:
        core.timer.stop()
        core.ballot = core.pre_ballot = None
    elif core.timer.due_ns is not None:
        return
    elif core.claimed:
        core.timer.claimed(now_ns)
    elif not core.has_leader:
        core.restart_timer(now_ns)


def _learn_commit(core: "Core", leader_commit: int) -> None:
    """Only what was verified against this leader can be known to be committed (rule 10)."""
    core.told_index = leader_commit
    core.commit_index = max(core.commit_index, min(leader_commit, core.verified_index))


def on_commit_notice(core: "Core", sender: NodeId, message: CommitNotice, now_ns: int) -> None:
    """The leader's commit index moved."""
    if hears_leader(core, sender, message.term, now_ns):
        _learn_commit(core, message.commit_index)


def on_resigned(core: "Core", sender: NodeId, message: Resigned, now_ns: int) -> None:
    """The leader gave up, or a member takes no part any more."""
    if message.term != core.term:
        return
    if core.leadership is not None:
        core.leadership.on_gone(sender, now_ns)
    elif sender == core.leader:
        core.drop_claim(now_ns)


def on_read_probe(core: "Core", sender: NodeId, message: ReadProbe, now_ns: int) -> None:
    """The leader asks whether we still follow it."""
    if hears_leader(core, sender, message.term, now_ns):
        core.sends.append((sender, ReadProbeSeen(term=core.term, round=message.round)))


def on_snapshot_offer(core: "Core", sender: NodeId, message: SnapshotOffer, now_ns: int) -> None:
    """Ignore what the own log covers (rule 35), else ask the shell to fetch it (`pending_offer`).

    After the shell has replaced the log the replica starts anew, and the leader's next offer finds the log covering it.
    """
    if not hears_leader(core, sender, message.term, now_ns):
        return
    if message.index <= core.commit_index or core.log.term_at(message.index) == message.index_term:
        core.verified_index = max(core.verified_index, message.index)
        core.send(sender, AppendAccepted(term=core.term, prev_index=0, verified_index=message.index))
    else:
        core.pending_offer = (sender, message)
