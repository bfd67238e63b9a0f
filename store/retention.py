"""What a stream keeps: its limits, what a message counts, and when age removes one. Pure.

Two kinds of removal must not be mixed up. Limits on number and size are a consequence of applied state: every replica
enforces them by itself while it applies a message (`_index.pyx`). Age needs a clock, so the leader decides and writes
"remove below sequence n" into the log. Refusing a message instead (discard policy "new") is the leader's decision too.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig

UNLIMITED = -1  # as on the wire


class SizeModel(enum.Enum):
    """What a message counts for `max_bytes` and stream info, as in nats-server (fileStoreMsgSize, memStoreMsgSize)."""

    FILE = (30, 4)  # 22 bytes of record header, 8 of checksum; 4 for the header length when there is one
    MEMORY = (16, 0)

    @property
    def overhead_bytes(self) -> int:
        """Bytes beside subject, header block and payload."""
        return self.value[0]

    @property
    def hdr_overhead_bytes(self) -> int:
        """Bytes that a header block adds beside its own length."""
        return self.value[1]

    def message_bytes(self, subject_len: int, hdr_len: int, payload_len: int) -> int:
        """What one message counts, in bytes; the lengths are bytes too."""
        hdr_bytes = hdr_len + self.hdr_overhead_bytes if hdr_len else 0
        return self.overhead_bytes + subject_len + hdr_bytes + payload_len


@attrs.frozen(kw_only=True, slots=True)
class StoreLimits:
    """What a store enforces by itself, by dropping the oldest. -1 means none."""

    max_msgs: int = UNLIMITED
    max_bytes: int = UNLIMITED
    max_msgs_per_subject: int = UNLIMITED


def limits_of(config: StreamConfig) -> StoreLimits:
    """The limits of a configuration on what its store holds."""
    return StoreLimits(
        max_msgs=config.max_msgs,
        max_bytes=config.max_bytes,
        max_msgs_per_subject=config.max_msgs_per_subject,
    )


def age_cutoff_ts_ns(*, now_ts_ns: int, max_age_ns: int) -> int | None:
    """The timestamp below which messages are too old; None when age removes nothing."""
    return now_ts_ns - max_age_ns if max_age_ns > 0 else None


def age_deadline_ts_ns(*, oldest_ts_ns: int | None, max_age_ns: int) -> int | None:
    """When the oldest message will be too old (timestamp, first instant); None when there is nothing to wait for."""
    if oldest_ts_ns is None or max_age_ns <= 0:
        return None
    return oldest_ts_ns + max_age_ns + 1
