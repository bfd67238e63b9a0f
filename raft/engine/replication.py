"""A leader's side of replication: one `Progress` per member, and the commit index that follows from them.

A peer is *probed* (one outstanding question, repeated with growing pauses) until its log is known to match at some
point; then it is *replicated* to: appends are pipelined within a window of bytes, and nothing is sent twice in one link
session (rule 13). A new session, a reject or a long silence leads back to probing. A peer that is behind the first
entry of the log is offered a *snapshot*.

Two traps of the rules live here: a reject counts only for the outstanding probe, or beyond the match in replication
(else a diverged follower swings between two hints indefinitely); and the commit index given to others never exceeds
what is durable here (rule 5), as the leader's own vote for an entry is its fsync.
"""

import enum
from collections.abc import Callable, Sequence

import attrs

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Append, CommitNotice, Message, SnapshotOffer
from jetraft.raft.engine.port import Limits, PeerProgress, Timing
from jetraft.store.model._fifo import Fifo
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog

NEVER_NS = -(2**62)


class PeerState(enum.Enum):
    """How a member is fed."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@attrs.define(slots=True)
class Progress:
    """The leader's knowledge of one member.

    `match_index < next_index`; the match goes back in a term only when the member itself says that it has lost entries.
    """

    node: NodeId
    next_index: int
    up: bool
    match_index: int = 0
    state: PeerState = PeerState.PROBE
    responded: bool = False  # it answered in this term and link session: it counts in the quorum check
    wake_ns: int | None = None  # a probe, an offer or an acknowledgement is awaited until then
    retry_ns: int = 0  # the pause before the next repetition
    inflight: Fifo[tuple[int, int]] = attrs.Factory(Fifo)  # (last index, bytes) of appends not yet acknowledged
    inflight_bytes: int = 0
    commit_sent: int = 0
    notice_ns: int = NEVER_NS
    active_ns: int = NEVER_NS
    read_round: int = 0

    def probe(self) -> None:
        """Forget what was in flight and ask again where the logs match."""
        self.state = PeerState.PROBE
        self.inflight.clear()
        self.inflight_bytes = 0
        self.wake_ns = None
        self.retry_ns = 0
        self.commit_sent = 0

    def acknowledge(self, verified_index: int) -> None:
        """The member's log matches up to `verified_index`."""
        self.match_index = max(self.match_index, verified_index)
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.inflight and self.inflight[0][0] <= verified_index:
            self.inflight_bytes -= self.inflight.popleft()[1]


