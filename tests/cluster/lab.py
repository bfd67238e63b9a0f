"""A node of the cluster layer in memory: one manager, a routing table in Python, timers on a manual clock."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio
import trio.testing

from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.cluster.ports import DeliveryRun, MessageSource, deliver_one_by_one
from jetraft.cluster.site import Site
from jetraft.cluster.state.assignment import StreamAssignment
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.raft.group_spec import GroupSetting
from jetraft.raft.manager import Manager
from jetraft.store.frames._frame import seal
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.config import AckPolicy, ConsumerAction, ConsumerConfig, StreamConfig
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.model.signal import Signal
from jetraft.store.model.steady import SteadyClock
from jetraft.store.model.subject import matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jetraft.store.model.state import ConsumerInfo

NODE = NodeId("NODE0001")
T = TypeVar("T")


@attrs.frozen(slots=True)
class Sent:
    """What a subscriber would have seen."""

    to: bytes
    subject: bytes
    reply: bytes
    hdr: bytes
    payload: bytes


class NoLinks:
    """The mesh of a node that stands alone."""

    def __init__(self) -> None:
        self.node_id = NODE
        self.on_peer_up: Signal[[NodeId]] = Signal()
        self.on_peer_down: Signal[[NodeId]] = Signal()

    def send(self, _to: NodeId, _channel: int, _payload: bytes) -> bool:
        return False

    def on_frame(self, _channel: int, _handler: Any) -> None:
        pass

    def is_up(self, _node: NodeId) -> bool:
        return False


@attrs.define(eq=False)
class Handle:
    callback: Callable[[], None] | None

    def cancel(self) -> None:
        self.callback = None


class Node:
    """Implements Outbox and Timers; `turn()` is what the reactor does once per wake-up."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.sent: list[Sent] = []
        self.kept: list[Sent] = []  # sent while a test waited for something else
        self.subscriptions: set[bytes] = {b"_INBOX.>"}
        self.sinks: dict[int, tuple[bytes, Callable[[bytes], None]]] = {}
        self._aliases: dict[int, list[int]] = {}
        self.unread: dict[bytes, int] = {}  # what the receivers of a subject have not read, in bytes
        self.watches: dict[int, tuple[bytes, Callable[[], None]]] = {}
        self._later: list[Callable[[], None]] = []
        self._known: frozenset[bytes] = frozenset(self.subscriptions)
        self._captured: dict[int, list[bytes]] = {}
        self._timers: list[tuple[int, int, Handle]] = []
        self._count = 0
        setting = GroupSetting(node_id=NODE, seal=seal, rng=random.Random(1))
        self.manager = Manager(setting, links=NoLinks(), clock=self.clock)
        self.steady = SteadyClock(self.clock)
        self.site = Site(manager=self.manager, outbox=self, timers=self, clock=self.steady)

    # Outbox

    def send(  # noqa: PLR0913  (the port's)
        self,
        to: bytes,
        *,
        subject: bytes | None = None,
        reply: bytes = b"",
        hdr: bytes = b"",
        payload: bytes = b"",
        origin: MessageOrigin = MessageOrigin.ANSWER,  # noqa: ARG002  (the port's)
    ) -> int:
        if not self.has_interest(to):
            return 0
        self._capture(to, reply, hdr, payload)
        self.sent.append(Sent(to, subject or to, reply, hdr, payload))
        return 1

    def send_batch(self, records: bytes, *, origin: MessageOrigin = MessageOrigin.ANSWER) -> None:
        for message in captures(records):
            self.send(message.subject, reply=message.reply, hdr=message.hdr, payload=message.payload, origin=origin)

    def has_interest(self, subject: bytes, queue: bytes = b"", *, origin: MessageOrigin = MessageOrigin.ANSWER) -> bool:
        del queue, origin
        subscribed = any(matches(pattern, subject) for pattern in self.subscriptions)
        return subscribed or any(matches(pattern, subject) for pattern, _ in self.sinks.values())

    def is_subscribed(self, subject: bytes) -> bool:
        return subject in self.subscriptions

    def waiting_bytes(self, subject: bytes) -> int:
        return self.unread.get(subject, 0)

    def add_sink(
        self,
        subject: bytes,
        handler: Callable[[bytes], None],
        *,
        kind: SinkKind,  # noqa: ARG002  (the port's)
        queue: bytes = b"",  # noqa: ARG002  (the port's)
        local_only: bool = False,  # noqa: ARG002  (the port's)
    ) -> int:
        self._count += 1
        self.sinks[self._count] = (subject, handler)
        return self._count

    def extend_sink(self, handle: int, subject: bytes, *, local_only: bool = False) -> None:  # noqa: ARG002  (port's)
        self._count += 1
        self.sinks[self._count] = (subject, self.sinks[handle][1])
        self._aliases.setdefault(handle, []).append(self._count)

    def capture_deliveries(self, subject: bytes, handler: Callable[[bytes], None]) -> int:
        return self.add_sink(subject, handler, kind=SinkKind.DELIVERIES)

    def later(self, callback: Callable[[], None]) -> None:
        self._later.append(callback)

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> int:
        self._count += 1
        self.watches[self._count] = (subject, callback)
        return self._count

    def unwatch_interest(self, handle: int) -> None:
        self.watches.pop(handle, None)

    def remove_sink(self, handle: int) -> None:
        for alias in self._aliases.pop(handle, ()):
            self.remove_sink(alias)
        self.sinks.pop(handle, None)
        self._captured.pop(handle, None)

    def deliver(self, run: DeliveryRun, source: MessageSource) -> int:
        return deliver_one_by_one(self, run, source)

    # Timers

    def call_at(self, mono_ns: int, callback: Callable[[], None]) -> Handle:
        self._count += 1
        handle = Handle(callback)
        heapq.heappush(self._timers, (mono_ns, self._count, handle))
        return handle

    # what a test does

    def publish(
        self, subject: bytes, payload: bytes = b"", *, hdr: bytes = b"", reply: bytes = b"", origin: int = 0
    ) -> None:
        self._capture(subject, reply, hdr, payload, origin)

    def turn(self) -> list[Sent]:
        """Hand over what was captured and end the turn, until nothing moves; return what was sent since."""
        for _ in range(50):
            captured, self._captured = self._captured, {}
            for handle, records in captured.items():
                if handle in self.sinks:
                    self.sinks[handle][1](b"".join(records))
            put_off, self._later = self._later, []
            for callback in put_off:
                callback()
            self._run_watches()
            self.manager.flush()
            if not self._captured:
                break
        sent, self.sent = self.sent, []
        return sent

    def sleep(self, delta_ns: int) -> list[Sent]:
        """Let time pass, calling what is due on the way."""
        sent: list[Sent] = self.turn()
        end_ns = self.clock.now_ns + delta_ns
        while True:
            due = [at for at in (self.manager.next_deadline_ns, self._next_timer_ns()) if at is not None]
            at_ns = min(due, default=end_ns)
            if at_ns > end_ns:
                break
            self.clock.now_ns = max(self.clock.now_ns, at_ns)
            self.manager.tick(self.clock.now_ns)
            while self._timers and self._timers[0][0] <= self.clock.now_ns:
                callback = heapq.heappop(self._timers)[2].callback
                if callback is not None:
                    callback()
            sent += self.turn()
            if at_ns == end_ns:
                break
        self.clock.now_ns = end_ns
        return sent

    def _run_watches(self) -> None:
        """Call those whose subject is concerned by what tests have added to or taken from `subscriptions`."""
        changed, self._known = self._known ^ self.subscriptions, frozenset(self.subscriptions)
        for subject, callback in list(self.watches.values()):
            if any(matches(pattern, subject) for pattern in changed):
                callback()

    def _next_timer_ns(self) -> int | None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _capture(self, subject: bytes, reply: bytes, hdr: bytes, payload: bytes, origin: int = 0) -> None:
        for handle, (pattern, _) in self.sinks.items():
            if matches(pattern, subject):
                self._captured.setdefault(handle, []).append(encode_capture(subject, reply, hdr, payload, origin))


