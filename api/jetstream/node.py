"""JetStream on one node: makes and runs the writer, the groups, the cluster's part and the API.

The composition root (api/server.py) makes it if JetStream is enabled. In a cluster it waits for peers to found the meta
group; clients get core NATS until then.
"""

import random
import select
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs
import trio

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.jetstream.figures import collect
from jetraft.api.jetstream.gateway import JetStreamGateway
from jetraft.api.jetstream.groups import ManagerTurns, MeshLinks, NoLinks
from jetraft.api.jetstream.inventory import NodeInventory
from jetraft.api.jetstream.jsz import Jsz, plain
from jetraft.api.monitor.figures import JetStreamMetrics
from jetraft.api.monitor.health import HTTP_UNAVAILABLE, HealthStatus, missing
from jetraft.api.monitor.questions import HealthQuestion, JszQuestion, MetricsQuestion, RaftzQuestion
from jetraft.api.monitor.steps import Steps
from jetraft.api.options.options import DeclaredStream, JetStreamAccounts, JetStreamOptions, ScrubOptions
from jetraft.api.sessions.client_info import ClientDirectory
from jetraft.api.turns.outbox import PlaneOutboxes
from jetraft.api.turns.reactor import Reactor
from jetraft.api.turns.timers import TrioTimers
from jetraft.cluster.assembly import Stored, assemble
from jetraft.cluster.memory_budget import MemoryBudget
from jetraft.cluster.node import ClusterNode
from jetraft.cluster.node_spec import NodePorts, NodeSetting
from jetraft.raft.engine.port import EngineFactory
from jetraft.raft.engines import CORE, engine_factory
from jetraft.raft.group_spec import GroupSetting, StandsBack
from jetraft.raft.manager import Links, Manager
from jetraft.raft.transfer_candidates import HandingOver
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames._frame import seal
from jetraft.store.frames.cipher import CipherKind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.ledger.node_dir import NodeDir
from jetraft.store.model.config import StorageType
from jetraft.store.model.feature_level import LEVEL
from jetraft.store.model.histogram import Histogram
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.model.limits import NO_LIMITS, ServerLimits
from jetraft.store.model.steady import SteadyClock

if TYPE_CHECKING:
    from jetraft.api.jetstream.dashboard import DashboardLists
    from jetraft.api.jetstream.prompt_gets import PromptCalls
    from jetraft.cluster.upkeep.drain import Drain, DrainStatistics
    from jetraft.cluster.upkeep.retreat import Retreat
    from jetraft.raft.group import Group
    from jetraft.raft.mesh.peers import Mesh  # servers that stand alone have none
    from jetraft.raft.transfer_candidates import Rank

STOP_S = 2.0  # how long `stop` waits for the disk
FLOOR_S = 0.2  # the loss of a page written within this time before a crash looks like a torn tail
FLOOR_BUSY_S = 1.0  # the same with more than FLOORS_MAX logs: the record of each takes 20 us
FLOORS_MAX = 64
SHUT_OUT = "no server of the cluster takes this server's proof: its secret is another one"


@attrs.frozen(kw_only=True)
class JetStreamSetting:
    """The settings of JetStream on a node. `expected_nodes` is the number of nodes that found the meta group."""

    store_dir: Path
    server_name: str
    named: bool
    cluster_name: str | None
    domain: str = ""
    server_id: str = ""
    system_account: str = ""  # empty: there is none
    expected_nodes: int
    cache_bytes_max: int
    scrub: ScrubOptions
    raft_engine: str = CORE
    store_limits: Mapping[StorageType, int] = attrs.field(factory=dict)  # bytes
    limits: ServerLimits = NO_LIMITS  # of requests
    strict: bool = True  # requests with fields that are not known are refused
    tags: tuple[str, ...] = ()
    unique_tag: str = ""
    secrets: Secrets | None = None  # of a store that is encrypted
    streams: tuple[DeclaredStream, ...] = ()  # of the configuration file
    legacy_api: bool = False
    feature_level: int = LEVEL
    accounts: LiveAccounts = attrs.field(factory=partial(LiveAccounts.of, JetStreamAccounts()))


