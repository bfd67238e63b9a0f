"""JetStream's part of one node, put together: bootstrap, meta group, replicas, service.

The composition root makes one `ClusterNode` and runs it. The service is there at once; requests that come before the
meta group has a leader wait for one, as they do during an election.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from jetraft.cluster.advisories import Advisories
from jetraft.cluster.backup.desk import Backups
from jetraft.cluster.caretakers import Caretakers
from jetraft.cluster.clocks import ClockWatch
from jetraft.cluster.meta.adoption import Adoption
from jetraft.cluster.meta.arrival import Arrival
from jetraft.cluster.meta.backend import MetaBackend
from jetraft.cluster.meta.bootstrap import Bootstrap
from jetraft.cluster.meta.currency import Currency
from jetraft.cluster.meta.frontend import Bounds, MetaFrontend
from jetraft.cluster.meta.health import Loss, Seen
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.meta.saved_rows import SavedRows
from jetraft.cluster.meta.seat import META_GROUP, MetaSeat
from jetraft.cluster.meta.steward import MetaSteward
from jetraft.cluster.meta.telling import Telling, first_profile
from jetraft.cluster.meta.view import ClusterView
from jetraft.cluster.node_spec import NodePorts, NodeSetting, NodeStatistics
from jetraft.cluster.readiness import Confirmation, Readiness
from jetraft.cluster.replica_logs import ReplicaLogs
from jetraft.cluster.room import RoomKeeper
from jetraft.cluster.service import ClusterService
from jetraft.cluster.streams.host import StreamHost
from jetraft.cluster.streams.memory_groups import MemoryGroups
from jetraft.cluster.streams.quota import Quota
from jetraft.cluster.streams.site import Site
from jetraft.cluster.sweeping import Sweeper
from jetraft.cluster.waiting import wait_until
from jetraft.raft.catchup import Catchup
from jetraft.raft.joining import Begins, Joining, JoinPendingError
from jetraft.raft.repair import Repairs
from jetraft.store.emergency import EmergencyFile
from jetraft.store.io import run_blocking
from jetraft.store.model.config import StorageType
from jetraft.store.space import SpaceWatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.cluster.meta.assignment import StreamAssignment
    from jetraft.cluster.meta.bootstrap import BootstrapStatistics
    from jetraft.cluster.meta.health import Health
    from jetraft.cluster.streams.shell import StreamShell
    from jetraft.raft.group import Group
    from jetraft.raft.joining import Admission
    from jetraft.raft.swap import Swap
    from jetraft.store.model.ids import GroupId, NodeId

META_LOGS: Final = 1  # beside those of streams
log = logging.getLogger(__name__)

RECORD_NAME: Final = "meta.record"
READY_WAIT_S: Final = 5.0  # a server that stands alone is ready when its streams lead; a broken one says so by itself


class ClusterNode:
    """See the module."""

    def __init__(self, setting: NodeSetting, ports: NodePorts) -> None:
        """Read the founding record. Raises BadRecordError when the store belongs to another node or cluster."""
        self._setting = setting
        self._ports = ports
        self._group: Group | None = None
        self._adopted: Group | None = None  # the meta group that the saved rows were compared with
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
            file=ports.node_dir.value(RECORD_NAME),
        )
        self._telling = Telling(
            first_profile(ports.node_dir, setting.tags, setting.store_limits),
            view=self.view,
            mesh=mesh,
            held=self._held,
            is_short=lambda: self.caretakers.is_short,
        )
        self.clocks = ClockWatch(ports.clock, mesh, nodes=self._count_nodes)
        self.space = space = SpaceWatch.of(ports.disk, ports.node_dir.root, lambda: META_LOGS + self.backend.wanted)
        self._room = RoomKeeper(
            clock=ports.clock, space=space, emergency=EmergencyFile(ports.disk, ports.node_dir.root)
        )
        self.currency = Currency(
            committed_index=self._committed_index,
            applied_index=lambda: self.service.owners.applied_index,
        )
        advisories = Advisories(outbox=ports.outbox, clock=ports.clock, rng=ports.rng)
        site = Site(
            advisories=advisories,
            manager=ports.manager,
            outbox=ports.outbox,
            timers=ports.timers,
            clock=ports.clock,
            cluster_name=setting.cluster_name or "",
            name_of=self.view.name_of,
            is_table_proved=lambda: self.currency.is_proved,
            on_settled=self._report_settled,
            on_abandoned=self._report_abandoned,
            has_begun_empty=lambda group: self.joining is not None and self.joining.has_begun_empty(group),
            quota=Quota(setting.store_limits, self._held),
            space=space,
        )
        self._frontend = MetaFrontend(
            machine=self.machine,
            cluster=self.view,
            clock=ports.clock,
            rng=ports.rng,
            bounds=Bounds(limits=setting.limits, unique_tag=setting.unique_tag),
            is_short=lambda: space.is_low(ports.clock.mono_ns()),
        )
        self.repairs = Repairs(ports.manager, mesh, secrets=ports.secrets, room_bytes=space.room_bytes)
        logs = ReplicaLogs(node_dir=ports.node_dir, cache=ports.cache, repairs=self.repairs)
        self._seat = MetaSeat(machine=self.machine, manager=ports.manager, logs=logs, on_group=self._meta_started)
        self.joining = None if mesh is None else Joining(ports.manager, mesh, may_join=self._may_join)
        if self.joining is not None:
            self.joining.on_admitted = self._admitted
            self.joining.on_forgotten = self._note_forgotten
        self._steward = MetaSteward(
            machine=self.machine, frontend=self._frontend, timers=ports.timers, clock=ports.clock
        )
        memory_groups = MemoryGroups(ports.node_dir.ledger)
        saved_rows = None if mesh is not None else SavedRows(ports.node_dir.ledger, self.machine, ports.secrets)
        self._arrival = Arrival(
            node_id=setting.node_id,
            bootstrap=self._bootstrap,
            seat=self._seat,
            logs=logs,
            joining=self.joining,
            mesh=mesh,
            unknown=lambda: [] if self._adoption is None else self._adoption.unknown(),
        )
        host = StreamHost(
            site=site,
            node_dir=ports.node_dir,
            logs=logs,
            repairs=self.repairs,
            memory_groups=memory_groups,
            saved_rows=saved_rows,
            admit=self._admit,
            joined_index=lambda: self._bootstrap.joined_index,
            currency=self.currency,
            is_in_table=lambda row: self.machine.table.get(row.key) == row,
        )
        self.backend: MetaBackend[StreamShell] = MetaBackend(
            node_id=setting.node_id,
            machine=self.machine,
            host=host,
            is_table_proved=lambda: self.currency.is_proved,
        )
        self.currency.on_proved.append(self._table_proved)
        self._adoption: Adoption | None = None
        if saved_rows is not None:
            self._adoption = Adoption(
                rows=saved_rows, machine=self.machine, frontend=self._frontend, stored=host.stored_groups
            )
        self.repairs.on_heard.append(self.backend.retry)
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
        self._confirmation = Confirmation(
            clock=ports.clock,
            ask=self.service.inquiries.committed_index,
            applied=lambda: self.service.owners.applied_index,
        )
        self._readiness = Readiness(
            clock=ports.clock, see=self._see, confirmation=None if mesh is None else self._confirmation
        )
        self._sweeper = Sweeper(
            self.machine,
            is_current=self._table_is_current,
            empty_trash=partial(run_blocking, ports.node_dir.empty_trash),
            sweep=self._sweep,
        )
        self.service.backups = self.backups
        self.service.advisories = advisories
        self.caretakers = Caretakers(
            setting,
            ports,
            backend=self.backend,
            meta_group=lambda: self._group,
            repairs=self.repairs,
            reopen=self._reopen,
            view=self.view,
            advisories=advisories,
            space=space,
            tell=self._telling.tell,
            is_table_proved=lambda: self.currency.is_proved,
        )
        self._room.on_low.append(self.caretakers.compact_now)
        self.catchup = None if mesh is None else Catchup(ports.manager, mesh, clock=ports.clock, reopen=self._reopen)
        if mesh is not None:
            mesh.on_peer_up.append(lambda _peer: self._steward.attend())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled.

        Started when the streams of a server that stands alone can be used; in a cluster, as soon as this node takes
        part or waits for others. Raises StoreError or OSError when the meta group's log cannot be opened.
        """
        is_started = False

        def start() -> None:
            nonlocal is_started
            if not is_started:
                task_status.started()
            is_started = True

        if self._setting.cluster_name is not None and self._bootstrap.founded is None:
            start()
        await self._room.look()
        await self._arrival.run(waits=start)
        await self.clocks.look()  # before any stream of this node can have its leader here
        if self._adoption is not None:  # before any replica is started
            await wait_until(lambda: self.machine.leading_term is not None, READY_WAIT_S)
            await self._adopt()
            with trio.move_on_after(READY_WAIT_S):
                await self.currency.run()
        async with trio.open_nursery() as nursery:
            if self.catchup is not None:
                await nursery.start(self.catchup.run)
            await nursery.start(self.backend.run)
            nursery.start_soon(self.currency.run)
            nursery.start_soon(self.clocks.run)
            nursery.start_soon(self.service.inquiries.run)
            nursery.start_soon(self._steward.run)
            nursery.start_soon(self._telling.run)
            nursery.start_soon(self._room.run)
            nursery.start_soon(self.caretakers.run)
            nursery.start_soon(self.backups.run)
            if self._setting.cluster_name is None:
                await self._until_all_lead()
            nursery.start_soon(self._sweeper.run)
            start()

    async def health(self, *, with_space: bool = True) -> Health:
        """Say whether this node is current, for `/healthz`; without `with_space` a full disk is no reason."""
        return await self._readiness.health(with_space=with_space)

    def _see(self) -> Seen:
        """Gather what health is judged by."""
        statistics = self.backend.statistics()
        replicas = self.backend.replicas()
        open_here = {(row.key, row.incarnation) for row, _ in replicas}
        assigned = (row for row in self.machine.table.streams.values() if self._setting.node_id in row.peers)
        return Seen(
            clustered=self._setting.cluster_name is not None,
            outside=self._arrival.is_outside,
            meta=self._group,
            failed=statistics.failed,
            unopened=[row.key for row in assigned if (row.key, row.incarnation) not in open_here],
            replicas=[(row.key, replica.group) for row, replica in replicas],
            lost=[(row.key, _loss_of(replica)) for row, replica in replicas],
            unclaimed=() if self._adoption is None else statistics.orphans,
            is_full=self.space.is_low(self._ports.clock.mono_ns()),
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
            caretakers=self.caretakers.statistics(),
            clocks=self.clocks.statistics(),
        )

    def _count_nodes(self) -> int:
        """How many nodes the cluster has, those that are away included."""
        mesh = self._ports.mesh
        if mesh is None:
            return 1
        if self._group is not None:
            return len(self._group.members)
        return max(1, self._setting.expected - mesh.own_routes)

    def _meta_started(self, group: Group) -> None:
        self._group = group
        self._frontend.group = group
        self.service.owners.meta_group = group
        self.view.members = lambda: group.members
        self._steward.look_after(group)

    async def _committed_index(self) -> int | None:
        return await self.service.inquiries.committed_index()

    def _table_proved(self) -> None:
        """Rows can be gone by from now on."""
        self.backend.retry_all()
        for _, replica in self.backend.replicas():
            replica.table_proved()

    def _report_settled(self, row: StreamAssignment) -> None:
        self.service.inquiries.report_settled(row)

    def _report_abandoned(self, row: StreamAssignment) -> None:
        self.backups.abandon(row)

    async def _reopen(self, swap: Swap) -> None:
        """There is a new log for one of this node's groups: fetched by catching up, or opened again by the mender."""
        if swap.group.group_id == META_GROUP:
            await self._seat.reopen(swap)
        else:
            await self.backend.reopen(swap)

    @property
    def bootstrap(self) -> BootstrapStatistics:
        """How far the founding of the meta group is."""
        return self._bootstrap.statistics()

    async def _until_all_lead(self) -> None:
        """Return when the meta group and all replicas that could be started lead, or READY_WAIT_S is over.

        One after the other: to look at all of them every time would cost a node of 10,000 streams all of its time.
        """
        with trio.move_on_after(READY_WAIT_S):
            await wait_until(lambda: self.machine.leading_term is not None, READY_WAIT_S)
            await self.backend.settle()
            for _, replica in self.backend.replicas():
                await wait_until(partial(_leads, replica), READY_WAIT_S)

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

    def _note_forgotten(self, group_id: GroupId) -> None:
        """A stream in memory goes on here, and others have forgotten what this node may not have."""
        found = self.backend.by_group(group_id)
        if found is not None:
            found[1].note_forgotten()

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

    def _held(self) -> Mapping[StorageType, int]:
        """Bytes of the messages of this node's replicas."""
        held = dict.fromkeys(StorageType, 0)
        for row, replica in self.backend.replicas():
            held[row.config.storage] += replica.stored_bytes
        return held

    async def _adopt(self) -> None:
        """Take back what the meta log has lost, once for each time that it was opened."""
        if self._adoption is not None and self.machine.leading_term is not None and self._adopted is not self._group:
            self._adopted = self._group
            await self._adoption.run()

    async def _table_is_current(self) -> bool:
        return self.currency.is_proved and (self._ports.mesh is None or await self._confirmation.is_fresh())

    async def _sweep(self) -> None:
        await self._adopt()
        await self.backend.settle()
        await self.backend.sweep()


def _loss_of(replica: StreamShell) -> Loss:
    store = replica.machine.store
    return Loss(runs=store.lost(), is_forgotten=bool(store.forgotten_ns and store.forgotten_by_all))


def _leads(replica: StreamShell) -> bool:
    return replica.is_leader
