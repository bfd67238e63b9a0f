"""All groups of a node: their deadlines, their messages, and one flush per turn.

An idle group costs next to nothing: it is stepped only on a message, a proposal, a finished fsync, a link that changed
(some groups in each turn, raft/peer_events.py), or its deadline, which waits in one heap. What the groups send in a
turn leaves as one payload per peer. `flush` ends a turn; when something is queued outside of one (a finished fsync, a
proposal from a task), `on_dirty` tells the shell to schedule it.

Messages for groups that this node does not have, or has in another incarnation, are dropped and counted: a peer may be
a moment ahead in learning of a creation or a removal (rule 30).
"""

import heapq
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import attrs

from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSetting, GroupSpec
from jetraft.raft.machine import StateMachine
from jetraft.raft.peer_events import PeerEvents
from jetraft.raft.wire import decode, encode
from jetraft.store.model.clock import Clock
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import GroupLog

if TYPE_CHECKING:
    from jetraft.raft.engine import SnapshotOffer

log = logging.getLogger(__name__)

CHANNEL_RAFT = 1
PAYLOAD_BYTES_MAX = 16 << 20  # a turn's messages to one peer are cut into link frames of about this size
TICKS_PER_TURN = 200  # some 10 ms of questions
ROUNDS_PER_FLUSH = 8  # callbacks may propose again; what is left after these rounds waits for the next turn


class Links(Protocol):
    """What the manager needs of the mesh."""

    node_id: NodeId
    on_peer_up: list[Callable[[NodeId], None]]
    on_peer_down: list[Callable[[NodeId], None]]

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        """Queue a payload; False when the link is down."""
        ...

    def on_frame(self, channel: int, handler: Callable[[NodeId, memoryview], None]) -> None:
        """Hand the channel's payloads to `handler`."""
        ...

    def is_up(self, node: NodeId) -> bool:
        """Whether there is a link session with the node."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class ManagerStatistics:
    """A snapshot of the node's figures."""

    groups: int
    groups_led: int
    groups_failed: int
    deadlines: int
    messages_sent: int
    messages_received: int
    messages_dropped: int
    payload_bytes_sent: int


