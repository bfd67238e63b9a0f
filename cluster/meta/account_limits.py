"""Limits of an account when it makes or changes a stream: nats-server's checks, in its order. Pure.

Reserved are the bytes that streams say they may grow to, whether they hold them or not: times their replicas where an
account's limits are for all of its streams, and once where they are for a tier, with what is in that tier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model import errors
from jetraft.store.model.config import StorageType
from jetraft.store.model.tiers import NO_TIER, limits_for, tier_name, tier_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.tiers import Allowance


def check_stream_size(allowance: Allowance, config: StreamConfig) -> None:
    """Raise ApiError for a stream that the account may not have, whatever else it has."""
    limits, is_memory = limits_for(allowance, config.num_replicas), config.storage is StorageType.MEMORY
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise errors.STREAM_MAX_BYTES_REQUIRED.with_values()
    size_max = limits.memory_max_stream_bytes if is_memory else limits.storage_max_stream_bytes
    if 0 < size_max < config.max_bytes:
        raise errors.STREAM_MAX_STREAM_BYTES_EXCEEDED.with_values()


def check_count(allowance: Allowance, config: StreamConfig, rows: Iterable[StreamAssignment]) -> None:
    """Raise ApiError when the account may have no new stream beside its other ones: `rows`, without this one."""
    streams_max = limits_for(allowance, config.num_replicas).max_streams
    if 0 <= streams_max <= sum(1 for _ in _of_tier(allowance, config, rows)):
        raise errors.MAXIMUM_STREAMS_LIMIT.with_values()


def check_room(allowance: Allowance, config: StreamConfig, rows: Iterable[StreamAssignment], *, is_new: bool) -> None:
    """Raise ApiError when the account has no bytes for the stream beside its other ones: `rows`, without this one."""
    limits, is_memory = limits_for(allowance, config.num_replicas), config.storage is StorageType.MEMORY
    bytes_max = limits.max_memory if is_memory else limits.max_storage
    if bytes_max < 0:
        return  # without a look at what may be many streams
    tier = tier_of(allowance, config.num_replicas)
    same = [row.config for row in _of_tier(allowance, config, rows) if row.config.storage is config.storage]
    least = int(is_new)  # one that does not say how large it becomes begins only where there is some room
    if sum(reserved_bytes(one, tier) for one in same) + max(least, reserved_bytes(config, tier)) > bytes_max:
        exceeded = errors.MEMORY_RESOURCES_EXCEEDED if is_memory else errors.STORAGE_RESOURCES_EXCEEDED
        raise exceeded.with_values()


def reserved_bytes(config: StreamConfig, tier: str = NO_TIER) -> int:
    """The size that a stream may grow to: of a tier one replica, else all of them; 0 when it does not say."""
    return max(0, config.max_bytes) * (config.num_replicas if tier == NO_TIER else 1)


def _of_tier(
    allowance: Allowance, config: StreamConfig, rows: Iterable[StreamAssignment]
) -> Iterable[StreamAssignment]:
    tier = tier_of(allowance, config.num_replicas)
    return rows if tier == NO_TIER else (row for row in rows if tier_name(row.config.num_replicas) == tier)