def stream_config(**fields: Any) -> StreamConfig:
    defaults = {
        "name": "S",
        "subjects": ("s.>",),
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "num_replicas": 1,
        "duplicate_window": 120 * 10**9,
    }
    return StreamConfig(**{**defaults, **fields})


def start_stream(node: Node, log: MemLog | None = None, **fields: Any) -> StreamReplica:
    """A stream of one replica that leads."""
    assignment = assignment_of(node, stream_config(**fields))
    replica = StreamReplica.start(assignment=assignment, log=log or MemLog(), site=node.site)
    node.sleep(2 * 10**9)
    assert replica.is_leader
    return replica


def assignment_of(node: Node, config: StreamConfig) -> StreamAssignment:
    """The row of a stream of one replica."""
    return StreamAssignment(
        account="$G",
        config=config,
        group_id=GroupId(f"S-R1F-{config.name}"),
        incarnation=7,
        revision=7,
        peers=(NODE,),
        preferred=NODE,
        created_ns=node.clock.unix_ns(),
        founding=(NODE,),
    )


def finish(node: Node, call: Callable[[], Awaitable[T]]) -> T:
    """Run an async method of a replica, turning the node until it returns."""

    async def run() -> T:
        found: list[T] = []
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                found.append(await call())
                nursery.cancel_scope.cancel()

            nursery.start_soon(ask)
            while not found:
                await trio.testing.wait_all_tasks_blocked()
                node.kept += node.turn()
        return found[0]

    return trio.run(run)


def info_of(replica: StreamReplica, consumer: str) -> ConsumerInfo:
    """A consumer that is there, as its leader sees it."""
    info = replica.consumer_info(consumer)
    assert info is not None, consumer
    return info


def add_consumer(node: Node, replica: StreamReplica, **fields: Any) -> ConsumerInfo:
    """Create a consumer as the API does."""
    config = ConsumerConfig(**{"ack_policy": AckPolicy.EXPLICIT, **fields})
    action = ConsumerAction.CREATE_OR_UPDATE
    return finish(node, lambda: replica.create_consumer(config, action=action, pedantic=False))
