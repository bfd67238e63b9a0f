"""Retention: limits, the size of a message, and expiry by age. Pure.

There are two kinds of removal. Limits on number and size follow from applied state: each replica enforces them while it
applies a message (`_index.pyx`). Age needs a clock, so the leader decides and proposes an entry "remove below sequence
n". Refusing a message (discard policy "new") is also the leader's decision.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import attrs

from jetraft.store.model.extensions import stream_extensions

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig

UNLIMITED = -1  # as on the wire


class SizeModel(enum.Enum):
    """The size of a message for `max_bytes` and stream info, as in nats-server (fileStoreMsgSize, memStoreMsgSize)."""

    FILE = (30, 4)  # 22 bytes of record header, 8 of checksum; 4 for the header length when there is one
    MEMORY = (16, 0)

    @property
    def overhead_bytes(self) -> int:
        """Bytes in addition to subject, header block and payload."""
        return self.value[0]

    @property
    def hdr_overhead_bytes(self) -> int:
        """Bytes that a header block adds to its own length."""
        return self.value[1]

    def message_bytes(self, subject_len: int, hdr_len: int, payload_len: int) -> int:
        """The size of a message in bytes; the lengths are in bytes too."""
        hdr_bytes = hdr_len + self.hdr_overhead_bytes if hdr_len else 0
        return self.overhead_bytes + subject_len + hdr_bytes + payload_len


@attrs.frozen(kw_only=True, slots=True)
class StoreLimits:
    """The limits that a store enforces by dropping the oldest messages. -1 means none."""

    max_msgs: int = UNLIMITED
    max_bytes: int = UNLIMITED
    max_msgs_per_subject: int = UNLIMITED
    max_bytes_per_subject: int = UNLIMITED  # the last message of a subject stays, whatever its size


def limits_of(config: StreamConfig) -> StoreLimits:
    """The store limits of a configuration. A chained stream drops nothing: its limits only refuse messages."""
    if stream_extensions(config).chain:
        return StoreLimits()
    return StoreLimits(
        max_msgs=config.max_msgs,
        max_bytes=config.max_bytes,
        max_msgs_per_subject=config.max_msgs_per_subject,
        max_bytes_per_subject=stream_extensions(config).max_bytes_per_subject or UNLIMITED,
    )


def age_cutoff_ts_ns(*, now_ts_ns: int, max_age_ns: int) -> int | None:
    """The timestamp below which messages are too old; None when age removes nothing."""
    return now_ts_ns - max_age_ns if max_age_ns > 0 else None


def age_deadline_ts_ns(*, oldest_ts_ns: int | None, max_age_ns: int) -> int | None:
    """The first timestamp at which the oldest message is too old; None when no message expires."""
    if oldest_ts_ns is None or max_age_ns <= 0:
        return None
    return oldest_ts_ns + max_age_ns + 1
