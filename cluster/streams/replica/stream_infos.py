"""The answer of STREAM.INFO about a stream, as one replica knows it; exact on the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.origins.origins import mirror_info, source_infos
from jetraft.store.model.state import StreamInfo

if TYPE_CHECKING:
    from jetraft.cluster.origins.origins import Origins
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.store.model.state import ClusterInfo


def stream_info(
    site: Site, row: StreamAssignment, machine: StreamMachine, cluster: ClusterInfo, origins: Origins | None
) -> StreamInfo:
    """The stream now. `origins` is None where it has none, and on a replica that does not lead."""
    config = machine.config or row.config
    return StreamInfo(
        config=config,
        created_ns=row.created_ns,
        state=attrs.evolve(machine.store.state, consumer_count=len(machine.consumers) - machine.hidden_consumers),
        domain=site.domain,
        cluster=cluster,
        mirror=mirror_info(config, origins),
        sources=source_infos(config, machine, origins),
        ts_ns=site.clock.unix_ns(),
    )