def is_handed(group: "Group") -> bool:
    """Whether a transfer of the group's leadership to another node runs."""
    return not group.core.accepts_proposals


def store_limits_of(options: JetStreamOptions) -> dict[StorageType, int]:
    """Return the configured limits, in bytes."""
    limits = {
        StorageType.FILE: options.max_file_store_bytes,
        StorageType.MEMORY: options.max_memory_store_bytes,
    }
    return {kind: limit for kind, limit in limits.items() if limit > 0}


def secrets_of(options: JetStreamOptions) -> Secrets | None:
    """Return the configured keys and cipher; None without a key."""
    if not options.key:
        return None
    prev_key = options.prev_key.encode() or None
    return Secrets(key=options.key.encode(), cipher=CipherKind(options.cipher), prev_key=prev_key)


@attrs.frozen(kw_only=True)
class OpenedStore:
    """The store directory of a node, its writer threads, and the records read from it."""

    engine: EngineFactory
    writer: Writer
    disk: LocalDisk
    node_dir: NodeDir
    identity: NodeSetting
    stored: Stored

    @classmethod
    def of(cls, setting: JetStreamSetting) -> Self:
        """Open the directory. Raises EngineUnavailableError, BadRecordError, StoreRefused, StoreCorrupt, OSError."""
        engine = engine_factory(setting.raft_engine)
        writer = Writer()
        disk = LocalDisk(writer)
        node_dir = NodeDir.open(
            disk,
            setting.store_dir,
            server_name=setting.server_name,
            named=setting.named,
            cluster=setting.cluster_name or "",
        )
        identity = NodeSetting(
            node_id=node_dir.node_id,
            server_name=setting.server_name,
            cluster_name=setting.cluster_name,
            domain=setting.domain,
            server_id=setting.server_id,
            system_account=setting.system_account,
            expected=setting.expected_nodes,
            tags=setting.tags,
            unique_tag=setting.unique_tag,
            feature_level=setting.feature_level,
            store_limits=setting.store_limits,
            limits=setting.limits,
            scrub_period_ns=setting.scrub.period_ns,
            scrub_bytes_per_s=setting.scrub.bytes_per_s,
            compare_ns=setting.scrub.compare_ns,
            accounts=setting.accounts.limits,
            accounts_may_change=setting.accounts.may_change,
        )
        stored = Stored.load(identity, node_dir)
        return cls(
            engine=engine,
            writer=writer,
            disk=disk,
            node_dir=node_dir,
            identity=identity,
            stored=stored,
        )


