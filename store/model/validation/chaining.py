"""Which configurations a chained stream may have: nothing may remove a message of it. Pure.

`jetraft.chain` promises that a head speaks for every message from the first one on. Whatever removes messages from a
stream, be it from the middle or from the front, is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model.config import DiscardPolicy, PersistMode, RetentionPolicy, StorageType

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig


def why_not_chained(config: StreamConfig, *, delays: bool, bytes_per_subject: int) -> str:
    """The objection to a chain in the rest of a normalised configuration; empty for none."""
    drops_old = config.discard is not DiscardPolicy.NEW and (config.max_msgs > 0 or config.max_bytes > 0)
    limits_subjects = config.max_msgs_per_subject > 0 or bytes_per_subject > 0
    reasons = (
        (config.storage is not StorageType.FILE, "is for streams on disk"),
        (config.persist_mode is PersistMode.ASYNC, "is not for persist mode async"),
        (config.retention is not RetentionPolicy.LIMITS, "needs retention limits: acks would remove messages"),
        (not (config.deny_delete and config.deny_purge), "needs deny_delete and deny_purge"),
        (config.max_age > 0, "is not for streams with a max age, which removes messages"),
        (drops_old, "needs discard new where max_msgs or max_bytes is set"),
        (
            limits_subjects and not config.discard_new_per_subject,
            "needs discard_new_per_subject where a limit of subjects is set",
        ),
        (config.allow_msg_ttl, "is not for streams with message TTLs"),
        (config.allow_msg_schedules or delays, "is not for streams with schedules or delayed messages"),
    )
    return next((text for applies, text in reasons if applies), "")
