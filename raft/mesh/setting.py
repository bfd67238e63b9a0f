"""How a node takes part in the mesh, and the figures of it."""

from collections.abc import Mapping, Sequence

import attrs

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.bulk import BYTES_PER_S
from jetraft.raft.mesh.connection import Tls
from jetraft.raft.mesh.link import QUEUE_BYTES_MAX, LinkStatistics
from jetraft.store.model.ids import NodeId


@attrs.frozen(kw_only=True, slots=True)
class MeshSetting:
    """How a node takes part. Port 0 picks one; `advertise` replaces the listen address in what peers are told."""

    cluster: str
    server_name: str
    listen: Address | None
    routes: Sequence[Address] = ()
    secrets: tuple[bytes, ...] = attrs.field(default=(), repr=False)  # the first is proven, all are accepted
    advertise: Address | None = None
    tls: Tls | None = None
    bulk_bytes_per_s: int = BYTES_PER_S
    queue_bytes_max: int = QUEUE_BYTES_MAX  # of what waits for one peer


@attrs.frozen(kw_only=True, slots=True)
class MeshStatistics:
    """A snapshot of the mesh."""

    links: Mapping[NodeId, LinkStatistics]
    bulk_links: Mapping[NodeId, LinkStatistics]
    handshakes_refused: int
    suppressed_log_lines: int  # what was not logged, because it had been just now or there was too much
    sessions_begun: int
