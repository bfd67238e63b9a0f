"""JetStream on one node: the writer, the groups, the cluster's part and the API, put together and run.

Made by the composition root (api/server.py) where JetStream is enabled. In a cluster it waits for peers to found the
meta group; clients are served core NATS meanwhile.
"""

import random
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from jetraft.api.config.options import JetStreamOptions, ScrubOptions
from jetraft.api.jetstream.gateway import JetStreamGateway
from jetraft.api.jetstream.jsz import Jsz, plain
from jetraft.api.monitor.pages import Health
from jetraft.api.outbox import PlaneOutbox
from jetraft.api.reactor import Reactor
from jetraft.api.timers import Timers
from jetraft.cluster.node import ClusterNode
from jetraft.cluster.node_spec import NodePorts, NodeSetting
from jetraft.raft.engines import CORE, engine_factory
from jetraft.raft.group_spec import GroupSetting
from jetraft.raft.heirs import hand_over
from jetraft.raft.manager import Links, Manager
from jetraft.raft.peers import Mesh
from jetraft.store._frame import seal
from jetraft.store.block_cache import BlockCache
from jetraft.store.cipher import CipherKind
from jetraft.store.io import LocalDisk, Writer
from jetraft.store.keyring import Secrets
from jetraft.store.model.config import StorageType
from jetraft.store.model.ids import NodeId
from jetraft.store.model.steady import SteadyClock
from jetraft.store.node_dir import NodeDir

STOP_S = 2.0  # a disk that has not answered by then is not waited for
FLOOR_S = 0.2  # of writes as young as that the loss of the last page cannot be told from a torn tail
FLOOR_BUSY_S = 1.0  # where more logs are written to: a record for each takes 20 us
FLOORS_AT_ONCE = 64
ACCOUNT = "$G"  # the one account that is served so far


@attrs.define(eq=False)
class NoLinks:
    """The links of a server that stands alone: none. Implements raft.manager.Links."""

    node_id: NodeId
    on_peer_up: list[Callable[[NodeId], None]] = attrs.field(factory=list)
    on_peer_down: list[Callable[[NodeId], None]] = attrs.field(factory=list)

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        """Nobody is there."""
        del to, channel, payload
        return False

    def on_frame(self, channel: int, handler: Callable[[NodeId, memoryview], None]) -> None:
        """Nothing ever comes."""

    def is_up(self, node: NodeId) -> bool:
        """Nobody is."""
        del node
        return False


