"""JetStream's part of one node, put together: bootstrap, meta group, replicas, service.

The composition root makes one `ClusterNode` and runs it. The service is there at once; requests that come before the
meta group has a leader wait for one, as they do during an election.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.advisories import Advisories
from jetraft.cluster.backup.desk import Backups
from jetraft.cluster.meta.backend import MetaBackend
from jetraft.cluster.meta.bootstrap import Bootstrap
from jetraft.cluster.meta.frontend import Bounds, MetaFrontend
from jetraft.cluster.meta.health import Health, assess
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.meta.profile import KEY as PROFILE_KEY
from jetraft.cluster.meta.profile import NodeProfile, lower
from jetraft.cluster.meta.seat import META_GROUP, MetaSeat
from jetraft.cluster.meta.steward import MetaSteward
from jetraft.cluster.meta.view import ClusterView
from jetraft.cluster.service import ClusterService
from jetraft.cluster.streams.compactor import Compactor
from jetraft.cluster.streams.comparer import Comparer
from jetraft.cluster.streams.host import StreamHost
from jetraft.cluster.streams.memory_groups import MemoryGroups
from jetraft.cluster.streams.mender import Mender
from jetraft.cluster.streams.quota import Quota
from jetraft.cluster.streams.scrubber import Scrubber
from jetraft.cluster.streams.site import Site
from jetraft.cluster.streams.yielding import Yielding, YieldingStatistics
from jetraft.cluster.waiting import wait_until
from jetraft.raft.catchup import Catchup
from jetraft.raft.joining import Begins, Joining, JoinPendingError
from jetraft.raft.repair import OvertakenError, Repairs
from jetraft.store.io import free_bytes, memory_bytes, run_blocking
from jetraft.store.model.config import StorageType
from jetraft.store.model.validate import NO_LIMITS, ServerLimits
from jetraft.store.port import HardStateLost, StoreCorrupt
from jetraft.store.scrub import BYTES_PER_S_MAX, PERIOD_NS, Scrub
from jetraft.store.space import SpaceWatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from jetraft.cluster.meta.assignment import StreamAssignment
    from jetraft.cluster.meta.backend import BackendStatistics
    from jetraft.cluster.meta.bootstrap import BootstrapStatistics
    from jetraft.cluster.meta.founding import Founders
    from jetraft.cluster.meta.table import TableStatistics
    from jetraft.cluster.ports import Outbox, Timers
    from jetraft.cluster.service import ServiceStatistics
    from jetraft.cluster.streams.compactor import CompactorStatistics
    from jetraft.cluster.streams.comparer import ComparerStatistics
    from jetraft.cluster.streams.mender import MenderStatistics
    from jetraft.cluster.streams.shell import StreamShell
    from jetraft.raft.catchup import Swap
    from jetraft.raft.group import Group
    from jetraft.raft.group_spec import GroupStatistics
    from jetraft.raft.joining import Admission
    from jetraft.raft.manager import Manager
    from jetraft.raft.peers import Mesh
    from jetraft.raft.repair import RepairStatistics
    from jetraft.store.block_cache import BlockCache
    from jetraft.store.io import Disk
    from jetraft.store.keyring import Secrets
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import GroupId, NodeId
    from jetraft.store.node_dir import NodeDir
    from jetraft.store.scrub import ScrubStatistics

log = logging.getLogger(__name__)

RECORD_NAME: Final = "meta.record"
READY_WAIT_S: Final = 5.0  # a server that stands alone is ready when its streams lead; a broken one says so by itself
TELL_S: Final = 5.0  # nats-server sends such figures every ten seconds
SWEEP_S: Final = 60.0  # how often data of deleted streams is looked for; it only matters after a node was away


@attrs.frozen(kw_only=True, slots=True)
class NodeSetting:
    """Who this node is. `cluster_name` is None on a server that stands alone; `expected` counts the founding nodes."""

    node_id: NodeId
    server_name: str
    cluster_name: str | None
    expected: int = 1
    limits: ServerLimits = NO_LIMITS
    tags: tuple[str, ...] = ()
    unique_tag: str = ""  # a prefix of tags whose values no two replicas of a stream may share
    store_limits: Mapping[StorageType, int] = attrs.field(factory=dict)  # bytes; without one most of what is free
    scrub_period_ns: int | None = PERIOD_NS  # every block is read in this time; None: never
    scrub_bytes_per_s: int = BYTES_PER_S_MAX
    compare_ns: int | None = PERIOD_NS  # replicas are compared in this time; None: never


@attrs.frozen(kw_only=True, slots=True)
class NodePorts:
    """What the node works with. `mesh` is None on a server that stands alone."""

    mesh: Mesh | None
    manager: Manager
    outbox: Outbox
    timers: Timers
    clock: Clock
    rng: Random
    node_dir: NodeDir
    disk: Disk
    cache: BlockCache
    secrets: Secrets | None = None  # of a store that is encrypted


@attrs.frozen(kw_only=True, slots=True)
class NodeStatistics:
    """A snapshot of everything."""

    bootstrap: BootstrapStatistics
    table: TableStatistics
    backend: BackendStatistics
    service: ServiceStatistics
    meta_group: GroupStatistics | None
    repairs: RepairStatistics
    scrub: ScrubStatistics
    mender: MenderStatistics
    compactor: CompactorStatistics
    yielding: YieldingStatistics


class ClusterNode:
    """See the module."""

    def __init__(self, setting: NodeSetting, ports: NodePorts) -> None:
        """Read the founding record. Raises BadRecordError when the store belongs to another node or cluster."""
        self._setting = setting
        self._ports = ports
        self._group: Group | None = None
        self._outside = False
        mesh = ports.mesh
        self.machine = MetaMachine()
        self.view = ClusterView(
            node_id=setting.node_id,
            server_name=setting.server_name,
            cluster_name=setting.cluster_name or "",
            peers=None if mesh is None else lambda: mesh.peers,
            machine=self.machine,
        )
        self._bootstrap = Bootstrap(
            node_id=setting.node_id,
            cluster=setting.cluster_name or "",
            mesh=mesh,
            expected=setting.expected,
            file=ports.node_dir.file(RECORD_NAME),
        )
        self.view.own_profile = self._told_profile = self._profile()
        if mesh is not None:
            mesh.describe(PROFILE_KEY, self.view.own_profile.pack())
        self.space = space = SpaceWatch.of(ports.node_dir.root)
        advisories = Advisories(outbox=ports.outbox, clock=ports.clock, rng=ports.rng)
        site = Site(
            advisories=advisories,
            manager=ports.manager,
            outbox=ports.outbox,
            timers=ports.timers,
            clock=ports.clock,
            cluster_name=setting.cluster_name or "",
            name_of=self.view.name_of,
            on_settled=self._report_settled,
            on_abandoned=self._report_abandoned,
            quota=Quota(setting.store_limits, self._held),
            space=space,
        )
        self._frontend = MetaFrontend(
            machine=self.machine,
            cluster=self.view,
            clock=ports.clock,
            rng=ports.rng,
            bounds=Bounds(limits=setting.limits, unique_tag=setting.unique_tag),
        )
        self.repairs = Repairs(ports.manager, mesh, secrets=ports.secrets)
        self._seat = MetaSeat(
            node_id=setting.node_id,
            machine=self.machine,
            manager=ports.manager,
            repairs=self.repairs,
            node_dir=ports.node_dir,
            disk=ports.disk,
            cache=ports.cache,
            on_group=self._meta_started,
        )
        self.joining = None if mesh is None else Joining(ports.manager, mesh, may_join=self._may_join)
        if self.joining is not None:
            self.joining.on_admitted = self._admitted
        self._steward = MetaSteward(
            machine=self.machine, frontend=self._frontend, timers=ports.timers, clock=ports.clock
        )
        self._memory_groups = MemoryGroups(ports.node_dir)
        host = StreamHost(
            site=site,
            node_dir=ports.node_dir,
            disk=ports.disk,
            cache=ports.cache,
            repairs=self.repairs,
            memory_groups=self._memory_groups,
            admit=self._admit,
            joined_index=lambda: self._bootstrap.joined_index,
        )
        self.backend: MetaBackend[StreamShell] = MetaBackend(node_id=setting.node_id, machine=self.machine, host=host)
        self.service = ClusterService(
            node_id=setting.node_id,
            cluster=self.view,
            mesh=mesh,
            machine=self.machine,
            frontend=self._frontend,
            steward=self._steward,
            backend=self.backend,
        )
        self.backups = Backups(
            service=self.service,
            frontend=self._frontend,
            machine=self.machine,
            backend=self.backend,
            outbox=ports.outbox,
            advisories=advisories,
            clock=ports.clock,
            rng=ports.rng,
            space=space,
        )
        self.service.backups = self.backups
        self.service.advisories = advisories
        self._scrubber = Scrubber(
            disk=ports.disk,
            clock=ports.clock,
            groups=lambda: [replica.group for _, replica in self.backend.replicas()],
            scrub=Scrub(period_ns=setting.scrub_period_ns or PERIOD_NS, bytes_per_s_max=setting.scrub_bytes_per_s),
        )
        self._compactor = Compactor(
            clock=ports.clock, replicas=lambda: [replica for _, replica in self.backend.replicas()]
        )
        self._mender = Mender(
            node_id=setting.node_id,
            clock=ports.clock,
            groups=self._all_groups,
            repairs=self.repairs,
            reopen=self._reopen,
            space=space,
        )
        self._yielding = Yielding(
            clock=ports.clock,
            space=space,
            groups=self._groups_on_disk,
            is_node_short=lambda node: self.view.profile_of(node).is_short,
            tell=self._tell_profile,
        )
        self.comparer: Comparer | None = None
        if mesh is not None:
            self.comparer = Comparer(
                node_id=setting.node_id,
                mesh=mesh,
                advisories=advisories,
                replicas=lambda: [replica for _, replica in self.backend.replicas()],
                period_ns=setting.compare_ns or PERIOD_NS,
            )
        self.catchup = None if mesh is None else Catchup(ports.manager, mesh, clock=ports.clock, reopen=self._reopen)
        if mesh is not None:
            mesh.on_peer_up.append(lambda _peer: self._steward.attend())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled.

        Started when the streams of a server that stands alone can be used; in a cluster, as soon as this node takes
        part or waits for others. Raises StoreError or OSError when the meta group's log cannot be opened.
        """
        if self._setting.cluster_name is not None and self._bootstrap.founded is None:
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
        founders = await self._bootstrap.run()
        if founders is None:
            founders = await self._join_meta()
        try:
            await self._seat.take(founders, is_known=(META_GROUP, founders.incarnation) in self._memory_groups)
        except (HardStateLost, OvertakenError, StoreCorrupt) as error:
            if self.joining is None:
                raise
            log.error("%s: %s; it is filled anew, what it held is kept aside", META_GROUP, error)  # noqa: TRY400
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            await self._retake_seat(founders)
        async with trio.open_nursery() as nursery:
            if self.catchup is not None:
                await nursery.start(self.catchup.run)
            await nursery.start(self.backend.run)
            nursery.start_soon(self.service.inquiries.run)
            nursery.start_soon(self._steward.run)
            nursery.start_soon(self._sweep)
            nursery.start_soon(self._keep_telling)
            nursery.start_soon(self._yielding.run)
            if self._setting.scrub_period_ns is not None:
                nursery.start_soon(self._scrubber.run)
            nursery.start_soon(self._mender.run)
            if self.comparer is not None and self._setting.compare_ns is not None:
                nursery.start_soon(self.comparer.run)
            nursery.start_soon(self._compactor.run)
            nursery.start_soon(self.backups.run)
            if self._setting.cluster_name is None:
                await wait_until(self._all_lead, READY_WAIT_S)
            task_status.started()

    async def _join_meta(self) -> Founders:
        """Become a member of a meta group that exists; durable when this returns. Its log is there then."""
        founders = self._bootstrap.elsewhere
        assert founders is not None
        self._outside = True
        admission = await self._seat.join(founders, partial(self._admit_meta, founders), give_up=self._seat.trash)
        self._bootstrap.joined(founders, admission.commit_index)
        self._outside = False
        return founders

    async def _retake_seat(self, founders: Founders) -> None:
        """Start the meta group as a learner anew, when its leader agrees: this member's log is of no use."""

        def give_up() -> None:
            self._memory_groups.note(META_GROUP, founders.incarnation)
            self._seat.set_aside()

        self._outside = True
        await self._seat.join(founders, partial(self._admit_meta, founders), give_up=give_up)
        self._outside = False
        await self._seat.take(founders, is_known=True)

    def health(self, *, server_only: bool = False) -> Health:
        """Say whether this node is current, for `/healthz`; `server_only` leaves the streams out."""
        if server_only:
            clustered = self._setting.cluster_name is not None
            return assess(clustered=clustered, outside=self._outside, meta=self._group, failed={}, replicas=())
        return assess(
            clustered=self._setting.cluster_name is not None,
            outside=self._outside,
            meta=self._group,
            failed=self.backend.statistics().failed,
            replicas=[(row.key, replica.group) for row, replica in self.backend.replicas()],
            lost=[(row.key, replica.machine.store.lost()) for row, replica in self.backend.replicas()],
        )

    @property
    def meta_group(self) -> Group | None:
        """The meta group on this node; None until it is founded, and on a node outside of it."""
        return self._group

    def statistics(self) -> NodeStatistics:
        """Return a snapshot."""
        return NodeStatistics(
            bootstrap=self._bootstrap.statistics(),
            table=self.machine.table.statistics(),
            backend=self.backend.statistics(),
            service=self.service.statistics(),
            meta_group=self._group.statistics() if self._group else None,
            repairs=self.repairs.statistics(),
            scrub=self._scrubber.statistics(),
            mender=self._mender.statistics(),
            compactor=self._compactor.statistics(),
            yielding=self._yielding.statistics(),
        )

    def scrub_statistics(self) -> ScrubStatistics:
        """How far the reading of everything at rest is."""
        return self._scrubber.statistics()

    def comparer_statistics(self) -> ComparerStatistics | None:
        """What comparing replicas has found; None on a server that stands alone."""
        return None if self.comparer is None else self.comparer.statistics()

    def _meta_started(self, group: Group) -> None:
        self._group = group
        self._frontend.group = group
        self.service.owners.meta_group = group
        self.view.members = lambda: group.members
        self._steward.look_after(group)

    def _report_settled(self, row: StreamAssignment) -> None:
        self.service.inquiries.report_settled(row)

    def _report_abandoned(self, row: StreamAssignment) -> None:
        self.backups.abandon(row)

    async def _reopen(self, group: Group, swap: Swap) -> None:
        """There is a new log for one of this node's groups: fetched by catching up, or opened again by the mender."""
        if group.group_id == META_GROUP:
            await self._seat.reopen(swap)
        else:
            await self.backend.reopen(group.group_id, swap)

    def _all_groups(self) -> Sequence[Group]:
        replicas = [replica.group for _, replica in self.backend.replicas()]
        return replicas if self._group is None else [self._group, *replicas]

    def _groups_on_disk(self) -> Sequence[Group]:
        mine = [replica.group for row, replica in self.backend.replicas() if row.config.storage is StorageType.FILE]
        return mine if self._group is None else [self._group, *mine]

    @property
    def bootstrap(self) -> BootstrapStatistics:
        """How far the founding of the meta group is."""
        return self._bootstrap.statistics()

    def _all_lead(self) -> bool:
        mine = [row for row in self.machine.table.streams.values() if row.key not in self.backend.statistics().failed]
        led = [replica for _, replica in self.backend.replicas() if replica.is_leader]
        return self.machine.leading_term is not None and len(led) >= len(mine)

    def _may_join(self, group_id: GroupId, node_id: NodeId) -> bool:
        """Say whether a node without memory is wanted in a group that this node leads."""
        if group_id == META_GROUP:
            return True
        found = self.backend.by_group(group_id)
        return found is not None and node_id in found[0].peers

    def _admitted(self, group_id: GroupId) -> None:
        """A group that this node leads has a learner more."""
        found = self.backend.by_group(group_id)
        if found is not None:
            found[1].look_after_members()
        elif group_id == META_GROUP:
            self._steward.attend()

    async def _admit_meta(self, founders: Founders) -> Admission:
        mesh = self._ports.mesh
        assert mesh is not None
        assert self.joining is not None
        own = self._setting.node_id
        others = sorted(peer for peer, info in mesh.peers.items() if info.up)
        return await self.joining.ask(META_GROUP, founders.incarnation, own=own, others=others, begins=Begins.NEVER)

    async def _admit(self, row: StreamAssignment) -> Admission:
        """Ask how this node may take part in a stream's group. Raises JoinPendingError."""
        assert self.joining is not None
        if not await self.service.inquiries.is_current(row):
            raise JoinPendingError(f"{row.group_id}: what this node knows of it may be out of date")
        own = self._setting.node_id
        others = [node for node in row.holders if node != own]
        is_memory = row.config.storage is StorageType.MEMORY
        begins = Begins.WITH_ALL if is_memory else Begins.AS_PAIR
        return await self.joining.ask(row.group_id, row.incarnation, own=own, others=others, begins=begins)

    def _profile(self) -> NodeProfile:
        """What this node says of itself before it holds anything.

        A limit that is not configured is three quarters of what there is, as in nats-server.
        """
        node_dir = self._ports.node_dir
        there = {
            StorageType.FILE: free_bytes(node_dir.root) + node_dir.stored_bytes(),
            StorageType.MEMORY: memory_bytes(),
        }
        capacity = {kind: count * 3 // 4 for kind, count in there.items()}
        return NodeProfile(tags=lower(self._setting.tags), capacity={**capacity, **self._setting.store_limits})

    def _held(self) -> Mapping[StorageType, int]:
        """Bytes of the messages of this node's replicas."""
        held = dict.fromkeys(StorageType, 0)
        for row, replica in self.backend.replicas():
            held[row.config.storage] += replica.stored_bytes
        return held

    def _tell_profile(self) -> None:
        """Say what is true of this node now, if the others should hear of it."""
        told = self._told_profile
        self.view.own_profile = now = attrs.evolve(told, held=self._held(), is_short=self._yielding.is_short)
        if self._ports.mesh is not None and now.differs_from(told):
            self._ports.mesh.describe(PROFILE_KEY, now.pack())
            self._told_profile = now

    async def _keep_telling(self) -> None:
        """Keep what is said of this node nearly true."""
        while True:
            self._tell_profile()
            await trio.sleep(TELL_S)

    async def _sweep(self) -> None:
        """Once the table is current, delete what was removed while this node was away.

        First what an earlier process had thrown away and not removed when it ended.
        """
        await run_blocking(self._ports.node_dir.empty_trash)
        while True:
            group = self._group
            assert group is not None
            if group.leader is not None and 0 < group.commit_index <= group.applied_index:
                await self.backend.settle()
                await self.backend.sweep()
                await trio.sleep(SWEEP_S)
            await trio.sleep(1)
