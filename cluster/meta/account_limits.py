"""What an account may ask for when it makes or changes a stream: nats-server's checks, in its order. Pure.

Reserved are the bytes that streams say they may grow to, times their replicas, whether they hold them or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model import errors
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.state import AccountLimits


def check_stream_size(limits: AccountLimits, config: StreamConfig) -> None:
    """Raise ApiError for a stream that the account may not have, whatever else it has."""
    is_memory = config.storage is StorageType.MEMORY
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise errors.STREAM_MAX_BYTES_REQUIRED.with_values()
    size_max = limits.memory_max_stream_bytes if is_memory else limits.storage_max_stream_bytes
    if 0 < size_max < config.max_bytes:
        raise errors.STREAM_MAX_STREAM_BYTES_EXCEEDED.with_values()


def check_room(limits: AccountLimits, config: StreamConfig, rows: Iterable[StreamAssignment]) -> None:
    """Raise ApiError when the account has no room for the stream beside its other ones: `rows`, without this one."""
    is_memory = config.storage is StorageType.MEMORY
    bytes_max = limits.max_memory if is_memory else limits.max_storage
    if limits.max_streams < 0 and bytes_max < 0:
        return  # without a look at what may be many streams
    others = list(rows)
    if 0 <= limits.max_streams <= len(others):
        raise errors.MAXIMUM_STREAMS_LIMIT.with_values()
    if bytes_max < 0 or config.max_bytes <= 0:
        return
    same = [row.config for row in others if row.config.storage is config.storage]
    if sum(map(reserved_bytes, [*same, config])) > bytes_max:
        exceeded = errors.MEMORY_RESOURCES_EXCEEDED if is_memory else errors.STORAGE_RESOURCES_EXCEEDED
        raise exceeded.with_values()


def reserved_bytes(config: StreamConfig) -> int:
    """What a stream may grow to, on all nodes; 0 when it does not say."""
    return max(0, config.max_bytes) * config.num_replicas
