"""What JetStream's part of a node is made from, and how it shows itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.store.model.validate import NO_LIMITS, ServerLimits
from jetraft.store.scrub import BYTES_PER_S_MAX, PERIOD_NS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from jetraft.cluster.caretakers import CaretakerStatistics
    from jetraft.cluster.meta.backend import BackendStatistics
    from jetraft.cluster.meta.bootstrap import BootstrapStatistics
    from jetraft.cluster.meta.table import TableStatistics
    from jetraft.cluster.ports import Outbox, Timers
    from jetraft.cluster.service import ServiceStatistics
    from jetraft.raft.group_spec import GroupStatistics
    from jetraft.raft.manager import Manager
    from jetraft.raft.peers import Mesh
    from jetraft.raft.repair import RepairStatistics
    from jetraft.store.block_cache import BlockCache
    from jetraft.store.io import Disk
    from jetraft.store.keyring import Secrets
    from jetraft.store.model.config import StorageType
    from jetraft.store.model.ids import NodeId
    from jetraft.store.model.steady import SteadyClock, SteadyStatistics
    from jetraft.store.node_dir import NodeDir


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
    clock: SteadyClock
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
    caretakers: CaretakerStatistics
    clocks: SteadyStatistics