class Replication:
    """The members of a group as its leader sees them in one term."""

    def __init__(  # noqa: PLR0913  (what the core lends it)
        self,
        *,
        log: GroupLog,
        term: int,
        timing: Timing,
        limits: Limits,
        send: Callable[[NodeId, Message], None],
        snapshot_offer: Callable[[int], SnapshotOffer | None],
    ) -> None:
        self._log = log
        self._term = term
        self._timing = timing
        self._limits = limits
        self._send = send
        self._snapshot_offer = snapshot_offer
        self._last_read: tuple[int, int, Sequence[Entry], int] | None = None
        self.peers: dict[NodeId, Progress] = {}

    def set_members(self, nodes: Sequence[NodeId], *, up: set[NodeId], next_index: int) -> None:
        """Follow exactly these nodes; those already followed keep their progress."""
        self.peers = {
            node: self.peers.get(node) or Progress(node=node, next_index=next_index, up=node in up) for node in nodes
        }

    def set_link(self, node: NodeId, *, up: bool) -> None:
        """A link session began or ended: whatever was in flight may be lost, and the peer must answer again."""
        peer = self.peers.get(node)
        if peer is not None:
            peer.up = up
            peer.responded = False
            peer.next_index = max(peer.match_index + 1, min(peer.next_index, self._log.last_index + 1))
            peer.probe()

    def probe_again(self, node: NodeId) -> None:
        """The member forgot us inside the session: ask, and so claim the group, at the next `pump`."""
        peer = self.peers.get(node)
        if peer is None or peer.state is PeerState.PROBE:
            return
        if peer.state is PeerState.REPLICATE:
            peer.next_index = peer.match_index + 1
        peer.probe()

    def lose_contact(self, node: NodeId) -> bool:
        """The member takes no part for now. It is asked from time to time, as it may be back in this same session."""
        peer = self.peers.get(node)
        if peer is None:
            return False
        peer.responded = False
        if peer.state is PeerState.REPLICATE:
            self.probe_again(node)
            peer.retry_ns = self._timing.probe_retry_ns  # without entries: the member is not reachable
        return True

    def renew(self, now_ns: int) -> None:
        """Ask the members that have been silent: so they hear of their leader, and the leader of them (rule 41)."""
        timing = self._timing
        for peer in self.peers.values():
            if now_ns - peer.active_ns >= timing.contact_lease_ns:
                peer.responded = False
            is_idle = peer.state is PeerState.REPLICATE and not peer.inflight
            if is_idle and now_ns - peer.active_ns >= timing.renewal_min_ns // 2:
                self.probe_again(peer.node)

    def in_contact(self) -> list[NodeId]:
        """The members that answered in this link session."""
        return [peer.node for peer in self.peers.values() if peer.up and peer.responded]

    # Sending.

    def pump(self, now_ns: int, commit_index: int) -> None:
        """Send what every member may be sent now: entries within its window, and news of the commit index."""
        self._last_read = None
        for peer in self.peers.values():
            if peer.up:
                self._push(peer, now_ns, commit_index)
        self._last_read = None

    def _push(self, peer: Progress, now_ns: int, commit_index: int) -> None:
        if peer.state is PeerState.PROBE and peer.wake_ns is None:
            self._probe(peer, now_ns, commit_index, with_entries=peer.retry_ns == 0)
        elif peer.state is PeerState.REPLICATE:
            last_index, window_bytes = self._log.last_index, self._limits.window_bytes
            while peer.next_index <= last_index and peer.inflight_bytes < window_bytes:
                if not self._append(peer, now_ns, commit_index):
                    return
            if peer.commit_sent < commit_index and peer.notice_ns + self._timing.commit_notice_ns <= now_ns:
                peer.commit_sent, peer.notice_ns = commit_index, now_ns
                self._send(peer.node, CommitNotice(term=self._term, commit_index=commit_index))

    def _probe(self, peer: Progress, now_ns: int, commit_index: int, *, with_entries: bool) -> None:
        """One question; the first carries entries, repetitions are empty."""
        prev_index = peer.next_index - 1
        prev_term = self._log.term_at(prev_index)
        if prev_term is None:
            self._offer_snapshot(peer, now_ns)
            return
        has_entries = with_entries and peer.next_index <= self._log.last_index
        entries: Sequence[Entry] = self._read(peer.next_index)[0] if has_entries else ()
        self._send_append(peer, prev_index, prev_term, commit_index, entries)
        peer.commit_sent = commit_index
        timing = self._timing
        peer.retry_ns = min(peer.retry_ns * 2, timing.probe_retry_max_ns) or timing.probe_retry_ns
        peer.wake_ns = now_ns + peer.retry_ns

    def _append(self, peer: Progress, now_ns: int, commit_index: int) -> bool:
        """The next append of the pipeline; False when the log does not reach back to it any more."""
        prev_index = peer.next_index - 1
        prev_term = self._log.term_at(prev_index)
        if prev_term is None:
            self._offer_snapshot(peer, now_ns)
            return False
        entries, entries_bytes = self._read(peer.next_index)
        self._send_append(peer, prev_index, prev_term, commit_index, entries)
        peer.next_index = entries[-1].index + 1
        peer.inflight.append((entries[-1].index, entries_bytes))
        peer.inflight_bytes += entries_bytes
        peer.commit_sent = commit_index
        if peer.wake_ns is None:
            peer.wake_ns = now_ns + self._timing.ack_timeout_ns
        return True

    def _send_append(
        self, peer: Progress, prev_index: int, prev_term: int, commit_index: int, entries: Sequence[Entry]
    ) -> None:
        append = Append(
            term=self._term, prev_index=prev_index, prev_term=prev_term, commit_index=commit_index, entries=entries
        )
        self._send(peer.node, append)

    def _read(self, first_index: int) -> tuple[Sequence[Entry], int]:
        """Entries from `first_index` on, up to one message's bytes; the members of a healthy group share one read."""
        last_index = self._log.last_index
        cached = self._last_read
        if cached is not None and cached[0] == first_index and cached[1] == last_index:
            return cached[2], cached[3]
        entries = self._log.entries(first_index, last_index, self._limits.append_bytes_max)
        assert entries, "at least one entry is read whatever its size"
        entries_bytes = sum(len(entry.frame) for entry in entries)
        self._last_read = (first_index, last_index, entries, entries_bytes)
        return entries, entries_bytes

    def _offer_snapshot(self, peer: Progress, now_ns: int) -> None:
        peer.state = PeerState.SNAPSHOT
        peer.inflight.clear()
        peer.inflight_bytes = 0
        peer.wake_ns = now_ns + self._timing.snapshot_retry_ns
        offer = self._snapshot_offer(self._term)
        if offer is not None:
            self._send(peer.node, offer)

    # Answers and time.

    def heard(self, node: NodeId, now_ns: int) -> Progress | None:
        """The member answered in this term; None when it is no member (any more)."""
        peer = self.peers.get(node)
        if peer is not None and peer.up:
            peer.responded = True
            peer.active_ns = now_ns
        return peer

    def accepted(self, peer: Progress, verified_index: int, now_ns: int) -> None:
        """The member holds everything up to `verified_index`, durably."""
        # Bounded: no answer of a peer makes this log longer than it is.
        peer.acknowledge(min(verified_index, self._log.last_index))
        if peer.state is not PeerState.REPLICATE:
            told_index = min(peer.commit_sent, verified_index)  # it believes no commit index beyond what it verified
            peer.probe()
            peer.state, peer.commit_sent = PeerState.REPLICATE, told_index
            peer.next_index = peer.match_index + 1
        peer.wake_ns = now_ns + self._timing.ack_timeout_ns if peer.inflight else None

    def rejected(self, peer: Progress, prev_index: int, hint_index: int) -> None:
        """The member's log does not match at `prev_index`.

        A reject of the point that it had acknowledged itself, in the order of one link session, says that its disk has
        lost the end of its log without a trace. It is fed from there again: the alternative is a member that stays
        behind permanently and counts as one that holds everything.
        """
        if peer.state is PeerState.REPLICATE:
            # Acknowledged since: the reject is older than that.
            if prev_index <= peer.match_index:
                return
        # Not the outstanding probe: believing it, the leader would swing between two hints.
        elif prev_index != peer.next_index - 1:
            return
        peer.probe()
        if prev_index == peer.match_index and hint_index <= prev_index:
            peer.match_index = max(0, hint_index - 1)
        peer.next_index = max(peer.match_index + 1, min(hint_index, prev_index, self._log.last_index + 1))

    def tick(self, now_ns: int) -> None:
        """Let awaited answers whose time is over lead to another question at the next `pump`."""
        for peer in self.peers.values():
            if peer.wake_ns is None or peer.wake_ns > now_ns:
                continue
            peer.wake_ns = None
            if not peer.up:
                continue
            if peer.state is PeerState.REPLICATE:
                peer.probe()
                peer.next_index = peer.match_index + 1
            elif peer.state is PeerState.SNAPSHOT:
                if self._log.term_at(peer.next_index - 1) is None:  # still behind the first entry of this log
                    self._offer_snapshot(peer, now_ns)
                else:
                    peer.probe()

    def deadline_ns(self, commit_index: int) -> int | None:
        """When `tick` or a commit notice is due; None when nothing is awaited."""
        due: int | None = None
        for peer in self.peers.values():
            if not peer.up:
                continue
            wake_ns = peer.wake_ns
            if peer.state is PeerState.REPLICATE and peer.commit_sent < commit_index:
                notice_ns = peer.notice_ns + self._timing.commit_notice_ns
                wake_ns = notice_ns if wake_ns is None else min(wake_ns, notice_ns)
            if wake_ns is not None and (due is None or wake_ns < due):
                due = wake_ns
        return due

    # Counting.

    def quorum_index(self, configuration: Configuration, node_id: NodeId, durable_index: int) -> int:
        """The highest index that a majority of the voters holds durably; this member's vote is its durable index."""
        peers = self.peers
        held = [durable_index if voter == node_id else peers[voter].match_index for voter in configuration.voters]
        held.sort()
        # Ascending order: the lower median and all above it are a majority.
        return held[(len(held) - 1) // 2]

    def confirmed_round(self, configuration: Configuration, node_id: NodeId, current_round: int) -> int:
        """The newest read round that a majority of the voters answered."""
        peers = self.peers
        rounds = [current_round if voter == node_id else peers[voter].read_round for voter in configuration.voters]
        rounds.sort()
        return rounds[(len(rounds) - 1) // 2]

    def report(self) -> list[PeerProgress]:
        """A report of every member."""
        return [
            PeerProgress(
                node=peer.node,
                match_index=peer.match_index,
                state=peer.state.value,
                up=peer.up,
                responded=peer.responded,
                active_ns=peer.active_ns,
            )
            for peer in self.peers.values()
        ]
