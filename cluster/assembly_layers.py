"""The upper layers of JetStream on one node: each function makes one layer from those below it.

| Layer | What it is |
|---|---|
| `Shared` | assembly_shared.py: what all look at: the table, the replicas, the nodes, space, accounts, the clock |
| `Requests` | assembly_requests.py: who owns what a request is about, and what the owner does |
| `Logs` | the logs of this node, their repair, and the meta group over its own |
| `Replicas` | the replicas of streams, and what makes them match the table |

assembly.py puts the layers together, and says where two parts need each other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.batch_room import BatchRoom
from jetraft.cluster.meta.adoption import Adoption
from jetraft.cluster.meta.backend import MetaBackend
from jetraft.cluster.meta.leader_duties import LeaderDuties
from jetraft.cluster.meta.members.admission import NodeAdmission
from jetraft.cluster.meta.members.bootstrap import Bootstrap
from jetraft.cluster.meta.members.meta_replica import MetaReplica
from jetraft.cluster.meta.saved_rows import SavedRows
from jetraft.cluster.quota import Quota
from jetraft.cluster.replica_logs import ReplicaLogs
from jetraft.cluster.requests.members import GroupMembers, StreamAdmission
from jetraft.cluster.site import Site
from jetraft.cluster.streams.replica.host import StreamHost
from jetraft.cluster.streams.replica.memory_groups import MemoryGroups
from jetraft.raft.recovery.joining import Joining
from jetraft.raft.recovery.repair import Repairs
from jetraft.store.log.start import BEGUN_BYTES_MAX
from jetraft.store.model.feature_level import LOGS_IN_LEDGER
from jetraft.store.model.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.assembly_requests import Requests
    from jetraft.cluster.assembly_shared import Shared, Stored
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.node_spec import NodePorts, NodeSetting
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.mesh.peers import Mesh
    from jetraft.store.model.ids import GroupId, NodeId

META_LOGS: Final = 1  # beside those of streams
RECORD_NAME: Final = "meta.record"


@attrs.frozen(kw_only=True, slots=True)
class Logs:
    """The parts that open logs and repairs them, and the meta group over its own."""

    on_heard: Signal[[GroupId]]  # groups that a repair waits for were heard of
    leader_duties: LeaderDuties
    joining: Joining | None
    repairs: Repairs
    logs: ReplicaLogs
    bootstrap: Bootstrap
    meta_replica: MetaReplica
    stream_admission: StreamAdmission


def log_parts(setting: NodeSetting, ports: NodePorts, stored: Stored, shared: Shared, requests: Requests) -> Logs:
    """Make the layer of logs."""
    mesh = ports.mesh
    on_heard: Signal[[GroupId]] = Signal()
    leader_duties = LeaderDuties(
        machine=shared.machine,
        frontend=requests.frontend,
        timers=ports.timers,
        clock=ports.clock,
        on_peer_up=None if mesh is None else mesh.on_peer_up,
    )
    members = GroupMembers(directory=shared.directory, leader_duties=leader_duties)
    joining = None
    if mesh is not None:
        joining = Joining(
            ports.manager,
            mesh,
            may_join=members.may_join,
            on_admitted=members.admitted,
            on_forgotten=members.forgotten,
        )
    repairs = Repairs(
        ports.manager,
        mesh,
        secrets=ports.secrets,
        available_bytes=shared.space.available_bytes,
        begun_bytes_max=BEGUN_BYTES_MAX if setting.feature_level >= LOGS_IN_LEDGER else 0,
        on_heard=on_heard.emit,
        has_forgotten=(lambda _key: False) if joining is None else joining.is_waiting,
    )
    logs = ReplicaLogs(node_dir=ports.node_dir, cache=ports.cache, repairs=repairs)
    return Logs(
        on_heard=on_heard,
        leader_duties=leader_duties,
        joining=joining,
        repairs=repairs,
        logs=logs,
        bootstrap=Bootstrap(record=stored.record, mesh=mesh, expected=setting.expected, file=stored.record_file),
        meta_replica=MetaReplica(
            machine=shared.machine,
            manager=ports.manager,
            logs=logs,
            listeners=(shared.meta_group.replace, leader_duties.look_after),
            end_listeners=(partial(shared.meta_group.replace, None),),
        ),
        stream_admission=StreamAdmission(node_id=setting.node_id, joining=joining, inquiries=requests.inquiries),
    )


@attrs.frozen(kw_only=True, slots=True)
class Replicas:
    """The parts that make the replicas of this node match the table."""

    adoption: Adoption | None
    admission: NodeAdmission
    backend: MetaBackend[StreamReplica]


def replica_parts(setting: NodeSetting, ports: NodePorts, shared: Shared, requests: Requests, logs: Logs) -> Replicas:
    """Make the layer of replicas."""
    mesh, node_id, machine, currency = ports.mesh, setting.node_id, shared.machine, requests.currency
    saved_rows = SavedRows.following(ports.node_dir.ledger, machine, ports.secrets) if mesh is None else None
    host = StreamHost(
        site_of=_site_maker(setting, ports, shared, requests, logs),
        node_dir=ports.node_dir,
        logs=logs.logs,
        repairs=logs.repairs,
        memory_groups=MemoryGroups(ports.node_dir.ledger),
        saved_rows=saved_rows,
        admit=logs.stream_admission.ask,
        forget_admission=logs.stream_admission.forget,
        joined_index=lambda: logs.bootstrap.joined_index,
        currency=currency,
        is_in_table=lambda row: machine.table.get(row.key) == row,
    )
    adoption = None
    if saved_rows is not None:
        adoption = Adoption(
            rows=saved_rows,
            machine=machine,
            frontend=requests.frontend,
            meta_group=shared.meta_group,
            stored=host.stored_groups,
        )
    return Replicas(
        adoption=adoption,
        admission=NodeAdmission(
            node_id=node_id,
            bootstrap=logs.bootstrap,
            meta_replica=logs.meta_replica,
            logs=logs.logs,
            joining=logs.joining,
            mesh=mesh,
            unknown=list if adoption is None else adoption.unknown,
            on_heard=logs.on_heard,
        ),
        backend=MetaBackend(
            node_id=node_id,
            machine=machine,
            directory=shared.directory,
            host=host,
            is_table_proved=lambda: currency.is_proved,
            on_heard=logs.on_heard,
        ),
    )


def _site_maker(
    setting: NodeSetting, ports: NodePorts, shared: Shared, requests: Requests, logs: Logs
) -> Callable[[str], Site]:
    """A function that makes the node as the replicas of an account's streams see it."""
    accounts = shared.accounts
    batches = BatchRoom(setting.limits.batch)
    if ports.memory is not None:
        if ports.mesh is not None:
            ports.memory.register("peers' queues", partial(queued_bytes, ports.mesh))
        ports.memory.register("batches of publishes", lambda: batches.staged_bytes)
    of_node = partial(
        Site,
        manager=ports.manager,
        timers=ports.timers,
        clock=ports.clock,
        cluster_name=setting.cluster_name or "",
        name_of=shared.view.name_of,
        link_heard_ns=shared.view.link_heard_ns,
        changes=shared.changes,
        level_in_use=lambda: shared.machine.table.feature_level,
        is_table_held=lambda: requests.lease.is_held,
        is_row_current=partial(is_row_current, requests, shared.machine, setting.node_id),
        has_no_row=shared.has_no_row,
        on_settled=requests.inquiries.report_settled,
        confirm_read=requests.reads.confirm,
        on_abandoned=requests.backups.abandon,
        has_begun_empty=logs.stream_admission.has_begun_empty,
        quota=Quota(setting.store_limits, shared.held_bytes),
        space=shared.space,
        memory=ports.memory,
        ack_times=ports.ack_times,
        batches=batches,
        server_limits=setting.limits,
        handovers=requests.handovers,
    )

    def make(account: str) -> Site:
        return of_node(
            account=account,
            outbox=ports.outboxes(account),
            traces=ports.traces,
            advisories=shared.advisories.of(account),
            domain=shared.advisories.domain,
            limits=partial(accounts.limits_of, account),
            account_quota=accounts.quota_of(account),
        )

    return make


def is_row_current(requests: Requests, machine: MetaMachine, node_id: NodeId, row: StreamAssignment) -> bool:
    """Whether the meta group's present table assigns this incarnation of the stream to this node.

    A newer revision of the row is no other one: the replica takes it over in a moment (meta/backend.py). What the only
    replica takes rests on nothing but the row, so it goes by the lease of the table; where there are more, an entry
    needs a majority of them (decision 130).
    """
    found = machine.table.get(row.key)
    if found is None or found.group_id != row.group_id or found.incarnation != row.incarnation:
        return False
    is_held = len(found.holders) > 1 or requests.lease.is_held
    return is_held and requests.currency.is_proved and node_id in found.holders


def queued_bytes(mesh: Mesh) -> int:
    """The bytes that wait for all peers together."""
    found = mesh.statistics()
    return sum(link.queued_bytes for link in (*found.links.values(), *found.bulk_links.values()))
