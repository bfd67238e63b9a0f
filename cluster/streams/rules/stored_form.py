"""The form in which a stream stores a message that was admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.state.ttl import NEVER_NS, lengthened, parse_ttl
from jetraft.cluster.streams.schedules.scheduling import SCHEDULER, schedule_hdr
from jetraft.store.frames.format import (
    RECORD_HAS_ACK,
    RECORD_HAS_MSG_ID,
    RECORD_HAS_ROLLUP,
    RECORD_HAS_SCHEDULE,
    RECORD_HAS_TTL,
    RECORD_IS_SOURCED,
)
from jetraft.store.model.extensions import WAITING
from jetraft.store.model.message import SCHEDULE

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.candidate import Candidate
    from jetraft.store.model.config import StreamConfig


def as_stored(message: Candidate, config: StreamConfig) -> tuple[bytes, int]:
    """The header block that the stream stores, and the flags of the record."""
    hdr, headers = message.hdr, message.headers
    flags = RECORD_IS_SOURCED if message.is_copy else 0
    flags |= RECORD_HAS_ACK if message.has_ack else 0
    flags |= RECORD_HAS_MSG_ID if message.msg_id else 0
    if message.subject.startswith(WAITING):  # it is told by its subject: no publisher can have chosen it
        return hdr, flags | RECORD_HAS_SCHEDULE
    flags |= RECORD_HAS_ROLLUP if headers.get(b"Nats-Rollup") else 0
    flags |= RECORD_HAS_TTL if headers.get(b"Nats-TTL") else 0
    if flags & RECORD_HAS_TTL and config.subject_delete_marker_ttl:
        hdr = lengthened(hdr, parse_ttl(headers[b"Nats-TTL"]) or NEVER_NS, config)
    if config.allow_msg_schedules or headers.get(SCHEDULER, b"").startswith(WAITING):
        is_schedule, is_produced = bool(headers.get(SCHEDULE)), bool(headers.get(SCHEDULER))
        hdr = schedule_hdr(hdr, headers) if is_schedule else hdr
        flags |= RECORD_HAS_ROLLUP if is_schedule else 0
        flags |= RECORD_HAS_SCHEDULE if is_schedule or is_produced else 0
    return hdr, flags
