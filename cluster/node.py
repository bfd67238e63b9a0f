"""JetStream's part of one node and its life: bootstrap, meta group, replicas, service.

The composition root makes one `ClusterNode` and runs it. The service is there at once; requests that come before the
meta group has a leader wait for one, as they do during an election. The parts of the node are in assembly.py.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Self

import trio

from jetraft.cluster.assembly import Stored, assemble
from jetraft.cluster.meta.health import ROWS_PER_STEP, ReportedLoss, Seen
from jetraft.cluster.node_statistics import NodeStatistics
from jetraft.cluster.readiness import Readiness
from jetraft.store.ledger.kept_ages import KeptAges

if TYPE_CHECKING:
    from jetraft.cluster.assembly import Parts
    from jetraft.cluster.meta.health import Health, Steps
    from jetraft.cluster.meta.members.bootstrap import BootstrapStatistics
    from jetraft.cluster.node_spec import NodePorts, NodeSetting
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.group import Group

READY_WAIT_S: Final = 5.0  # a server that stands alone is ready when its streams lead; a broken one says so by itself


class ClusterNode:
    """See the module."""

    def __init__(self, setting: NodeSetting, ports: NodePorts, parts: Parts) -> None:
        if ports.mesh is not None:
            ports.mesh.ages.begin(KeptAges.begin(ports.node_dir.ledger))
        self._setting = setting
        self._ports = ports
        self.parts = parts
        self.machine = parts.machine
        self.view = parts.view
        self.gossip = parts.gossip
        self.directory = parts.directory
        self.backend = parts.backend
        self.service = parts.service
        self.supervisor = parts.supervisor
        self.clocks = parts.clocks
        self.catchup = parts.catchup
        self._readiness = Readiness(clock=ports.clock, see=self._see, lease=None if ports.mesh is None else parts.lease)

    @classmethod
    def load(cls, setting: NodeSetting, ports: NodePorts) -> Self:
        """Read the founding record and make the node. Raises BadRecordError when the store is another node's."""
        return cls(setting, ports, assemble(setting, ports, Stored.load(setting, ports.node_dir)))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled.

        Started when the streams of a server that stands alone can be used; in a cluster, as soon as this node takes
        part or waits for others. Raises StoreError or OSError when the meta group's log cannot be opened.
        """
        parts, is_started = self.parts, False

        def start() -> None:
            nonlocal is_started
            if not is_started:
                task_status.started()
            is_started = True

        if self._setting.cluster_name is not None and parts.bootstrap.founded is None:
            start()
        await parts.room.look()
        await parts.admission.run(waits=start)
        await parts.clocks.look()  # before any stream of this node can have its leader here
        if parts.adoption is not None:  # before any replica is started
            with trio.move_on_after(READY_WAIT_S):
                await self._until_meta_leads()
            await parts.adoption.run()
            with trio.move_on_after(READY_WAIT_S):
                await parts.currency.run()
        async with trio.open_nursery() as nursery:
            if parts.catchup is not None:
                await nursery.start(parts.catchup.run)
            await nursery.start(parts.backend.run)
            if not parts.currency.is_proved:
                nursery.start_soon(self._prove_table)
            nursery.start_soon(parts.lease.run)
            nursery.start_soon(parts.exclusion.run)
            nursery.start_soon(parts.clocks.run)
            if parts.handovers is not None:
                nursery.start_soon(parts.handovers.run)
            nursery.start_soon(parts.service.inquiries.run)
            nursery.start_soon(parts.reads.run)
            nursery.start_soon(parts.leader_duties.loop.run)
            nursery.start_soon(parts.backend.comparison.run)
            nursery.start_soon(parts.gossip.run)
            nursery.start_soon(parts.room.run)
            if parts.memory is not None:
                nursery.start_soon(parts.memory.run)
            nursery.start_soon(parts.supervisor.run)
            nursery.start_soon(parts.service.backups.run)
            nursery.start_soon(parts.template_publishes.run)
            if self._setting.cluster_name is None:
                await self._until_all_lead()
            nursery.start_soon(parts.sweeper.run)
            start()

    async def _prove_table(self) -> None:
        """Rows can be gone by when the meta leader has confirmed the table: what waited for that begins.

        From then on what rests on the lease of the table begins and ends with that.
        """
        await self.parts.currency.run()
        self.backend.retry_all()
        self.parts.mandates.weigh_all()
        for signal in (self.parts.lease.on_held, self.parts.lease.on_lapsed):
            signal.connect(self.parts.mandates.weigh_all)

    async def _until_meta_leads(self) -> None:
        await self.machine.leader_known.until(lambda: self.machine.leading_term is not None)

    async def _until_all_lead(self) -> None:
        """Return when the meta group and all replicas that could be started lead, or READY_WAIT_S is over."""
        with trio.move_on_after(READY_WAIT_S):
            await self._until_meta_leads()
            await self.directory.settle()
            for row, replica in self.directory.replicas():
                await self.parts.changes.until(row.key, partial(_leads, replica))

    async def health(self, *, with_space: bool = True, meta_only: bool = False) -> Health:
        """Say whether this node is current, for `/healthz`; without `with_space` a full disk is no reason."""
        return await self._readiness.health(with_space=with_space, meta_only=meta_only)

    def _see(self) -> Steps[Seen]:
        """Gather what health is judged by."""
        replicas, lost = list(self.directory.replicas()), []
        for number, (row, replica) in enumerate(replicas, 1):
            if (loss := _loss_of(replica)) is not None:
                lost.append((row.key, loss))
            if number % ROWS_PER_STEP == 0:
                yield
        unopened = []
        for number, row in enumerate(list(self.machine.table.streams.values()), 1):
            if self._setting.node_id in row.peers and self._is_unopened(row):
                unopened.append(row.key)
            if number % ROWS_PER_STEP == 0:
                yield
        statistics = self.backend.statistics()
        return Seen(
            clustered=self._setting.cluster_name is not None,
            outside=self.parts.admission.is_outside,
            is_removed=self.parts.exclusion.is_removed,
            is_store_old=self._ports.mesh is not None and self._ports.mesh.ages.is_own_old,
            meta=self.meta_group,
            failed=statistics.failed,
            unopened=unopened,
            replicas=((row.key, now.group) for row, _ in replicas if (now := self.directory.get(row.key)) is not None),
            lost=lost,
            unclaimed=() if self.parts.adoption is None else statistics.orphans,
            is_full=self.parts.space.is_low(self._ports.clock.mono_ns()),
        )

    def _is_unopened(self, row: StreamAssignment) -> bool:
        """Whether a row of a moment ago still holds, and its replica here is not open."""
        replica = self.directory.get(row.key)
        if replica is not None and replica.assignment.incarnation == row.incarnation:
            return False
        now = self.machine.table.streams.get(row.key)
        return now is not None and now.incarnation == row.incarnation and self._setting.node_id in now.peers

    @property
    def meta_group(self) -> Group | None:
        """The meta group on this node; None until it is founded, and on a node outside of it."""
        return self.parts.meta_replica.group

    @property
    def is_cut_off(self) -> bool:
        """Whether this node reaches no majority of the cluster's nodes now, and did before."""
        return self.view.is_cut_off

    @property
    def is_waited_for(self) -> bool:
        """Whether other nodes have yet to fetch publishes that came while leadership was handed over."""
        return self.parts.handovers is not None and self.parts.handovers.is_waited_for

    @property
    def bootstrap(self) -> BootstrapStatistics:
        """How far the founding of the meta group is."""
        return self.parts.bootstrap.statistics()

    def statistics(self) -> NodeStatistics:
        """Return a snapshot."""
        return NodeStatistics(
            bootstrap=self.bootstrap,
            table=self.machine.table.statistics(),
            backend=self.backend.statistics(),
            service=self.service.statistics(),
            meta_group=None if self.meta_group is None else self.meta_group.statistics(),
            repairs=self.parts.repairs.statistics(),
            supervisor=self.supervisor.statistics(),
            clocks=self.clocks.statistics(),
        )


def _loss_of(replica: StreamReplica) -> ReportedLoss | None:
    store = replica.machine.store
    runs, is_forgotten = store.lost(), bool(store.forgotten_ns and store.forgotten_by_all)
    return ReportedLoss(runs=runs, is_forgotten=is_forgotten) if runs or is_forgotten else None


def _leads(replica: StreamReplica) -> bool:
    return replica.is_leader
