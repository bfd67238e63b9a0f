"""The parts of JetStream on one node, made from the bottom up: each is given what it needs when it is made.

Two parts that need each other have a third one below both:

| below both | who needs it |
|---|---|
| `MetaGroupRef` | the meta replica sets it; requests, placement and health ask it for the group |
| `ReplicaDirectory` | the backend changes it; all others look this node's replicas up in it |
| `StreamChanges` | table, directory and replicas tell it; requests wait for a stream with its help |
| `ServedRequests` | inquiries, restores and the API register with it; the forwarder carries requests out through it |
| `Signal` of groups heard of | repairs tell it; the meta group's admission and the backend try again |

The layers are in assembly_shared.py, assembly_requests.py and assembly_layers.py. Nothing runs here and no file is
read: what the store says is in `Stored`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.assembly_layers import Logs, log_parts, replica_parts
from jetraft.cluster.assembly_requests import cluster_service, request_parts
from jetraft.cluster.assembly_shared import Shared, Stored, held_bytes, shared_parts
from jetraft.cluster.calls.forward import Moved
from jetraft.cluster.calls.messages.inquiries import LOOK
from jetraft.cluster.memory_room import MemoryKeeper
from jetraft.cluster.meta.gossip import ProfileGossip
from jetraft.cluster.meta.health import GRACE_NS
from jetraft.cluster.meta.members.exclusion import Exclusion
from jetraft.cluster.meta.members.meta_replica import META_GROUP, MetaReplica
from jetraft.cluster.operator_news import OperatorNews
from jetraft.cluster.room import RoomKeeper
from jetraft.cluster.streams.replica.mandates import Mandates
from jetraft.cluster.upkeep.quarantine import GroupHere, Quarantine
from jetraft.cluster.upkeep.supervisor import Supervisor
from jetraft.cluster.upkeep.sweeping import Sweeper
from jetraft.raft.recovery.catchup import Catchup
from jetraft.store.disk.emergency import EmergencyFile
from jetraft.store.disk.io import run_blocking
from jetraft.store.model.config import StorageType

__all__ = ["Parts", "Stored", "assemble"]

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.assembly_layers import Replicas
    from jetraft.cluster.assembly_requests import Requests
    from jetraft.cluster.calls.handing_over import Handovers
    from jetraft.cluster.calls.messages.forwarding import ForwardedRequest
    from jetraft.cluster.clocks import ClockWatch
    from jetraft.cluster.meta.adoption import Adoption
    from jetraft.cluster.meta.backend import MetaBackend
    from jetraft.cluster.meta.currency import Currency
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.leader_duties import LeaderDuties
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.members.admission import NodeAdmission
    from jetraft.cluster.meta.members.bootstrap import Bootstrap
    from jetraft.cluster.meta.table_lease import TableLease
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.cluster.node_spec import NodePorts, NodeSetting
    from jetraft.cluster.requests.read_confirmations import ReadConfirmations
    from jetraft.cluster.requests.service import ClusterService
    from jetraft.cluster.requests.template_publishes import TemplatePublishes
    from jetraft.cluster.state.changes import StreamChanges
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.group import Group
    from jetraft.raft.recovery.repair import Repairs
    from jetraft.raft.recovery.swap import Swap
    from jetraft.store.disk.space import SpaceWatch
    from jetraft.store.ledger.ledger_records import GroupKey
    from jetraft.store.model.ids import NodeId


@attrs.frozen(kw_only=True, slots=True)
class Parts:
    """The parts that `ClusterNode` runs and shows; None for those that a server alone, or a cluster, does not need."""

    machine: MetaMachine
    changes: StreamChanges
    directory: ReplicaDirectory[StreamReplica]
    mandates: Mandates
    view: ClusterView
    space: SpaceWatch
    clocks: ClockWatch
    bootstrap: Bootstrap
    repairs: Repairs
    currency: Currency
    lease: TableLease
    exclusion: Exclusion
    meta_replica: MetaReplica
    leader_duties: LeaderDuties
    admission: NodeAdmission
    adoption: Adoption | None
    backend: MetaBackend[StreamReplica]
    gossip: ProfileGossip
    service: ClusterService
    reads: ReadConfirmations
    supervisor: Supervisor
    room: RoomKeeper
    memory: MemoryKeeper | None
    template_publishes: TemplatePublishes
    quarantine: Quarantine
    sweeper: Sweeper
    catchup: Catchup | None
    handovers: Handovers | None


def assemble(setting: NodeSetting, ports: NodePorts, stored: Stored) -> Parts:
    """Make the parts of one node."""
    shared = shared_parts(setting, ports)
    requests = request_parts(setting, ports, shared)
    logs = log_parts(setting, ports, stored, shared, requests)
    replicas = replica_parts(setting, ports, shared, requests, logs)
    mesh, machine, directory, space = ports.mesh, shared.machine, shared.directory, shared.space
    gossip = ProfileGossip.start(
        stored.profile, view=shared.view, mesh=mesh, held=shared.held_bytes, is_short=shared.is_short
    )
    reopen = partial(reopen_log, logs.meta_replica, replicas.backend)
    quarantine = _quarantine(setting, ports, shared, logs)
    supervisor = Supervisor(
        setting,
        ports,
        directory=directory,
        meta_group=lambda: logs.meta_replica.group,
        repairs=logs.repairs,
        reopen=reopen,
        view=shared.view,
        advisories=shared.advisories,
        space=space,
        tell=gossip.tell,
        is_table_proved=lambda: requests.currency.is_proved,
    )
    return Parts(
        machine=machine,
        changes=shared.changes,
        directory=directory,
        mandates=Mandates(machine=machine, directory=directory, timers=ports.timers, clock=ports.clock),
        view=shared.view,
        space=space,
        clocks=shared.clocks,
        bootstrap=logs.bootstrap,
        repairs=logs.repairs,
        currency=requests.currency,
        lease=requests.lease,
        exclusion=_exclusion(shared, requests, logs, replicas),
        meta_replica=logs.meta_replica,
        leader_duties=logs.leader_duties,
        admission=replicas.admission,
        adoption=replicas.adoption,
        backend=replicas.backend,
        gossip=gossip,
        reads=requests.reads,
        service=cluster_service(setting, ports, shared, requests, logs.leader_duties),
        supervisor=supervisor,
        room=_room_keeper(ports, space, supervisor, _news(ports, shared, logs)),
        memory=_memory_keeper(ports, directory),
        template_publishes=requests.template_publishes,
        quarantine=quarantine,
        sweeper=_sweeper(ports, shared, requests, replicas, quarantine),
        catchup=None if mesh is None else Catchup(ports.manager, mesh, clock=ports.clock, reopen=reopen),
        handovers=requests.handovers,
    )


def _quarantine(setting: NodeSetting, ports: NodePorts, shared: Shared, logs: Logs) -> Quarantine:
    state_of = partial(_group_here, shared, logs.meta_replica, setting.node_id)
    return Quarantine(ports.node_dir, clock=ports.clock, state_of=state_of)


def _sweeper(
    ports: NodePorts, shared: Shared, requests: Requests, replicas: Replicas, quarantine: Quarantine
) -> Sweeper:
    return Sweeper(
        shared.machine,
        is_current=partial(is_table_current, requests.currency, requests.lease),
        empty_trash=partial(run_blocking, ports.node_dir.empty_trash),
        sweep=partial(sweep, replicas.adoption, shared.directory, replicas.backend, quarantine),
    )


def _news(ports: NodePorts, shared: Shared, logs: Logs) -> OperatorNews:
    news = OperatorNews(
        machine=shared.machine,
        meta_group=lambda: logs.meta_replica.group,
        view=shared.view,
        advisories=shared.advisories,
        clock=ports.clock,
    )
    logs.leader_duties.on_removed.connect(news.server_removed)
    return news


def _room_keeper(ports: NodePorts, space: SpaceWatch, supervisor: Supervisor, news: OperatorNews) -> RoomKeeper:
    def give_back() -> None:
        supervisor.compact_now()
        news.out_of_storage()

    emergency = EmergencyFile.of(ports.disk, ports.node_dir.root)
    return RoomKeeper(clock=ports.clock, space=space, emergency=emergency, on_low=give_back)


def _memory_keeper(ports: NodePorts, directory: ReplicaDirectory[StreamReplica]) -> MemoryKeeper | None:
    if ports.memory is None:
        return None
    ports.memory.register("streams in memory", lambda: held_bytes(directory)[StorageType.MEMORY])
    ports.memory.register("cache", lambda: ports.cache.statistics().bytes_held)
    return MemoryKeeper(
        clock=ports.clock, memory=ports.memory, cache=ports.cache, groups_in_memory=partial(_in_memory, directory)
    )


def _in_memory(directory: ReplicaDirectory[StreamReplica]) -> Sequence[Group]:
    return [replica.group for row, replica in directory.replicas() if row.config.storage is StorageType.MEMORY]


async def reopen_log(meta_replica: MetaReplica, backend: MetaBackend[StreamReplica], swap: Swap) -> None:
    """Put a new log under one of this node's groups: it was fetched by catching up, or is opened again after damage."""
    if swap.group.group_id == META_GROUP:
        await meta_replica.reopen(swap)
    else:
        await backend.reopen(swap)


