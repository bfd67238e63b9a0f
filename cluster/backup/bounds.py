"""How much a restore may bring: consumers up to the stream's limit, messages up to the room that there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model import errors
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from jetraft.store.model.state import StreamState
    from jetraft.store.stream.consumer_state import ConsumerState


def require_consumer(consumer: ConsumerState, count: int, count_max: int) -> None:
    """Raise ApiError when a stream may not have so many consumers; 0 and less: no limit."""
    if 0 < count_max < count:
        limit = errors.MAXIMUM_CONSUMERS_LIMIT.with_values()
        why = f'failed to add consumer "{consumer.name}": {limit.description} ({limit.err_code})'
        raise errors.STREAM_RESTORE_FAILED.with_values(err=why)


def require_room(state: StreamState, room_bytes: int, kind: StorageType) -> None:
    """Raise ApiError when a stream of this state does not fit."""
    if state.bytes > room_bytes:
        is_memory = kind is StorageType.MEMORY
        exceeded = errors.MEMORY_RESOURCES_EXCEEDED if is_memory else errors.STORAGE_RESOURCES_EXCEEDED
        raise exceeded.with_values()
