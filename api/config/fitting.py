"""Defaults that follow the memory limit of a container (a control group), where there is one.

A process without a limit keeps nats-server's defaults, three quarters of the machine's memory for streams in memory.
Below a limit a part belongs to the process itself, and streams get half of the rest: their messages are held with an
index and a log, and a log that is fetched, buffers of connections and reads of files need memory at the same time. What
was configured stays as it is; the watch of the group (store/disk/cgroup.py) holds then too.
"""

from typing import Final

import attrs

from jetraft.api.options.options import MAX_CLOSED_CLIENTS, MAX_PENDING_BYTES, Options
from jetraft.cluster.memory_budget import CLIENTS_SHARE

PROCESS_BYTES: Final = (
    96 << 20
)  # resident with three nodes and 100 streams: modules, heap, buffers of links (55-85 MiB)
STREAMS_SHARE: Final = 2  # of what is left
STREAMS_BYTES_MIN: Final = 1 << 20  # 0 would mean the default of a machine
CACHE_SHARE: Final = 16  # of the limit
PENDING_SHARE: Final = 16  # of the limit, for one connection
UNREAD_SHARE: Final = CLIENTS_SHARE  # of the limit, for all connections together
PEER_SHARE: Final = 8  # of the limit, for the link to one peer; a batch of publishes is one frame of it
CLOSED_SHARE: Final = 64  # of the limit, for connections that have ended and are still shown
CLOSED_BYTES: Final = 4 << 10  # of each
FRAME_BYTES_MIN: Final = 16 << 20  # of a link, whatever the limit: records of a turn are cut into frames of that size


def default_memory_bytes(limit_bytes: int) -> int:
    """The bytes that streams in memory may hold below a limit of the process."""
    others = PROCESS_BYTES + limit_bytes // CACHE_SHARE + limit_bytes // UNREAD_SHARE
    return max(STREAMS_BYTES_MIN, (limit_bytes - others) // STREAMS_SHARE)


def fitted(options: Options, limit_bytes: int | None) -> Options:
    """The options below a memory limit in bytes; None: no limit, and the options as they are."""
    if limit_bytes is None:
        return options
    if options.max_pending_bytes == MAX_PENDING_BYTES:
        pending = max(options.max_payload_bytes, min(MAX_PENDING_BYTES, limit_bytes // PENDING_SHARE))
        options = attrs.evolve(options, max_pending_bytes=pending)
    options = attrs.evolve(options, max_unread_bytes=limit_bytes // UNREAD_SHARE)
    if options.max_closed_clients == MAX_CLOSED_CLIENTS:
        closed = min(MAX_CLOSED_CLIENTS, limit_bytes // CLOSED_SHARE // CLOSED_BYTES)
        options = attrs.evolve(options, max_closed_clients=closed)
    for_peer = max(2 * FRAME_BYTES_MIN, limit_bytes // PEER_SHARE)
    if options.cluster is not None:
        waiting = min(options.cluster.max_waiting_bytes, for_peer)
        options = attrs.evolve(options, cluster=attrs.evolve(options.cluster, max_waiting_bytes=waiting))
    block = options.jetstream
    if block is None:
        return options
    batch = block.limits.batch
    batch = attrs.evolve(
        batch, bytes_max=min(batch.bytes_max, for_peer // 2), staged_bytes=min(batch.staged_bytes, for_peer)
    )
    block = attrs.evolve(
        block,
        limits=attrs.evolve(block.limits, batch=batch),
        max_memory_store_bytes=block.max_memory_store_bytes or default_memory_bytes(limit_bytes),
        cache_bytes_max=min(block.cache_bytes_max, limit_bytes // CACHE_SHARE),
    )
    return attrs.evolve(options, jetstream=block)
