"""Judging copies of origins' messages (cluster/origins), which go among what clients publish.

A publisher's expectations were of the origin. Rollups and TTLs that the stream does not allow are just headers here.
What the stream does not want (a repetition by its id, a message that is too large) is passed over; only a full stream
stops the copies. Source: stream.go (processInboundSourceMsg), observed on 2.15.1.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.state.ttl import parse_ttl
from jetraft.cluster.streams.admission._copies import take_copies
from jetraft.cluster.streams.publishing.candidate import Candidate, PublishRefused, check_shape
from jetraft.cluster.streams.publishing.publish import AdmittedCopies

if TYPE_CHECKING:
    from jetraft.cluster.origins._plain import SourceRun
    from jetraft.cluster.streams.admission.admit import PublishAdmission
    from jetraft.cluster.streams.publishing.publish import Admitted, Publish, Turn
    from jetraft.store.model.api_error import ApiError

ROLLUPS: Final = (b"sub", b"all")


def admit_copies(admission: PublishAdmission, batch: bytes, now_unix_ns: int) -> AdmittedCopies:
    """Judge copies of origins' messages, whose headers say so; to be proposed in this turn."""
    turn = admission.begin(now_unix_ns)
    left, full = _take(admission, turn, batch)
    admission.close(turn)
    return AdmittedCopies(admitted=turn.admitted, left=left, full=full)


def admit_plain_copies(
    admission: PublishAdmission, batch: bytes, start: int, run: SourceRun, now_unix_ns: int
) -> tuple[Admitted, int]:
    """Take deliveries from an offset on as copies; also returns the offset of the first one that has to be judged."""
    turn, end = admission.begin(now_unix_ns), start
    while end < len(batch):
        publish, rooms, begun = admission.open(turn), admission.plain_rooms(), end
        if rooms is not None:
            end = take_copies(publish.records, batch, end, run, *rooms)
        if end == begun:
            break
        admission.last_msg_id = b""
    admission.close(turn)
    return turn.admitted, end


def _take(admission: PublishAdmission, turn: Turn, batch: bytes) -> tuple[int, ApiError | None]:
    """`left` and `full` of AdmittedCopies."""
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
