"""Which removals a stream's configuration allows, and the commands that carry them out. Pure.

Every removal is an entry, so what is refused is refused here, by the leader, before anything is proposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.state import commands
from jetraft.store.model import errors

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.requests import JSApiStreamPurgeRequest

NO_SEQ: Final = 1 << 63  # above every sequence


def purge_of(config: StreamConfig, request: JSApiStreamPurgeRequest) -> commands.Purge:
    """The command of a STREAM.PURGE. Raises ApiError."""
    if config.sealed:
        raise errors.STREAM_SEALED.with_values()
    if config.deny_purge:
        raise errors.STREAM_PURGE_FAILED.with_values(err="stream purge not permitted")
    if request.seq and request.keep:
        raise errors.BAD_REQUEST.with_values()
    return commands.Purge(
        subject=request.filter.encode() or None,
        below_seq=request.seq or None,
        keep=request.keep or None,
    )


def deletion_of(config: StreamConfig, seq: int, *, erase: bool) -> commands.Remove | None:
    """The command of a STREAM.MSG.DELETE; None for a sequence that no message can have. Raises ApiError."""
    if config.sealed:
        raise errors.STREAM_SEALED.with_values()
    if config.deny_delete:
        raise errors.STREAM_MSG_DELETE_FAILED.with_values(err="message delete not permitted")
    # Bounded before it is proposed: an entry that cannot be applied would stop every replica.
    return None if not 0 < seq < NO_SEQ else commands.Remove(seqs=commands.to_runs((seq,)), erase=erase)
