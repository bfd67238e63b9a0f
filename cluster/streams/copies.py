"""Judging copies of origins' messages (cluster/origins), which go among what clients publish.

What a publisher expected was of the origin. Rollups and TTLs that the stream does not allow are just headers here. What
the stream does not want (a repetition by its id, a message that is too large) is passed over; only a full stream
stops the copies. Source: stream.go (processInboundSourceMsg), observed on 2.15.1.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.state.ttl import parse_ttl
from jetraft.cluster.streams.candidate import Candidate, PublishRefused, check_shape

if TYPE_CHECKING:
    from jetraft.cluster.streams.admit import PublishAdmission
    from jetraft.cluster.streams.publish import Publish, Turn
    from jetraft.store.model.api_error import ApiError

ROLLUPS: Final = (b"sub", b"all")


def take_copies(admission: PublishAdmission, turn: Turn, batch: bytes) -> tuple[int, ApiError | None]:
    """Judge a batch of copies in order; returns `left` and `full` of AdmittedCopies."""
    position, left = 0, 0
    while position < len(batch):
        publish, copy = admission.open(turn), Candidate.at(batch, position, is_copy=True)
        try:
            is_new = _is_new(admission, publish, copy)
        except PublishRefused as refused:
            return sum(1 for _ in captures(batch[position:])), refused.error
        if is_new:
            with suppress(PublishRefused):  # a stream of counters wants counters
                admission.add(publish, copy, batch, position, acked=False)
                left = -1
        left += 1
        position = copy.end
    return left, None


def _is_new(admission: PublishAdmission, publish: Publish, copy: Candidate) -> bool:
    """Whether the stream wants it. Raises PublishRefused when there is no room."""
    config, headers = admission.config, copy.headers
    try:
        check_shape(copy, config)
    except PublishRefused:
        return False
    if admission.duplicate_of(copy) is not None:
        return False
    admission.check_room(publish, copy)
    may_roll_up = config.allow_rollup_hdrs and not config.deny_purge
    if not may_roll_up or headers.get(b"Nats-Rollup", b"").lower() not in ROLLUPS:
        headers.pop(b"Nats-Rollup", None)
    if not config.allow_msg_ttl or parse_ttl(headers.get(b"Nats-TTL", b"")) is None:
        headers.pop(b"Nats-TTL", None)
    return True