def _exclusion(shared: Shared, requests: Requests, logs: Logs, replicas: Replicas) -> Exclusion:
    def leave() -> bool:
        if not logs.meta_replica.end():
            return False
        shared.machine.forget()
        return True

    exclusion = Exclusion(
        lease=requests.lease,
        took_part=lambda: requests.currency.is_proved,
        leave=leave,
        rejoin=replicas.admission.rejoin,
        directory=shared.directory,
    )

    async def look(_request: ForwardedRequest) -> bytes:
        if not await exclusion.look():
            raise Moved  # it has heard nothing of it: it is asked again
        return b""

    requests.served.serve(LOOK, look)
    return exclusion


async def is_table_current(currency: Currency, lease: TableLease) -> bool:
    """Whether what the table lacks was deleted. In a cluster the meta leader is asked."""
    return currency.is_proved and await lease.is_fresh(GRACE_NS)


async def sweep(
    adoption: Adoption | None,
    directory: ReplicaDirectory[StreamReplica],
    backend: MetaBackend[StreamReplica],
    quarantine: Quarantine,
) -> None:
    """Delete what was removed, after what the meta log has lost was taken back; and copies that are of no use."""
    if adoption is not None:
        await adoption.run()
    await directory.settle()
    await backend.sweep()
    await quarantine.look()


def _group_here(shared: Shared, meta_replica: MetaReplica, node_id: NodeId, key: GroupKey) -> GroupHere:
    """The state of a group on this node; the table is current."""
    if key[0] == META_GROUP:
        meta = meta_replica.group
        if meta is None:
            return GroupHere(is_assigned=True)
        is_whole = meta.failed is None and not meta.log.damaged_entries
        return GroupHere(is_assigned=True, is_whole=is_whole, has_others=len(meta.members) > 1)
    rows = shared.machine.table.streams.values()
    row = next((row for row in rows if (row.group_id, row.incarnation) == key), None)
    if row is None or node_id not in row.holders:
        return GroupHere(is_assigned=False)
    replica = shared.directory.get(row.key)
    is_whole = replica is not None and replica.is_whole
    return GroupHere(is_assigned=True, is_whole=is_whole, has_others=len(row.holders) > 1)
