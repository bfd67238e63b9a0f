"""A term of leadership over PySyncObj: it appends and counts, the core's `Leadership` talks to the members.

PySyncObj would feed its peers itself, but it never comes to an end with a diverged one, sends everything in flight
again at each acknowledgement, knows no window, and pickles entries that are larger than a batch. So it is not told that
its peers are connected, and of their answers it gets the one thing that it counts: how far each voter's log matches.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jetraft.raft.engine import (
    AppendAccepted,
    AppendRejected,
    CoreSetup,
    LeaderSeen,
    Message,
    Proposal,
    ReadProbeSeen,
    SnapshotOffer,
)
from jetraft.raft.leadership import Leadership
from jetraft.raft.membership import ConfigurationHistory
from jetraft.store.format import Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog

if TYPE_CHECKING:
    from jetraft.raft.pysyncobj_guard import Guard


class GuardedLeadership(Leadership):
    """One term of leadership whose entries PySyncObj appends, the no-op at its start by itself."""

    def __init__(  # noqa: PLR0913  (what the guard lends it)
        self,
        setup: CoreSetup,
        *,
        log: GroupLog,
        term: int,
        configurations: ConfigurationHistory,
        up: set[NodeId],
        now_ns: int,
        send: Callable[[NodeId, Message], None],
        snapshot_offer: Callable[[int], SnapshotOffer | None],
        append: Callable[[Sequence[Proposal]], None],
    ) -> None:
        self._append = append
        super().__init__(
            setup,
            log=log,
            term=term,
            configurations=configurations,
            up=up,
            commit_index=0,  # PySyncObj has appended its no-op, whatever is committed
            now_ns=now_ns,
            send=send,
            snapshot_offer=snapshot_offer,
        )
        for peer in self.replication.peers.values():
            peer.next_index = self.term_start_index  # ask for the match just before the no-op, which is new to all

    def propose(self, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal and return the first index. The no-op is there already."""
        if proposals[0].kind == Kind.NOOP:
            return self._log.last_index
        first_index = self._log.last_index + 1
        self._append(proposals)
        assert self._log.last_index == first_index + len(proposals) - 1, "PySyncObj appends what its leader proposes"
        return first_index


def lead_if_won(guard: "Guard", now_ns: int) -> None:
    """The replica counts the votes; its no-op is in the log when it leads."""
    if not guard.replica.leads or guard.leadership is not None:
        return
    guard.leader, guard.ballot, guard.pre_ballot = guard.node_id, None, None
    guard.timer.stop()
    guard.timer.ballots = 0
    guard.leadership = GuardedLeadership(
        guard.setup,
        log=guard.log,
        term=guard.term,
        configurations=guard.configurations,
        up=guard.up,
        now_ns=now_ns,
        send=guard.send_in_term,
        snapshot_offer=guard.snapshot_offer,
        append=guard.replica.propose,
    )


def _leads(guard: "Guard", term: int) -> GuardedLeadership | None:
    """Answers of other terms are dropped (rule 12)."""
    return guard.leadership if term == guard.term else None


def on_append_accepted(guard: "Guard", sender: NodeId, message: AppendAccepted, now_ns: int) -> None:
    """A member holds more of the log; the replica is told of voters only."""
    leading = _leads(guard, message.term)
    peer = None if leading is None else leading.replication.peers.get(sender)
    if leading is None or peer is None:
        return
    match_index = peer.match_index
    leading.on_accepted(sender, message, now_ns)
    if peer.match_index > match_index and sender in guard.configuration.voters:
        guard.replica.holds(sender, peer.match_index)
        guard.count_commit()


def on_append_rejected(guard: "Guard", sender: NodeId, message: AppendRejected, now_ns: int) -> None:
    """A member's log differs."""
    leading = _leads(guard, message.term)
    if leading is not None:
        leading.on_rejected(sender, message, now_ns)


def on_leader_seen(guard: "Guard", sender: NodeId, message: LeaderSeen, now_ns: int) -> None:
    """A member follows us in this link session."""
    leading = _leads(guard, message.term)
    if leading is not None:
        leading.on_seen(sender, now_ns)


def on_read_probe_seen(guard: "Guard", sender: NodeId, message: ReadProbeSeen, now_ns: int) -> None:
    """A member still followed us when the probe came."""
    leading = _leads(guard, message.term)
    if leading is not None:
        leading.on_read_seen(sender, message, now_ns)
