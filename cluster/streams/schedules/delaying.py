"""Messages that say when they are due (`jetraft.delayed`): what the stream stores in their place until then. Pure.

A message that is not due is stored as a schedule (decision 82) of one time, whose subject no other message has and no
consumer is given: `$JETRAFT.DELAYED.<sequence>.<subject>`. When it is due the schedule produces the message, and its
entry removes what has waited: so it is one or the other at any point of the log. A message that was admitted is not
judged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from jetraft.cluster.capture._capture import capture_at, encode_capture
from jetraft.cluster.streams.publishing.candidate import HDR_BYTES_MAX, Candidate, PublishRefused
from jetraft.cluster.streams.schedules.scheduling import NEXT, ROLLUP, SCHEDULER, TARGET, TTL
from jetraft.store.model import errors, message
from jetraft.store.model.api_error import ApiError
from jetraft.store.model.extensions import WAITING, stream_extensions
from jetraft.store.model.gotime import TIME_NS_END, format_duration, format_time, parse_duration, parse_time

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig

Captured: TypeAlias = tuple[Candidate, bytes, int]  # with the batch and the offset where it is

DELAY: Final = b"Jetraft-Delay"  # a duration, or nanoseconds
DELIVER_AT: Final = b"Jetraft-Deliver-At"  # RFC 3339
MSG_ID: Final = b"Jetraft-Delayed-Msg-Id"  # what was the Nats-Msg-Id
MARK: Final = b"\nJetraft-Del"  # in each header block that may ask to wait
PRODUCED_HDR_BYTES: Final = 128  # that the header block grows by when the message is due, without subjects


def asks_to_wait(hdr: bytes) -> bool:
    """Whether a header block says when its message is due."""
    return MARK in hdr and bool(message.get(hdr, DELAY) or message.get(hdr, DELIVER_AT))


def is_due_now(headers: dict[bytes, bytes]) -> bool:
    """Whether a message comes in the place of one that has waited; publishers may not say so."""
    return headers.get(SCHEDULER, b"").startswith(WAITING)


def check_due(config: StreamConfig) -> None:
    """Raise PublishRefused when not even a message that has waited may be stored."""
    if config.sealed:
        raise PublishRefused(errors.STREAM_SEALED.with_values())


def check_not_in_batch(hdr: bytes, config: StreamConfig) -> None:
    """Raise PublishRefused for a message of a batch that asks to wait."""
    if MARK in hdr and asks_to_wait(hdr) and stream_extensions(config).delayed:
        name = DELAY if message.get(hdr, DELAY) else DELIVER_AT
        raise PublishRefused(errors.ATOMIC_PUBLISH_UNSUPPORTED_HEADER.with_values(header=name.decode()))


def waiting_form(found: Captured, *, seq: int, now_ns: int, config: StreamConfig) -> Captured:
    """The stored form of a message that asks to wait and gets this sequence: itself when it is due already.

    Raises PublishRefused.
    """
    candidate, batch, start = found
    due_ns = _due_ns(candidate.hdr, now_ns)
    if candidate.headers.get(message.SCHEDULE):
        _refuse("a schedule can not wait itself")
    if due_ns <= now_ns:
        return found
    if 0 < config.max_age <= due_ns - now_ns:
        wait, age = format_duration(due_ns - now_ns), format_duration(config.max_age)
        _refuse(f"a wait of {wait} is longer than the stream keeps messages, {age}")
    subject = b"%s%d.%s" % (WAITING, seq, candidate.subject)
    hdr = _waiting_hdr(candidate, due_ns)
    if len(hdr) + len(subject) + PRODUCED_HDR_BYTES > HDR_BYTES_MAX:
        raise PublishRefused(errors.STREAM_HEADER_EXCEEDS_MAXIMUM.with_values())
    record = encode_capture(subject, candidate.reply, hdr, capture_at(batch, start).payload)
    return Candidate.at(record, 0), record, 0


def _due_ns(hdr: bytes, now_ns: int) -> int:
    delay, moment = message.get(hdr, DELAY), message.get(hdr, DELIVER_AT)
    if delay and moment:
        _refuse(f"{DELAY.decode()} and {DELIVER_AT.decode()} can not be both")
    if delay:
        text = delay.decode(errors="replace")
        wait_ns = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else parse_duration(text)  # noqa: PLR2004
        if wait_ns is None or wait_ns < 0:
            _refuse(f"{DELAY.decode()} is a duration or a number of nanoseconds, not {text[:40]!r}")
        due_ns: int | None = now_ns + wait_ns
    else:
        text = (moment or b"").decode(errors="replace")
        due_ns = parse_time(text)
        if due_ns is None:
            _refuse(f"{DELIVER_AT.decode()} is a time of RFC 3339, not {text[:40]!r}")
    assert due_ns is not None
    if due_ns >= TIME_NS_END:
        _refuse("a message can not wait beyond the year 9999")
    return due_ns


def _waiting_hdr(candidate: Candidate, due_ns: int) -> bytes:
    """The header block of the schedule; what it says of the message itself takes effect when it is due."""
    headers = candidate.headers
    ours = [name for name in headers if name.startswith(message.SCHEDULE) or name == SCHEDULER]
    hdr = message.strip(candidate.hdr, DELAY, DELIVER_AT, MSG_ID, message.MSG_TTL, message.ROLLUP, NEXT, *ours)
    moment = format_time(due_ns).encode()
    hdr = message.append(hdr, DELIVER_AT, moment)
    hdr = message.append(hdr, message.SCHEDULE, b"@at " + moment)
    hdr = message.append(hdr, TARGET, candidate.subject)
    for name, value in (
        (TTL, headers.get(message.MSG_TTL)),
        (ROLLUP, headers.get(message.ROLLUP)),
        (MSG_ID, candidate.msg_id),
    ):
        if value:
            hdr = message.append(hdr, name, value)
    return hdr


def _refuse(reason: str) -> NoReturn:
    code = errors.MESSAGE_SCHEDULES_PATTERN_INVALID.with_values()
    raise PublishRefused(ApiError(code=code.code, err_code=code.err_code, description=reason))
