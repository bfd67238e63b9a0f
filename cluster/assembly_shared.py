"""The parts that all of JetStream on one node looks at: the lowest layer that assembly.py puts together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.accounts import Accounts
from jetraft.cluster.advisories import NodeAdvisories
from jetraft.cluster.clocks import ClockWatch
from jetraft.cluster.meta.directory import ReplicaDirectory
from jetraft.cluster.meta.gossip import first_profile
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.meta.members.bootstrap import load_record
from jetraft.cluster.meta.meta_group import MetaGroupRef
from jetraft.cluster.meta.view import ClusterView
from jetraft.cluster.state.changes import StreamChanges
from jetraft.store.disk.space import SpaceWatch
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jetraft.cluster.meta.members.bootstrap import RecordFile
    from jetraft.cluster.meta.members.founding import Record
    from jetraft.cluster.meta.profile import NodeProfile
    from jetraft.cluster.node_spec import NodePorts, NodeSetting
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.mesh.peers import Mesh
    from jetraft.store.ledger.node_dir import NodeDir

META_LOGS: Final = 1  # beside those of streams
RECORD_NAME: Final = "meta.record"


@attrs.frozen(kw_only=True, slots=True)
class Stored:
    """The content of a node's directory before anything runs."""

    record: Record  # of the founding of the meta group
    record_file: RecordFile
    profile: NodeProfile

    @classmethod
    def load(cls, setting: NodeSetting, node_dir: NodeDir) -> Stored:
        """Read it. Raises BadRecordError when the store belongs to another node or cluster, OSError."""
        file = node_dir.value(RECORD_NAME)
        return cls(
            record=load_record(file, node_id=setting.node_id, cluster=setting.cluster_name or ""),
            record_file=file,
            profile=first_profile(
                node_dir, setting.tags, setting.store_limits, level=setting.feature_level, server_id=setting.server_id
            ),
        )


@attrs.frozen(kw_only=True, slots=True)
class Shared:
    """The parts that all others look at."""

    machine: MetaMachine
    meta_group: MetaGroupRef
    changes: StreamChanges
    directory: ReplicaDirectory[StreamReplica]
    view: ClusterView
    space: SpaceWatch
    accounts: Accounts
    clocks: ClockWatch
    advisories: NodeAdvisories
    held_bytes: Callable[[], Mapping[StorageType, int]]  # of the messages of this node's replicas
    is_short: Callable[[], bool]  # of space, now

    def has_no_row(self, row: StreamAssignment) -> bool:
        """Whether the table has this stream no more. An empty one of a removed node says nothing."""
        if not self.machine.has_table:
            return False
        found = self.machine.table.get(row.key)
        return found is None or found.group_id != row.group_id


def shared_parts(setting: NodeSetting, ports: NodePorts) -> Shared:
    """Make the lowest layer."""
    mesh, clock, node_id = ports.mesh, ports.clock, setting.node_id
    machine, meta_group = MetaMachine(setting.feature_level), MetaGroupRef()
    changes = StreamChanges()
    directory: ReplicaDirectory[StreamReplica] = ReplicaDirectory(changes)
    view = ClusterView(
        node_id=node_id,
        server_name=setting.server_name,
        cluster_name=setting.cluster_name or "",
        peers=None if mesh is None else lambda: mesh.peers,
        machine=machine,
        members=lambda: meta_group.members,
        link_heard_ns=(lambda _node: None) if mesh is None else mesh.heard_ns,
    )
    space = SpaceWatch.of(ports.disk, ports.node_dir.root, lambda: META_LOGS + directory.wanted)
    return Shared(
        machine=machine,
        meta_group=meta_group,
        changes=changes,
        directory=directory,
        view=view,
        space=space,
        accounts=Accounts(setting.accounts, directory.replicas, setting.accounts_may_change),
        clocks=ClockWatch(clock, mesh, nodes=partial(count_nodes, meta_group, mesh, expected=setting.expected)),
        advisories=NodeAdvisories(
            outboxes=ports.outboxes,
            clock=clock,
            rng=ports.rng,
            domain=setting.domain,
            system_account=setting.system_account,
        ),
        held_bytes=partial(held_bytes, directory),
        is_short=lambda: space.is_low(clock.mono_ns()),
    )


def held_bytes(directory: ReplicaDirectory[StreamReplica]) -> Mapping[StorageType, int]:
    """Bytes of the messages of this node's replicas."""
    held = dict.fromkeys(StorageType, 0)
    for row, replica in directory.replicas():
        held[row.config.storage] += replica.stored_bytes
    return held


def count_nodes(meta_group: MetaGroupRef, mesh: Mesh | None, *, expected: int) -> int:
    """How many nodes the cluster has, those that are away included."""
    if mesh is None:
        return 1
    return len(meta_group.members) or max(1, expected - mesh.own_routes)