@attrs.define(eq=False)
class MeshLinks:
    """The mesh as the groups see it: what arrives belongs to the turn that ends after the frames."""

    mesh: Mesh
    reactor: Reactor
    node_id: NodeId = attrs.field(init=False)
    on_peer_up: list[Callable[[NodeId], None]] = attrs.field(init=False)
    on_peer_down: list[Callable[[NodeId], None]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.node_id = self.mesh.node_id
        self.on_peer_up, self.on_peer_down = self.mesh.on_peer_up, self.mesh.on_peer_down

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        """Queue a payload; False when the link is down."""
        return self.mesh.send(to, channel, payload)

    def on_frame(self, channel: int, handler: Callable[[NodeId, memoryview], None]) -> None:
        """Hand the channel's payloads to `handler`, within a turn."""
        self.mesh.on_frame(channel, self.reactor.within_turn(handler))

    def is_up(self, node: NodeId) -> bool:
        """Whether there is a link session with the node."""
        return self.mesh.is_up(node)


@attrs.frozen(kw_only=True)
class JetStreamSetting:
    """What a node's JetStream is made from. `expected_nodes` found the meta group together."""

    store_dir: Path
    server_name: str
    named: bool
    cluster_name: str | None
    expected_nodes: int
    cache_bytes_max: int
    scrub: ScrubOptions
    raft_engine: str = CORE
    store_limits: Mapping[StorageType, int] = attrs.field(factory=dict)  # bytes
    tags: tuple[str, ...] = ()
    unique_tag: str = ""
    secrets: Secrets | None = None  # of a store that is encrypted


def store_limits_of(options: JetStreamOptions) -> dict[StorageType, int]:
    """The limits that the configuration sets, in bytes."""
    limits = {
        StorageType.FILE: options.max_file_store_bytes,
        StorageType.MEMORY: options.max_memory_store_bytes,
    }
    return {kind: limit for kind, limit in limits.items() if limit > 0}


def secrets_of(options: JetStreamOptions) -> Secrets | None:
    """What the configuration says about encryption; None when there is no key."""
    if not options.key:
        return None
    prev_key = options.prev_key.encode() or None
    return Secrets(key=options.key.encode(), cipher=CipherKind(options.cipher), prev_key=prev_key)


class JetStreamNode:
    """See the module. Implements monitor.pages.JetStreamStatus."""

    def __init__(
        self, setting: JetStreamSetting, *, mesh: Mesh | None, reactor: Reactor, timers: Timers, clock: SteadyClock
    ) -> None:
        """Open the store directory. Raises EngineUnavailableError, StoreRefused, StoreCorrupt, OSError."""
        engine = engine_factory(setting.raft_engine)
        self._setting = setting
        self._mesh = mesh
        self._reactor = reactor
        self._timers = timers
        self._clock = clock
        self.writer = Writer()
        disk = LocalDisk(self.writer)
        self._node_dir = NodeDir.open(
            disk,
            setting.store_dir,
            server_name=setting.server_name,
            named=setting.named,
            cluster=setting.cluster_name or "",
        )
        self.node_id = self._node_dir.node_id
        self.cache = BlockCache(setting.cache_bytes_max)
        rng = random.Random()  # noqa: S311  election jitter, placement and group names: nothing secret
        links: Links = MeshLinks(mesh, reactor) if mesh is not None else NoLinks(self.node_id)
        groups = GroupSetting(node_id=self.node_id, seal=seal, rng=rng, engine=engine)
        self.manager = Manager(groups, links=links, clock=clock)
        self.manager.on_dirty = reactor.kick_for_hooks
        self.manager.on_committed = reactor.send_early
        self.manager.may_block = True
        reactor.write = self.manager.write
        self._tick_at_ns: int | None = None
        reactor.hooks.append(self._flush)
        outbox = PlaneOutbox(reactor.plane, reactor)
        self.node = ClusterNode(
            NodeSetting(
                node_id=self.node_id,
                server_name=setting.server_name,
                cluster_name=setting.cluster_name,
                expected=setting.expected_nodes,
                tags=setting.tags,
                unique_tag=setting.unique_tag,
                store_limits=setting.store_limits,
                scrub_period_ns=setting.scrub.period_ns,
                scrub_bytes_per_s=setting.scrub.bytes_per_s,
                compare_ns=setting.scrub.compare_ns,
            ),
            NodePorts(
                mesh=mesh,
                manager=self.manager,
                outbox=outbox,
                timers=timers,
                clock=clock,
                rng=rng,
                node_dir=self._node_dir,
                disk=disk,
                cache=self.cache,
                secrets=setting.secrets,
            ),
        )
        self.gateway = JetStreamGateway(service=self.node.service, outbox=outbox, kick=reactor.kick_outside)

    # Turns.

    def _flush(self) -> None:
        """The groups' part of a turn: advance, send, and be called back for the next deadline."""
        self.manager.flush()
        deadline_ns = self.manager.next_deadline_ns
        if deadline_ns is not None and (self._tick_at_ns is None or deadline_ns < self._tick_at_ns):
            self._tick_at_ns = deadline_ns
            self._timers.call_at(deadline_ns, self._tick)

    def _tick(self) -> None:
        self._tick_at_ns = None
        self.manager.tick(self._clock.mono_ns())

    async def _run_writer(self) -> None:
        """Turns for what the writer threads have finished, when no lingering turn sees it first."""
        drain = self._reactor.within_turn(self.writer.drain)
        self._reactor.watch(self.writer.fileno(), self.writer.drain)
        try:
            while True:
                await trio.lowlevel.wait_readable(self.writer.fileno())
                drain()
                self._reactor.end_turn()
        finally:
            self._reactor.unwatch(self.writer.fileno())

    async def _note_floors(self) -> None:
        """Say now and then how far the logs are durable: the sooner, the fewer of them are busy."""
        while True:
            await trio.sleep(FLOOR_S)
            if self.manager.logs_written > FLOORS_AT_ONCE:
                await trio.sleep(FLOOR_BUSY_S - FLOOR_S)
            self.manager.note_floors()

    # Life.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Started when a server that stands alone has recovered its streams."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_writer)
            nursery.start_soon(self._note_floors)
            await nursery.start(self.gateway.run)
            await nursery.start(self.node.run)
            task_status.started()

    def stop(self) -> None:
        """After `run` has ended: finish writing and give the directory back."""
        self.manager.note_floors()
        deadline = time.monotonic() + STOP_S
        while not self._node_dir.ledger.is_idle and time.monotonic() < deadline:
            select.select([self.writer.fileno()], [], [], STOP_S)
            self.writer.drain()
        self.writer.stop()
        self._node_dir.close()

    def step_down(self) -> bool:
        """Hand leadership of the next groups to other members, where some are ready; True while any transfer runs."""
        is_running = hand_over(self.manager.groups.values(), lambda group: not group.core.accepts_proposals)
        self._reactor.end_turn()
        return is_running

    def retire(self) -> None:
        """Before the clients' connections are closed: tell those who wait for messages of a stream that is led here."""
        for _, shell in self.node.backend.replicas():
            shell.retire()
        self._reactor.end_turn()

    # Monitoring.

    @property
    def capacity(self) -> dict[str, int]:
        """Bytes that may be promised, by kind of storage."""
        return {kind.value: count for kind, count in self.node.view.own_profile.capacity.items()}

    @property
    def replicas(self) -> int:
        """How many streams have a replica here, whether it runs or not."""
        return self.node.backend.wanted

    async def health(self, *, js_enabled_only: bool, js_server_only: bool) -> Health:
        """Well when table and replicas are proved to be current, no store has failed, and the disk has room.

        `js_server_only` leaves the disk out, as in nats-server; it is narrower in nothing else: the whole is the safe
        answer.
        """
        if js_enabled_only:
            return Health()
        verdict = await self.node.health(with_space=not js_server_only)
        return Health(status=verdict.http_status, error=verdict.reason, notice=verdict.notice)

    def jsz(self, arguments: dict[str, str]) -> dict[str, Any]:
        """What this node holds, and the meta group as it sees it."""
        return self._jsz().jsz(arguments)

    def varz(self) -> dict[str, Any]:
        """The same in short."""
        return self._jsz().varz()

    def _jsz(self) -> Jsz:
        return Jsz(
            node=self.node,
            manager=self.manager,
            gateway=self.gateway,
            account=ACCOUNT,
            store_dir=str(self._setting.store_dir),
            scrub=self._setting.scrub,
            capacity=self.capacity,
        )

    def statistics(self) -> dict[str, Any]:
        """Figures of the parts, for /varz."""
        return {
            "writer": plain(self.writer.statistics()),
            "cache": plain(self.cache.statistics()),
            "raft": plain(self.manager.statistics()),
            "clocks": plain(self.node.clocks.statistics()),
        }
