"""Whole nodes of the cluster layer in one process: real meshes over loopback, real logs on disk, real writer threads.

Above them stands the least that works: an outbox that keeps what is sent, timers on trio, and a turn that ends when
something asks for it. Requests enter through a real gateway, as from a client of that node.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, cast

import attrs
import orjson
import trio

from jetraft.api.jetstream.gateway import JetStreamGateway
from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.cluster.node import ClusterNode
from jetraft.cluster.node_spec import NodePorts, NodeSetting
from jetraft.cluster.ports import DeliveryRun, MessageSource, deliver_one_by_one
from jetraft.raft.group_spec import GroupSetting
from jetraft.raft.manager import Manager
from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.peers import Mesh, MeshSetting
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames._frame import seal
from jetraft.store.ledger.node_dir import NodeDir
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.steady import SteadyClock
from jetraft.store.model.subject import matches
from tests.doubles.real_clock import RealClock
from tests.harness.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

CLUSTER = "C"
ANSWER_S = PATIENCE_S
LOOK_S = 0.005


class LocalOutbox:
    """Implements Outbox for one node: sinks get what is sent here; answers go to whoever waits for them."""

    def __init__(self, kick: Callable[[], None]) -> None:
        self._kick = kick
        self._sinks: dict[int, tuple[bytes, Callable[[bytes], None]]] = {}
        self._aliases: dict[int, list[int]] = {}
        self._count = 0
        self.waiting: dict[bytes, trio.MemorySendChannel[bytes]] = {}

    def send(  # noqa: PLR0913  (the port's)
        self,
        to: bytes,
        *,
        subject: bytes | None = None,
        reply: bytes = b"",
        hdr: bytes = b"",
        payload: bytes = b"",
        origin: MessageOrigin = MessageOrigin.ANSWER,
    ) -> int:
        del origin
        del subject, reply, hdr
        channel = self.waiting.get(to)
        if channel is not None:
            channel.send_nowait(payload)
        return int(channel is not None)

    def send_batch(self, records: bytes, *, origin: MessageOrigin = MessageOrigin.ANSWER) -> None:
        for message in captures(records):
            self.send(message.subject, reply=message.reply, hdr=message.hdr, payload=message.payload, origin=origin)

    def capture_deliveries(self, subject: bytes, handler: Callable[[bytes], None]) -> int:
        return self.add_sink(subject, handler, kind=SinkKind.DELIVERIES)

    def later(self, callback: Callable[[], None]) -> None:
        callback()

    def publish(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        record = encode_capture(subject=subject, reply=reply, hdr=b"", payload=payload)
        for pattern, handler in list(self._sinks.values()):
            if matches(pattern, subject):
                handler(record)
        self._kick()

    def has_interest(self, subject: bytes, queue: bytes = b"", *, origin: MessageOrigin = MessageOrigin.ANSWER) -> bool:
        del queue, origin
        return subject in self.waiting

    def is_subscribed(self, subject: bytes) -> bool:
        return self.has_interest(subject)

    def waiting_bytes(self, subject: bytes) -> int:
        del subject
        return 0

    def add_sink(
        self,
        subject: bytes,
        handler: Callable[[bytes], None],
        *,
        kind: SinkKind,
        queue: bytes = b"",
        local_only: bool = False,
    ) -> int:
        del kind, queue, local_only
        self._count += 1
        self._sinks[self._count] = (subject, handler)
        return self._count

    def extend_sink(self, handle: int, subject: bytes, *, local_only: bool = False) -> None:
        del local_only
        self._count += 1
        self._sinks[self._count] = (subject, self._sinks[handle][1])
        self._aliases.setdefault(handle, []).append(self._count)

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> int:
        del subject, callback
        return 0

    def unwatch_interest(self, handle: int) -> None:
        del handle

    def remove_sink(self, handle: int) -> None:
        for alias in self._aliases.pop(handle, ()):
            self.remove_sink(alias)
        del self._sinks[handle]

    def deliver(self, run: DeliveryRun, source: MessageSource) -> int:
        return deliver_one_by_one(self, run, source)


@attrs.define(eq=False)
class Handle:
    """A timer that can be withdrawn."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def cancel(self) -> None:
        self.scope.cancel()


