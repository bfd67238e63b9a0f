"""Which removals a stream's configuration allows, and the commands that carry them out.

Every removal is an entry, so what is refused is refused here, by the leader, before anything is proposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.state import commands
from jetraft.raft.proposals import NotLeaderError
from jetraft.store.model import errors
from jetraft.store.stream.stream_store import EVERYTHING, SEQ_MAX

if TYPE_CHECKING:
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.cluster.streams.admission.admit import PublishAdmission
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.requests import JSApiStreamPurgeRequest
    from jetraft.store.stream.stream_store import StreamStore

NO_SEQ: Final = 1 << 63  # above every sequence
PURGED_MAX: Final = 10_000  # messages that go with one entry: up to 0.2 us each on every replica
KEPT_FEW: Final = 1_000  # messages that are left of a stream: then all others go at once (store/stream/_index.pyx)


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


def part_of(purge: commands.Purge, store: StreamStore) -> commands.Purge | None:
    """The oldest PURGED_MAX of what a purge removes; None when it removes no more than that, or nearly everything.

    Each part is an entry of its own, and others are applied in between. The purge itself is the last one.
    """
    filters = () if purge.subject in (None, EVERYTHING) else (purge.subject,)
    if not filters and not purge.keep and store.num_pending((), purge.below_seq or store.next_seq) <= KEPT_FEW:
        return None
    found = store.next_matches(filters, store.first_seq, PURGED_MAX + 1)
    if len(found) <= PURGED_MAX or (purge.below_seq and found[-1] >= purge.below_seq):
        return None
    if purge.keep and store.num_pending(filters, 0) - purge.keep <= PURGED_MAX:
        return None
    return commands.Purge(subject=purge.subject, below_seq=found[-1], keep=None)


def accepted(
    purge: commands.Purge, admission: PublishAdmission, machine: StreamMachine, *, may_propose: bool
) -> commands.Purge:
    """The purge as it is to be proposed in this turn: what is published after it continues where it moves the stream.

    What a mirror has comes with a sequence of its origin, so a purge does not move it: it ends at what is there. Raises
    NotLeaderError while leadership is handed over, as the admission must not follow what is then refused, and while a
    mirror that was promoted takes no publishes yet.
    """
    is_whole = purge.subject in (None, EVERYTHING) and not purge.keep
    seq = min(purge.below_seq or 0, SEQ_MAX)
    if not is_whole or seq <= admission.next_seq:
        return purge
    if not may_propose:
        raise NotLeaderError("leadership is handed over")
    if admission.config.mirror is not None:
        return attrs.evolve(purge, below_seq=machine.next_seq)
    admission.skip_to(seq)
    return purge


def deletion_of(config: StreamConfig, seq: int, *, erase: bool) -> commands.Remove | None:
    """The command of a STREAM.MSG.DELETE; None for a sequence that no message can have. Raises ApiError."""
    if config.sealed:
        raise errors.STREAM_SEALED.with_values()
    if config.deny_delete:
        raise errors.STREAM_MSG_DELETE_FAILED.with_values(err="message delete not permitted")
    # Bounded before it is proposed: an entry that cannot be applied would stop every replica.
    return None if not 0 < seq < NO_SEQ else commands.Remove(seqs=commands.to_runs((seq,)), erase=erase)
