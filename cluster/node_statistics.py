"""How JetStream's part of a node shows itself: the snapshots of its parts, in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from jetraft.cluster.meta.backend import BackendStatistics
    from jetraft.cluster.meta.members.bootstrap import BootstrapStatistics
    from jetraft.cluster.meta.table import TableStatistics
    from jetraft.cluster.requests.service import ServiceStatistics
    from jetraft.cluster.upkeep.supervisor import SupervisorStatistics
    from jetraft.raft.group_spec import GroupStatistics
    from jetraft.raft.recovery.repair import RepairStatistics
    from jetraft.store.model.steady import SteadyStatistics


@attrs.frozen(kw_only=True, slots=True)
class NodeStatistics:
    """A snapshot of everything."""

    bootstrap: BootstrapStatistics
    table: TableStatistics
    backend: BackendStatistics
    service: ServiceStatistics
    meta_group: GroupStatistics | None
    repairs: RepairStatistics
    supervisor: SupervisorStatistics
    clocks: SteadyStatistics