class TrioTimers:
    """Implements Timers with a task per call."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def call_at(self, mono_ns: int, callback: Callable[[], None]) -> Handle:
        handle = Handle()
        self._nursery.start_soon(self._wait, mono_ns, callback, handle)
        return handle

    async def _wait(self, mono_ns: int, callback: Callable[[], None], handle: Handle) -> None:
        with handle.scope:
            await trio.sleep(max(0, mono_ns - time.monotonic_ns()) / NS_PER_S)
            callback()


class InProcessNode:
    """One node. `run` is its life; cancelling it is a crash as far as the other nodes can tell."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        seeds: tuple[Address, ...] = (),
        expected: int = 3,
        wrong_by_ns: int = 0,
    ) -> None:
        self.name = name
        self._directory = directory
        self._expected = expected
        self.machine = self._clock = RealClock(wrong_by_ns=wrong_by_ns)
        self._kicked = trio.Event()
        self._asked = 0
        setting = MeshSetting(cluster=CLUSTER, server_name=name, listen=Address("127.0.0.1", 0), routes=seeds)
        self.mesh = Mesh(setting, clock=self._clock, after_frames=self._end_turn)
        self.outbox = LocalOutbox(self._kick)
        self.node: ClusterNode
        self.scope = trio.CancelScope()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        writer = Writer()
        disk = LocalDisk(writer)
        node_dir = NodeDir.open(disk, self._directory, server_name=self.name, named=True, cluster=CLUSTER)
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    await self._assemble(nursery, node_dir, disk, writer)
                    task_status.started()
        finally:
            writer.stop()
            node_dir.close()

    async def _assemble(self, nursery: trio.Nursery, node_dir: NodeDir, disk: LocalDisk, writer: Writer) -> None:
        rng = random.Random(self.name)
        setting = GroupSetting(node_id=self.mesh.node_id, seal=seal, rng=rng)
        self.manager = Manager(setting, links=self.mesh, clock=self._clock, on_dirty=self._kick)
        ports = NodePorts(
            mesh=self.mesh,
            manager=self.manager,
            outboxes=lambda _account: self.outbox,
            timers=TrioTimers(nursery),
            clock=SteadyClock(self._clock),
            rng=rng,
            node_dir=node_dir,
            disk=disk,
            cache=BlockCache(1 << 20),
        )
        identity = NodeSetting(
            node_id=self.mesh.node_id, server_name=self.name, cluster_name=CLUSTER, expected=self._expected
        )
        self.node = ClusterNode.load(identity, ports)
        self.gateway = JetStreamGateway(
            server_name=self.name,
            service=self.node.service,
            outboxes=lambda _account: self.outbox,
            kick=self._kick,
            later=self.outbox.later,
            send_early=lambda: None,
            calls=self.mesh.calls,
        )
        nursery.start_soon(self._turns)
        nursery.start_soon(self._deadlines)
        nursery.start_soon(self._drain, writer)
        await nursery.start(self.mesh.run)
        await nursery.start(self.gateway.run)
        await nursery.start(self.node.run)

    async def ask(self, subject: str, body: Any = b"") -> dict[str, Any]:
        """Send one API request from a client of this node and return the answer; a second answer is an error."""
        answer = await self._request(b"$JS.API." + subject.encode(), body)
        return cast("dict[str, Any]", orjson.loads(answer))

    async def upload(self, subject: str, archive: bytes) -> dict[str, Any]:
        """Send an archive to where a restore wants it, in one piece; return the outcome."""
        assert await self._request(subject.encode(), archive) == b""
        return cast("dict[str, Any]", orjson.loads(await self._request(subject.encode(), b"")))

    async def _request(self, subject: bytes, body: Any) -> bytes:
        self._asked += 1
        reply = f"_INBOX.{self.name}.{self._asked}".encode()
        send, receive = trio.open_memory_channel[bytes](4)
        self.outbox.waiting[reply] = send
        payload = body if isinstance(body, bytes) else orjson.dumps(body)
        self.outbox.publish(subject, reply, payload)
        with trio.fail_after(ANSWER_S):
            answer = await receive.receive()
        assert receive.statistics().current_buffer_used == 0, "answered twice"
        return answer

    def _kick(self) -> None:
        self._kicked.set()

    def _end_turn(self) -> None:
        self.manager.flush()
        self.mesh.flush()

    async def _turns(self) -> None:
        while True:
            await self._kicked.wait()
            self._kicked = trio.Event()
            self._end_turn()

    async def _deadlines(self) -> None:
        while True:
            await trio.sleep(0.01)
            self.manager.tick(self._clock.mono_ns())
            self._end_turn()

    async def _drain(self, writer: Writer) -> None:
        while True:
            await trio.lowlevel.wait_readable(writer.fileno())
            writer.drain()
            self._end_turn()


class InProcessCluster:
    """Three nodes that found a meta group together."""

    def __init__(self, directory: Path, nursery: trio.Nursery) -> None:
        self._directory = directory
        self._nursery = nursery
        self.nodes: dict[str, InProcessNode] = {}

    async def start(self, *names: str, expected: int = 3, wrong_by_ns: Mapping[str, int] | None = None) -> None:
        """Start nodes; the first one running is the seed of the others."""
        for name in names:
            running = [node for node in self.nodes.values() if not node.scope.cancel_called]
            seeds = tuple(node.mesh.listen_address for node in running if node.mesh.listen_address)
            wrong = (wrong_by_ns or {}).get(name, 0)
            directory = self._directory / name
            node = InProcessNode(name, directory, seeds=seeds[:1], expected=expected, wrong_by_ns=wrong)
            self.nodes[name] = node
            await self._nursery.start(node.run)

    def __getitem__(self, name: str) -> InProcessNode:
        return self.nodes[name]

    @property
    def running(self) -> list[InProcessNode]:
        """The nodes that were not stopped."""
        return [node for node in self.nodes.values() if not node.scope.cancel_called]

    async def meta_leader(self) -> InProcessNode:
        """Wait until one of the running nodes leads the meta group."""
        await until(lambda: any(node.node.machine.leading_term is not None for node in self.running))
        return next(node for node in self.running if node.node.machine.leading_term is not None)

    async def stop(self, node: InProcessNode) -> None:
        """Crash a node, and wait until it has let go of its directory."""
        node.scope.cancel()
        directory = self._directory / node.name
        await until(lambda: not _is_locked(node, directory))


def _is_locked(node: InProcessNode, directory: Path) -> bool:
    writer = Writer(1)
    try:
        NodeDir.open(LocalDisk(writer), directory, server_name=node.name, named=True, cluster=CLUSTER).close()
    except Exception:  # noqa: BLE001  (any refusal means that it is still held)
        return True
    finally:
        writer.stop()
    return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other tasks bring about; fail when it does not come."""
    with trio.fail_after(ANSWER_S):
        while not condition():  # noqa: ASYNC110  (whatever a test asks: nothing tells of its change)
            await trio.sleep(LOOK_S)
