"""The specification of JetStream's part of a node: its setting, and the ports that it works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.store.log.scrub import BYTES_PER_S_MAX, PERIOD_NS
from jetraft.store.model.feature_level import LEVEL
from jetraft.store.model.histogram import Histogram
from jetraft.store.model.validation.validate import NO_LIMITS, ServerLimits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from jetraft.cluster.memory_budget import MemoryBudget
    from jetraft.cluster.ports import Outboxes, Timers, Traces
    from jetraft.raft.manager import Manager
    from jetraft.raft.mesh.peers import Mesh
    from jetraft.store.blocks.cache import BlockCache
    from jetraft.store.disk.io import Disk
    from jetraft.store.frames.keyring import Secrets
    from jetraft.store.ledger.node_dir import NodeDir
    from jetraft.store.model.config import StorageType
    from jetraft.store.model.ids import NodeId
    from jetraft.store.model.steady import SteadyClock
    from jetraft.store.model.tiers import Allowance


@attrs.frozen(kw_only=True, slots=True)
class NodeSetting:
    """The identity of a node. `cluster_name` is None on a server that stands alone; `expected` counts the founders."""

    node_id: NodeId
    server_name: str
    cluster_name: str | None
    domain: str = ""  # of JetStream
    server_id: str = ""  # as clients see it
    system_account: str = ""  # empty: there is none
    expected: int = 1
    limits: ServerLimits = NO_LIMITS
    accounts: Mapping[str, Allowance | None] = attrs.field(factory=dict)  # not named, or None: no limits
    accounts_may_change: bool = False  # the mapping does, while the node runs
    feature_level: int = LEVEL  # the highest that this server takes part in
    tags: tuple[str, ...] = ()
    unique_tag: str = ""  # a prefix of tags whose values no two replicas of a stream may share
    store_limits: Mapping[StorageType, int] = attrs.field(factory=dict)  # bytes; without one most of what is free
    scrub_period_ns: int | None = PERIOD_NS  # every block is read in this time; None: never
    scrub_bytes_per_s: int = BYTES_PER_S_MAX
    compare_ns: int | None = PERIOD_NS  # replicas are compared in this time; None: never


@attrs.frozen(kw_only=True, slots=True)
class NodePorts:
    """The ports of the node. `mesh` is None on a server that stands alone."""

    mesh: Mesh | None
    manager: Manager
    outboxes: Outboxes
    timers: Timers
    clock: SteadyClock
    rng: Random
    node_dir: NodeDir
    disk: Disk
    cache: BlockCache
    secrets: Secrets | None = None  # of a store that is encrypted
    memory: MemoryBudget | None = None  # below a limit of the process; None: there is none
    traces: Traces | None = None
    ack_times: Histogram = attrs.field(factory=Histogram)  # of publishes, from their admission