class Manager:
    """See the module."""

    def __init__(self, setting: GroupSetting, *, links: Links, clock: Clock) -> None:
        self._setting = setting
        self._links = links
        self._clock = clock
        self._groups: dict[GroupId, Group] = {}
        self._dirty: dict[GroupId, Group] = {}  # in the order in which they were marked
        self._deadlines: list[tuple[int, int, Group]] = []
        self._deadline_count = 0
        self._flushing = False
        self._up: set[NodeId] = set()  # nodes whose link session began in this process
        self._peer_events = PeerEvents()
        self._outgoing: dict[NodeId, list[bytes]] = {}
        self._messages_sent = self._messages_received = self._messages_dropped = self._payload_bytes_sent = 0
        self._unwritten: dict[GroupId, Group] = {}  # advanced in this turn
        self._last_writer: Group | None = None  # what `write` is for
        self._written: dict[GroupId, Group] = {}  # since `note_floors` was called
        self.may_block = False  # `write` is called after what a turn sends has left
        self.on_dirty: Callable[[], None] = lambda: None
        self.on_committed: Callable[[], None] = lambda: None  # acknowledgements may leave now
        self.on_offer: Callable[[Group, NodeId, SnapshotOffer], None] = _no_catchup
        self.on_stray: Callable[[NodeId, GroupId, int], None] = lambda _sender, _group, _incarnation: None
        links.on_frame(CHANNEL_RAFT, self._on_payload)
        links.on_peer_up.append(self._on_peer_up)
        links.on_peer_down.append(self._on_peer_down)

    @property
    def groups(self) -> Mapping[GroupId, Group]:
        """The groups of this node."""
        return MappingProxyType(self._groups)

    def create(self, spec: GroupSpec, log: GroupLog, machine: StateMachine) -> Group:
        """Start a member of a group over its log. A group of one leads as soon as its term and vote are durable."""
        assert spec.group_id not in self._groups, f"{spec.group_id} exists already"
        now_ns = self._clock.mono_ns()
        group = Group(spec, self._setting, log=log, machine=machine, clock=self._clock, mark_dirty=self._mark_dirty)
        self._groups[spec.group_id] = group
        for node in sorted(self._up.union(group.members)):  # also those that may be added later
            if node != self._setting.node_id and self._links.is_up(node):
                group.peer_up(node, now_ns)
        self._mark_dirty(group)
        return group

    def remove(self, group_id: GroupId) -> None:
        """Stop taking part. Waiting proposals end; the log stays as it is, its owner closes or erases it."""
        group = self._groups.pop(group_id)
        group.stop(self._clock.mono_ns())
        group.core.pending_offer = None  # nobody may fetch for a log that is about to be closed
        self._unwritten.pop(group_id, None)
        if self._written.pop(group_id, None) is not None and group.log.failed is None:
            group.log.note_floor()
        self._collect(group)
        self._dirty.pop(group_id, None)
        self._peer_events.forget(group_id)
        if self._outgoing:
            self.on_dirty()

    # Turns.

    def flush(self) -> None:
        """End a turn: advance every group that has something to do, then send, one payload per peer."""
        if not (self._dirty or self._unwritten or self._outgoing or self._last_writer or self._peer_events):
            return
        now_ns = self._clock.mono_ns()
        if self._peer_events:
            self._peer_events.tell_some(now_ns)
        if self._last_writer is not None:  # a turn ended before its time
            self._unwritten[self._last_writer.group_id] = self._last_writer
            self._last_writer = None
        self._flushing = True
        for _ in range(ROUNDS_PER_FLUSH):
            if not self._dirty:
                break
            dirty, self._dirty = self._dirty, {}
            self._advance(dirty, now_ns)
            if not self._dirty:
                self._hand_over()
        self._hand_over()
        self._flushing = False
        self._send_all()
        if self._dirty or self._peer_events:
            self.on_dirty()

    def _advance(self, dirty: dict[GroupId, Group], now_ns: int) -> None:
        """One round: first everybody says what is committed, and that leaves; the rest is nobody's waiting time."""
        told = False
        for group in dirty.values():
            told |= group.learn(now_ns)
        if told:
            self.on_committed()
        for group in dirty.values():
            group.advance(now_ns)
            self._collect(group)
            self._schedule(group)
        self._unwritten |= dirty

    def _hand_over(self) -> None:
        """Give the logs to the writer, except for a single small batch: `write` waits for that here.

        Two thread switches cost as much as an fsync of a good disk; but nobody else can work meanwhile.
        """
        if not self._unwritten:
            return
        unwritten = [group for group in self._unwritten.values() if group.has_unwritten()]
        self._unwritten.clear()
        if self.may_block and len(unwritten) == 1 and unwritten[0].would_block():
            self._last_writer = unwritten[0]
            return
        for group in unwritten:
            self._written[group.group_id] = group
            group.write(may_block=False)

    def write(self) -> bool:
        """After what the turn sends has left: write what waits; True when `flush` has something to do because of it."""
        group, self._last_writer = self._last_writer, None
        if group is None:
            return False
        self._written[group.group_id] = group
        group.write(may_block=True)
        return bool(self._dirty)

    def note_floors(self) -> None:
        """Have the logs that were written to say how far they are durable.

        What is lost of the end of a newest block is then found by the next start, though nothing in it can tell. To be
        called about once a second: it costs one batch of the ledger for all groups, and nothing when all are quiet.
        """
        written, self._written = self._written, {}
        for group in written.values():
            group.note_floor()
            if group.failed is None and group.log.durable_index < group.log.last_index:
                self._written[group.group_id] = group  # the disk is slow: the rest of it the next time

    @property
    def logs_written(self) -> int:
        """How many logs were written to since `note_floors` was called."""
        return len(self._written)

    def tick(self, now_ns: int) -> None:
        """Step the groups whose deadline passed, the oldest first; the turn's flush follows.

        Only so many in a turn: when a thousand look for a leader, the answers to the first come before the questions of
        the last, and before the first ask again.
        """
        left = TICKS_PER_TURN
        while left and self._deadlines and self._deadlines[0][0] <= now_ns:
            deadline_ns, _, group = heapq.heappop(self._deadlines)
            if group.scheduled_ns != deadline_ns:
                continue  # a nearer deadline was scheduled since
            group.scheduled_ns = None
            due_ns = group.deadline_ns
            if due_ns is not None and due_ns <= now_ns:
                left -= 1
                group.tick(now_ns)
            else:
                self._schedule(group)

    @property
    def next_deadline_ns(self) -> int | None:
        """When `tick` is due; it may find that the deadline has moved on."""
        return self._deadlines[0][0] if self._deadlines else None

    def statistics(self) -> ManagerStatistics:
        """Figures for monitoring and tests."""
        groups = self._groups.values()
        return ManagerStatistics(
            groups=len(self._groups),
            groups_led=sum(group.is_leader for group in groups),
            groups_failed=sum(group.failed is not None for group in groups),
            deadlines=len(self._deadlines),
            messages_sent=self._messages_sent,
            messages_received=self._messages_received,
            messages_dropped=self._messages_dropped,
            payload_bytes_sent=self._payload_bytes_sent,
        )

    def _mark_dirty(self, group: Group) -> None:
        is_first = not self._dirty
        self._dirty[group.group_id] = group
        if is_first and not self._flushing:
            self.on_dirty()

    def _schedule(self, group: Group) -> None:
        """Enter the group's deadline into the heap unless an earlier entry will look at it anyway."""
        deadline_ns = group.deadline_ns
        if deadline_ns is None or self._groups.get(group.group_id) is not group:
            return
        if group.scheduled_ns is None or deadline_ns < group.scheduled_ns:
            group.scheduled_ns = deadline_ns
            self._deadline_count += 1
            heapq.heappush(self._deadlines, (deadline_ns, self._deadline_count, group))

    # Messages.

    def _collect(self, group: Group) -> None:
        """Encode what the group's engine sends."""
        if group.core.pending_offer is not None:
            (sender, offer), group.core.pending_offer = group.core.pending_offer, None
            self.on_offer(group, sender, offer)
        sends = group.core.sends
        if not sends:
            return
        for to, message in sends:
            self._outgoing.setdefault(to, []).extend(encode(group.group_name, group.incarnation, message))
        self._messages_sent += len(sends)
        sends.clear()

    def _send_all(self) -> None:
        if not self._outgoing:
            return
        outgoing, self._outgoing = self._outgoing, {}
        for to, parts in outgoing.items():
            for payload in _payloads(parts):
                self._payload_bytes_sent += len(payload)
                self._links.send(to, CHANNEL_RAFT, payload)  # a link that is down: `peer_down` tells the groups

    def _on_payload(self, sender: NodeId, payload: memoryview) -> None:
        """A peer's messages. Raises RemoteProtocolError before anything was changed."""
        now_ns = self._clock.mono_ns()
        for addressed in decode(payload):
            self._messages_received += 1
            group = self._groups.get(addressed.group_id)
            if group is None or group.incarnation != addressed.incarnation:
                self._messages_dropped += 1
                self.on_stray(sender, addressed.group_id, addressed.incarnation)
                continue
            if self._peer_events:
                self._peer_events.settle(group, sender, now_ns)
            group.step(sender, addressed.message, now_ns)

    def _on_peer_up(self, node: NodeId) -> None:
        self._up.add(node)
        self._peer_events.add(node, self._groups.values(), up=True)
        self._tell_some()

    def _on_peer_down(self, node: NodeId) -> None:
        """Those that it leads hear of it first."""
        self._up.discard(node)
        groups = self._groups.values()
        self._peer_events.add(node, [group for group in groups if group.leader == node], up=False)
        self._peer_events.add(node, [group for group in groups if group.leader != node], up=False)
        self._tell_some()

    def _tell_some(self) -> None:
        """The first ones now, the others at the beginning of the turns to come."""
        self._peer_events.tell_some(self._clock.mono_ns())
        if self._peer_events:
            self.on_dirty()


def _no_catchup(group: Group, sender: NodeId, _offer: "SnapshotOffer") -> None:
    """Without a Catchup (raft/catchup.py) a member that is behind the log stays behind."""
    log.warning("%s is behind the log of %s, and nothing here fetches snapshots", group.group_id, sender)


def _payloads(parts: list[bytes]) -> list[bytes]:
    """Join parts into payloads of bounded size; a message is never cut (its parts begin with a fixed header)."""
    total = sum(map(len, parts))
    if total <= PAYLOAD_BYTES_MAX:
        return [b"".join(parts)]
    return _split(parts)


def _split(parts: list[bytes]) -> list[bytes]:
    """Cut between messages: the first four bytes of a message give its whole length."""
    payloads: list[bytes] = []
    current: list[bytes] = []
    current_bytes = remaining = 0
    for part in parts:
        if remaining == 0:
            remaining = int.from_bytes(part[:4], "little")
            if current and current_bytes + remaining > PAYLOAD_BYTES_MAX:
                payloads.append(b"".join(current))
                current, current_bytes = [], 0
        current.append(part)
        current_bytes += len(part)
        remaining -= len(part)
    payloads.append(b"".join(current))
    return payloads