class JetStreamNode:
    """See the module. Implements monitor.pages.JetStreamStatus."""

    def __init__(  # noqa: PLR0913  (the opened store and the ports)
        self,
        setting: JetStreamSetting,
        *,
        opened: OpenedStore,
        mesh: "Mesh | None",
        reactor: Reactor,
        timers: TrioTimers,
        clock: SteadyClock,
        clients: ClientDirectory,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._setting = setting
        self._mesh = mesh
        self._handing_over: HandingOver[Group] = HandingOver(is_handed, self._ranking)
        self._drain: Drain[Group] | None = None  # where an operator has asked for it
        self._drain_begun = trio.Event()
        self._retreat: Retreat | None = None  # where leaders move away from a node that does not reach its hub
        self._reactor = reactor
        self._clock = clock
        self.writer, self._disk, self._node_dir = opened.writer, opened.disk, opened.node_dir
        self.node_id = self._node_dir.node_id
        self._ack_times = Histogram()
        self.cache = BlockCache(setting.cache_bytes_max)
        rng = random.Random()  # noqa: S311  election jitter, placement and group names: nothing secret
        links: Links = MeshLinks(mesh, reactor) if mesh is not None else NoLinks(self.node_id)
        self._any_written = trio.Event()
        self.manager = Manager(
            GroupSetting(node_id=self.node_id, seal=seal, rng=rng, engine=opened.engine),
            links=links,
            clock=clock,
            on_dirty=reactor.kick_for_groups,
            on_committed=reactor.send_early,
            on_written=self._begin_noting,
            may_block=True,
            gathering=self.writer.gathering,
        )
        reactor.connect_groups(ManagerTurns(self.manager, timers, clock))
        outboxes = self._outboxes = PlaneOutboxes(reactor.plane, reactor)
        ports = NodePorts(
            mesh=mesh,
            manager=self.manager,
            outboxes=outboxes,
            timers=timers,
            clock=clock,
            rng=rng,
            node_dir=self._node_dir,
            disk=opened.disk,
            cache=self.cache,
            secrets=setting.secrets,
            traces=reactor.plane,
            memory=memory,
            ack_times=self._ack_times,
        )
        self.node = ClusterNode(opened.identity, ports, assemble(opened.identity, ports, opened.stored))
        self.gateway = self._make_gateway(None if mesh is None else mesh.calls, clients)

    def _make_gateway(self, calls: "PromptCalls | None", clients: ClientDirectory) -> JetStreamGateway:
        setting, reactor = self._setting, self._reactor
        gateway = JetStreamGateway(
            service=self.node.service,
            outboxes=self._outboxes,
            kick=reactor.kick_outside,
            later=reactor.later,
            send_early=reactor.send_early,
            calls=calls,
            accounts=setting.accounts,
            server_name=setting.server_name,
            describe=clients.describe,
            may_write=reactor.plane.may_write,
            limits=setting.limits.queues,
            strict=setting.strict,
        )
        gateway.has_legacy_api = setting.legacy_api
        return gateway

    @classmethod
    def open(  # noqa: PLR0913  (the ports)
        cls,
        setting: JetStreamSetting,
        *,
        mesh: "Mesh | None",
        reactor: Reactor,
        timers: TrioTimers,
        clock: SteadyClock,
        clients: ClientDirectory,
        memory: MemoryBudget | None = None,
    ) -> Self:
        """Open the store directory and make the parts.

        Raises EngineUnavailableError, BadRecordError, StoreRefused, StoreCorrupt, OSError.
        """
        opened = OpenedStore.of(setting)
        return cls(
            setting,
            opened=opened,
            mesh=mesh,
            reactor=reactor,
            timers=timers,
            clock=clock,
            clients=clients,
            memory=memory,
        )

    # Tasks.

    async def _run_writer(self) -> None:
        """Run turns for finished writes and fsyncs that no turn of the sockets has seen."""
        drain = self._reactor.within_turn(self.writer.drain)
        self._reactor.watch(self.writer.fileno(), self.writer.drain)
        try:
            while True:
                await trio.lowlevel.wait_readable(self.writer.fileno())
                drain()
                self._reactor.end_turn()
        finally:
            self._reactor.unwatch(self.writer.fileno())

    async def _run_drain(self) -> None:
        """Go on with a drain between the questions of an operator."""
        await self._drain_begun.wait()
        if self._drain is not None:
            await self._drain.run()

    def _tell_drained(self) -> None:
        drained = self._drain is not None and self._drain.draining
        self.manager.stands_back = StandsBack.DRAINED if drained else StandsBack(0)
        self.node.gossip.drain(drained=drained)

    def _ranking(self) -> "Rank[Group]":
        """How little other nodes should lead, now."""
        return self.node.view.ranking(self.node.directory.accounts())

    def _begin_noting(self) -> None:
        self._any_written.set()

    async def _note_floors(self) -> None:
        """Record within FLOOR_S, or FLOOR_BUSY_S with many busy logs, how far logs that were written to are durable."""
        while True:
            if not self.manager.logs_written:
                self._any_written = trio.Event()
                await self._any_written.wait()
            await trio.sleep(FLOOR_S)
            if self.manager.logs_written > FLOORS_MAX:
                await trio.sleep(FLOOR_BUSY_S - FLOOR_S)
            self.manager.note_floors()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. `task_status` reports the start once a server without a cluster has its streams."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_writer)
            nursery.start_soon(self._note_floors)
            await nursery.start(self.gateway.run)
            await nursery.start(self.node.run)
            if self._setting.streams:
                from jetraft.api.jetstream.declared import declare  # noqa: PLC0415  few servers have some

                nursery.start_soon(declare, self._setting.streams, self._outboxes, self.node_id)
            nursery.start_soon(self._run_drain)
            if self._setting.legacy_api:
                from jetraft.api.jetstream.legacy_api import LegacyApi  # noqa: PLC0415  few servers serve it

                nursery.start_soon(LegacyApi(self._setting.accounts, self._outboxes, self._reactor.plane).run)
            task_status.started()

    def stop(self) -> None:
        """Finish pending writes, for STOP_S at most, and close the directory; call it after `run` has ended."""
        self.manager.note_floors()
        deadline = time.monotonic() + STOP_S
        while not self._node_dir.ledger.is_idle and time.monotonic() < deadline:
            select.select([self.writer.fileno()], [], [], STOP_S)
            self.writer.drain()
        self.writer.stop()
        self._node_dir.close()

    def step_down(self) -> bool:
        """Transfer leadership of the next groups to members that are ready; True while a transfer runs.

        Also while a new leader has yet to fetch what clients have published meanwhile.
        """
        self.node.gossip.drain(drained=True)  # others that stop at the same time hand over elsewhere
        is_running = self._handing_over.step(self.manager.groups.values())
        self._reactor.end_turn()
        return is_running or self.node.is_waited_for

    def drain(self, *, wanted: bool, anew: bool) -> "tuple[DrainStatistics, list[str]]":
        """Let other nodes lead all that can be handed over, some of it now; or lead as ever.

        Returns what is left, and the names of other nodes that are drained.
        """
        if self._drain is None:
            from jetraft.cluster.upkeep.drain import Drain  # noqa: PLC0415  few servers are asked

            self._drain = Drain(
                clock=self._clock,
                groups=self.manager.groups.values,
                is_handed=is_handed,
                ranking=self._ranking,
                tell=self._tell_drained,
            )
            self._drain_begun.set()
        left = self._drain.look(anew=anew) if wanted else self._drain.end()
        self._reactor.end_turn()
        return left, self.node.view.drained()

    def retreat(self, accounts: frozenset[str]) -> None:
        """Let other nodes lead the streams of these accounts, and of no others."""
        if self._retreat is None:
            from jetraft.cluster.upkeep.retreat import Retreat  # noqa: PLC0415  few servers want it

            replicas, view = self.node.directory.replicas, self.node.view
            self._retreat = Retreat(
                clock=self._clock,
                groups=lambda: ((row.account, replica.group) for row, replica in replicas()),
                ranking=view.ranking,
            )
        self.node.gossip.lose(accounts)
        self._retreat.look(accounts)
        self._reactor.end_turn()

    async def retire(self) -> None:
        """End what is led here: write down what consumers did, and return when it is on disk or STOP_S are over."""
        replicas = [replica for _, replica in self.node.directory.replicas()]
        for replica in replicas:
            replica.retire()
        self._reactor.end_turn()
        with trio.move_on_after(STOP_S):
            for group in [replica.group for replica in replicas if replica.group.is_leader]:
                await group.wait_durable(group.log.token())

    def follow(self, options: JetStreamOptions, tags: tuple[str, ...]) -> None:
        """Place by other sizes and tags from now on; the peers are told."""
        self.node.gossip.follow(tags, store_limits_of(options))

    # Monitoring.

    @property
    def capacity(self) -> dict[str, int]:
        """Bytes that streams can reserve, by kind of storage."""
        return {kind.value: count for kind, count in self.node.view.own_profile.capacity.items()}

    @property
    def replicas(self) -> int:
        """The number of streams with a replica here, running or not."""
        return self.node.directory.wanted

    def stream_of_group(self, group_id: str) -> tuple[str, str] | None:
        """Account and name of the stream of a Raft group, while a replica of it runs here."""
        found = self.node.directory.by_group(GroupId(group_id))
        return None if found is None else (found[0].account, found[0].config.name)

    def name_of_node(self, node_id: str) -> str:
        """The name of the server of this id; what was given, for one that is not known."""
        return self.node.view.name_of(NodeId(node_id))

    async def health(self, question: HealthQuestion) -> HealthStatus:
        """Healthy when meta table and replicas are proved current, no log has failed, and the disk has free space.

        `js_server_only` leaves out the disk, as in nats-server, no more; `js_meta_only` all but the meta table. A node
        that no other one lets in is never healthy: it can do nothing, and only its operator can change that.
        """
        if self._mesh is not None and self._mesh.is_shut_out:
            return HealthStatus(status=HTTP_UNAVAILABLE, error=SHUT_OUT)
        if question.js_enabled_only:
            return HealthStatus()
        accounts = self._setting.accounts.with_jetstream()
        lacks = None if question.js_server_only else missing(question, NodeInventory(self.node, accounts))
        if lacks is not None:
            return lacks
        verdict = await self.node.health(with_space=not question.js_server_only, meta_only=question.js_meta_only)
        return HealthStatus(status=verdict.http_status, error=verdict.reason, notice=verdict.notice)

    def jsz(self, question: JszQuestion) -> Steps[dict[str, Any]]:
        """The body of /jsz without its head. Raises PageError."""
        return self._jsz().jsz(question)

    def jsz_account(self, account: str, question: JszQuestion) -> Steps[dict[str, Any]]:
        """One account of /jsz. Raises PageError."""
        return self._jsz().account(account, question)

    def raftz(self, question: RaftzQuestion, system: str) -> Steps[dict[str, Any]]:
        """The body of /raftz. Raises PageError."""
        return self._jsz().raftz(question, system)

    def metrics(self, question: MetricsQuestion) -> Steps[JetStreamMetrics]:
        """The figures of /metrics."""
        return collect(
            self._jsz(),
            question,
            writer=self.writer.statistics(),
            cache=self.cache.statistics(),
            latencies={
                "jetraft_disk_batch_seconds": self._disk.latency.statistics(),
                "jetraft_publish_ack_seconds": self._ack_times.statistics(),
                "jetraft_raft_commit_seconds": self.manager.commit_times.statistics(),
                "jetraft_raft_apply_seconds": self.manager.apply_times.statistics(),
            },
        )

    def dashboard(self) -> "DashboardLists":
        """The lists of the dashboard."""
        from jetraft.api.jetstream.dashboard import DashboardLists  # noqa: PLC0415  only servers with a monitor

        with_jetstream = self._setting.accounts.with_jetstream
        return DashboardLists(node=self.node, accounts_with_jetstream=with_jetstream)

    def queues(self) -> dict[str, int]:
        """Requests that wait, by the name of the queue."""
        return {"JetStream API queue": self.gateway.statistics().waiting}

    def varz(self) -> Steps[dict[str, Any]]:
        """The JetStream part of /varz."""
        return self._jsz().varz()

    def _jsz(self) -> Jsz:
        return Jsz(
            node=self.node,
            manager=self.manager,
            gateway=self.gateway,
            accounts=self._setting.accounts.with_jetstream(),
            store_dir=str(self._setting.store_dir),
            scrub=self._setting.scrub,
            capacity=self.capacity,
            clock=self._clock,
            domain=self._setting.domain,
            limits=self._setting.limits,
            strict=self._setting.strict,
            name_of=self._setting.accounts.name_of,
        )

    def statistics(self) -> dict[str, Any]:
        """Statistics of the parts, for /varz."""
        return {
            "writer": plain(self.writer.statistics()),
            "cache": plain(self.cache.statistics()),
            "raft": plain(self.manager.statistics()),
            "clocks": plain(self.node.clocks.statistics()),
            "drained": self.node.view.own_profile.drained,
        }
