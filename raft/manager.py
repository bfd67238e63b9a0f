"""All groups of a node: their deadlines, their messages, and one flush per turn.

An idle group costs next to nothing: it is stepped only on a message, a proposal, a finished fsync, a link that changed
(some groups in each turn, raft/peer_events.py), or its deadline (raft/deadlines.py). All that the groups send in a turn
leaves as one payload per peer (raft/outgoing.py). `flush` ends a turn; when something is queued outside of one (a
finished fsync, a proposal from a task), `on_dirty` schedules one.

Messages for groups that this node does not have, or has in another incarnation, are dropped and counted: a peer may be
a moment ahead in learning of a creation or a removal (rule 30). Only who follows this node in such a group is answered.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import attrs

from jetraft.raft.deadlines import Deadlines
from jetraft.raft.engine.answers import disclaimer
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import LeaderSeen
from jetraft.raft.freshness import Freshness
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSetting, GroupSpec, StandsBack
from jetraft.raft.machine import StateMachine
from jetraft.raft.outgoing import Outgoing
from jetraft.raft.peer_events import PeerEvents
from jetraft.raft.replay import Replayed, recover
from jetraft.raft.wire import Addressed, decode
from jetraft.store.model.clock import Clock
from jetraft.store.model.histogram import Histogram
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.model.signal import Signal
from jetraft.store.port import GroupLog

if TYPE_CHECKING:
    from jetraft.raft.engine.messages import SnapshotOffer

log = logging.getLogger(__name__)

CHANNEL_RAFT = 1
TICKS_PER_TURN = 200  # some 10 ms of questions
ROUNDS_PER_FLUSH = 8  # callbacks may propose again; what is left after these rounds waits for the next turn


class Links(Protocol):
    """The links as the manager needs them."""

    @property
    def node_id(self) -> NodeId:
        """Of this node."""
        ...

    @property
    def on_peer_up(self) -> Signal[[NodeId]]:
        """A link session began."""
        ...

    @property
    def on_peer_down(self) -> Signal[[NodeId]]:
        """A link session ended."""
        ...

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

    def __init__(  # noqa: PLR0913  (what a turn of the node gives)
        self,
        setting: GroupSetting,
        *,
        links: Links,
        clock: Clock,
        on_dirty: Callable[[], None] = lambda: None,
        on_committed: Callable[[], None] = lambda: None,
        on_written: Callable[[], None] = lambda: None,
        may_block: bool = False,
        gathering: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`on_dirty` schedules a turn; `on_committed` lets acknowledgements leave before the rest of the turn.

        `on_written` is called at the first write to any log since `note_floors` was called.
        With `may_block`, `write` is called after what a turn sends has left. In `gathering` many logs are handed to the
        writer.
        """
        self._setting = setting
        self._links = links
        self._clock = clock
        self._groups: dict[GroupId, Group] = {}
        self._dirty: dict[GroupId, Group] = {}  # in the order in which they were marked
        self._deadlines = Deadlines()
        self._flushing = False
        self.stands_back = StandsBack(0)  # of groups with several members that begin from now on
        self._up: set[NodeId] = set()  # nodes whose link session began in this process
        self._peer_events = PeerEvents()
        self._outgoing = Outgoing()
        self._messages_received = self._messages_dropped = 0
        self._unwritten: dict[GroupId, Group] = {}  # advanced in this turn
        self._last_writer: Group | None = None  # what `write` is for
        self._written: dict[GroupId, Group] = {}  # since `note_floors` was called
        self._may_block = may_block
        self._gathering = gathering
        self._on_dirty = on_dirty
        self._on_committed = on_committed
        self._on_written = on_written
        self.apply_times = Histogram()  # of rounds, in which groups apply what is committed and append what is proposed
        self._take_offer: Callable[[Group, NodeId, SnapshotOffer], None] = _no_catchup
        self._take_stray: Callable[[NodeId, GroupId, int], None] = _no_repairs
        links.on_frame(CHANNEL_RAFT, self._on_payload)
        links.on_peer_up.connect(self._on_peer_up)
        links.on_peer_down.connect(self._on_peer_down)

    def serve_offers(self, handler: "Callable[[Group, NodeId, SnapshotOffer], None]") -> None:
        """Hand the snapshots that leaders offer to members of this node to `handler`."""
        self._take_offer = handler

    def serve_strays(self, handler: Callable[[NodeId, GroupId, int], None]) -> None:
        """Tell `handler` of messages for groups that do not run here: the sender, the group and its incarnation."""
        self._take_stray = handler

    @property
    def commit_times(self) -> Histogram:
        """Of what leaders on this node propose in a turn, until it is committed."""
        return self._setting.commit_times

    @property
    def groups(self) -> Mapping[GroupId, Group]:
        """The groups of this node."""
        return MappingProxyType(self._groups)

    def create(
        self,
        spec: GroupSpec,
        log: GroupLog,
        machine: StateMachine,
        freshness: Freshness | None = None,
        replayed: Replayed | None = None,
    ) -> Group:
        """Recover a member of a group from its log, and start it. It keeps `freshness`, for who reads what is applied.

        `replayed` says that `machine` was recovered from the log before (raft/replay.py), in a thread. A group of one
        leads as soon as its term and vote are durable. Raises StoreCorrupt or OSError.
        """
        assert spec.group_id not in self._groups, f"{spec.group_id} exists already"
        now_ns = self._clock.mono_ns()
        group = Group(
            spec,
            self._setting,
            log=log,
            machine=machine,
            clock=self._clock,
            mark_dirty=self._mark_dirty,
            recovered=replayed or recover(log, machine, Configuration(voters=spec.members)),
            now_ns=now_ns,
            freshness=freshness or Freshness(),
        )
        if len(group.members) > 1:
            group.prefer_others(self.stands_back, wanted=True)
        group.start(now_ns)
        self._groups[spec.group_id] = group
        others = self._up.union(group.members) - {self._setting.node_id}  # also those that may be added later
        for node in sorted(filter(self._links.is_up, others)):
            group.peer_up(node, now_ns)
        self._mark_dirty(group)
        return group

    def remove(self, group_id: GroupId) -> None:
        """Stop taking part. Waiting proposals end; the log stays as it is, its owner closes or erases it."""
        group = self._groups.pop(group_id)
        group.turns.stop(self._clock.mono_ns())
        self._unwritten.pop(group_id, None)
        if self._written.pop(group_id, None) is not None and group.log.failed is None:
            group.log.note_floor()  # `note_floors` does not see the group any more
        self._collect(group)
        self._dirty.pop(group_id, None)
        self._peer_events.forget(group_id)
        if self._outgoing.parts:
            self._on_dirty()

    # Turns.

    def flush(self) -> None:
        """End a turn: advance every group that has something to do, then send, one payload per peer."""
        events = self._peer_events
        if not (self._dirty or self._unwritten or self._outgoing.parts or self._last_writer or events.waiting):
            return
        now_ns = self._clock.mono_ns()
        if events.waiting:
            events.tell_some(now_ns)
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
        if self._unwritten:
            self._hand_over()
        self._flushing = False
        if self._outgoing.parts:
            self._outgoing.send(self._send)
        if self._dirty or events.waiting:
            self._on_dirty()

    def _advance(self, dirty: dict[GroupId, Group], now_ns: int) -> None:
        """One round: first every group learns what is committed, and its acknowledgements leave; then the rest."""
        told = False
        for group in dirty.values():
            told |= group.turns.learn(now_ns)
        if told:
            self._on_committed()
        groups, schedule, began_ns = self._groups, self._deadlines.schedule, self._clock.mono_ns()
        for group_id, group in dirty.items():
            turns = group.turns
            turns.advance(now_ns)
            if turns.outbox.has_something:
                self._collect(group)
            if groups.get(group_id) is group:  # else it was removed in this turn
                schedule(group)
        self._unwritten |= dirty
        self.apply_times.note(self._clock.mono_ns() - began_ns)

    def _hand_over(self) -> None:
        """Give the logs to the writer, except for a single small batch: `write` waits for that here.

        Two thread switches cost as much as an fsync of a good disk; but meanwhile this thread does nothing else.
        """
        unwritten = []
        for group in self._unwritten.values():
            if group.turns.failed is None and group.handover.has_unwritten():
                unwritten.append(group)  # noqa: PERF401  (a comprehension is a call more)
        self._unwritten.clear()
        if not unwritten:
            return
        if self._may_block and len(unwritten) == 1:
            only = unwritten[0]
            if only.handover.would_block(only.core.configuration):
                self._last_writer = only
                return
        if len(unwritten) > 1:
            with self._gathering():
                self._submit(unwritten)
        else:
            self._submit(unwritten)

    def _submit(self, groups: Sequence[Group]) -> None:
        for group in groups:
            if not self._written:
                self._on_written()
            self._written[group.group_id] = group
            group.handover.write(may_block=False)

    def write(self) -> bool:
        """After what the turn sends has left: write what waits; True when `flush` has something to do because of it."""
        group, self._last_writer = self._last_writer, None
        if group is None:
            return False
        if not self._written:
            self._on_written()
        self._written[group.group_id] = group
        group.handover.write(may_block=True)
        return bool(self._dirty)

    def note_floors(self) -> None:
        """Have the logs that were written to say how far they are durable.

        What is lost of the end of a newest block is then found by the next start, though nothing in it can tell. To be
        called within a second of `on_written`, and again while `logs_written`: it costs one batch of the ledger for
        all groups.
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
        for group in self._deadlines.due(now_ns):
            due_ns = group.deadline_ns
            if due_ns is None or due_ns > now_ns:
                self._schedule(group)
                continue
            group.turns.tick(now_ns)
            left -= 1
            if not left:
                return

    @property
    def next_deadline_ns(self) -> int | None:
        """When `tick` is due; it may find that the deadline has moved on."""
        return self._deadlines.next_ns

    def statistics(self) -> ManagerStatistics:
        """Figures for monitoring and tests."""
        groups = self._groups.values()
        return ManagerStatistics(
            groups=len(self._groups),
            groups_led=sum(group.is_leader for group in groups),
            groups_failed=sum(group.failed is not None for group in groups),
            deadlines=len(self._deadlines),
            messages_sent=self._outgoing.messages_sent,
            messages_received=self._messages_received,
            messages_dropped=self._messages_dropped,
            payload_bytes_sent=self._outgoing.payload_bytes_sent,
        )

    def _mark_dirty(self, group: Group) -> None:
        is_first = not self._dirty
        self._dirty[group.group_id] = group
        if is_first and not self._flushing:
            self._on_dirty()

    def _schedule(self, group: Group) -> None:
        if self._groups.get(group.group_id) is group:  # else it was removed in this turn
            self._deadlines.schedule(group)

    # Messages.

    def _collect(self, group: Group) -> None:
        """Hand on what the group wants sent or fetched."""
        outbox = group.turns.outbox
        offered = outbox.take_offer()
        if offered is not None:
            self._take_offer(group, *offered)
        sends = outbox.take_sends()
        if sends:
            self._outgoing.add(group.group_name, group.incarnation, sends)

    def _send(self, to: NodeId, payload: bytes) -> None:
        self._links.send(to, CHANNEL_RAFT, payload)

    def _on_payload(self, sender: NodeId, payload: memoryview) -> None:
        """A peer's messages. Raises RemoteProtocolError before anything was changed."""
        now_ns = self._clock.mono_ns()
        for addressed in decode(payload):
            self._messages_received += 1
            group = self._groups.get(addressed.group_id)
            if group is None or group.incarnation != addressed.incarnation:
                self._messages_dropped += 1
                self._disclaim(sender, addressed)
                self._take_stray(sender, addressed.group_id, addressed.incarnation)
                continue
            if self._peer_events.waiting:  # a group that hears a peer must know of its sessions first, in their order
                self._peer_events.settle(group, sender, now_ns)
            if group.turns.failed is not None:
                self._disclaim(sender, addressed)
            group.turns.step(sender, addressed.message, now_ns)

    def _disclaim(self, sender: NodeId, addressed: Addressed) -> None:
        """A member follows this node in a group that takes no part here: it is to look for another leader (rule 44)."""
        if isinstance(addressed.message, LeaderSeen):
            answer = disclaimer(addressed.message)
            self._outgoing.add(addressed.group_id.encode(), addressed.incarnation, [(sender, answer)])
            self._on_dirty()

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
        if self._peer_events.waiting:
            self._on_dirty()


def _no_catchup(group: Group, sender: NodeId, _offer: "SnapshotOffer") -> None:
    """Without a Catchup (raft/recovery/catchup.py) a member that is behind the log stays behind."""
    log.warning("%s is behind the log of %s, and nothing here fetches snapshots", group.group_id, sender)


def _no_repairs(_sender: NodeId, _group_id: GroupId, _incarnation: int) -> None:
    """Without Repairs (raft/recovery/repair.py) no log waits for a member to be heard of."""
