"""Schedules as messages: what is refused of one, and what it produces.

The checks and their order were observed on nats-server 2.15.1. Source: ADR-51.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, NoReturn

from jetraft.cluster.state.schedules import PURGE
from jetraft.cluster.state.ttl import parse_ttl
from jetraft.cluster.streams.publishing.candidate import PublishRefused
from jetraft.cluster.streams.schedules.cron import first_due_ns, zone_of
from jetraft.store.model import errors, message
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.extensions import WAITING
from jetraft.store.model.subject import valid_publish_subject

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.candidate import Candidate
    from jetraft.cluster.streams.schedules.cron import Occurrence
    from jetraft.store.model.api_error import ApiErrorSpec
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.stream.stream_store import StoredMessage

TARGET: Final = b"Nats-Schedule-Target"
SOURCE: Final = b"Nats-Schedule-Source"
TTL: Final = b"Nats-Schedule-TTL"
ROLLUP: Final = b"Nats-Schedule-Rollup"
TIME_ZONE: Final = b"Nats-Schedule-Time-Zone"
SCHEDULER: Final = b"Nats-Scheduler"
NEXT: Final = b"Nats-Schedule-Next"

_STRIPPED: Final = (message.SCHEDULE, SCHEDULER, message.MSG_ID, message.MSG_TTL, message.ROLLUP)
_STRIPPED_PREFIXES: Final = (b"Nats-Schedule-", b"Nats-Expected-")


def check_schedule(candidate: Candidate, config: StreamConfig, now_ns: int) -> None:
    """Raise PublishRefused for a schedule that cannot be, or that this stream does not keep."""
    headers = candidate.headers
    if not headers.get(message.SCHEDULE):
        return
    if not config.allow_msg_schedules:
        _refuse(errors.MESSAGE_SCHEDULES_DISABLED)
    if candidate.subject.startswith(WAITING):  # what it produces would count as a message that was judged already
        _refuse(errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    pattern, zone = headers[message.SCHEDULE].decode(errors="replace"), headers.get(TIME_ZONE)
    zone_name = None if zone is None else zone.decode(errors="replace")
    if zone_name is not None and zone_of(zone_name) is None:
        _refuse(errors.MESSAGE_SCHEDULES_TIME_ZONE_INVALID)
    if first_due_ns(pattern, zone_name, now_ns) is None:
        _refuse(errors.MESSAGE_SCHEDULES_PATTERN_INVALID)
    ttl = headers.get(TTL)
    if ttl and parse_ttl(ttl) is None:
        _refuse(errors.MESSAGE_SCHEDULES_TTL_INVALID)
    if headers.get(ROLLUP) and headers[ROLLUP] != message.ROLLUP_SUBJECT:
        _refuse(errors.MESSAGE_SCHEDULES_ROLLUP_INVALID)
    if ttl and not config.allow_msg_ttl:
        _refuse(errors.MESSAGE_TTL_DISABLED)
    _check_subjects(candidate, config)
    if headers.get(message.ROLLUP) and headers[message.ROLLUP].lower() != message.ROLLUP_SUBJECT:
        _refuse(errors.MESSAGE_SCHEDULES_ROLLUP_INVALID)


def _check_subjects(candidate: Candidate, config: StreamConfig) -> None:
    target, source = candidate.headers.get(TARGET, b""), candidate.headers.get(SOURCE)
    if not valid_publish_subject(target) or target == candidate.subject:
        _refuse(errors.MESSAGE_SCHEDULES_TARGET_INVALID)
    if source and (not valid_publish_subject(source) or source in (target, candidate.subject)):
        _refuse(errors.MESSAGE_SCHEDULES_SOURCE_INVALID)
    if not config.subject_tree.matches(target):
        _refuse(errors.MESSAGE_SCHEDULES_TARGET_INVALID)
    if source and not config.subject_tree.matches(source):
        _refuse(errors.MESSAGE_SCHEDULES_SOURCE_INVALID)


def check_scheduler(candidate: Candidate, config: StreamConfig) -> None:
    """Raise PublishRefused for a message that says it comes from a schedule, unless it ends one."""
    scheduler, following = candidate.headers.get(SCHEDULER), candidate.headers.get(NEXT)
    if not scheduler and not following:
        return
    is_own = scheduler == candidate.subject
    is_named = valid_publish_subject(scheduler or b"") and not (scheduler or b"").startswith(WAITING)
    if not scheduler or following != PURGE or is_own or not is_named:
        _refuse(errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    if not config.allow_msg_schedules:
        _refuse(errors.MESSAGE_SCHEDULES_DISABLED)


def schedule_hdr(hdr: bytes, headers: dict[bytes, bytes]) -> bytes:
    """The header block of a schedule as it is stored: it replaces what its subject has."""
    if headers.get(message.ROLLUP):
        return hdr
    return message.append(message.strip(hdr, message.ROLLUP), message.ROLLUP, message.ROLLUP_SUBJECT)


def produced_hdr(
    subject: bytes, headers: dict[bytes, bytes], content: StoredMessage, following: Occurrence | None
) -> bytes:
    """The header block of what a schedule of this subject and with these headers makes of a message."""
    names = [name for name, _ in message.items(content.hdr) if name in _STRIPPED or name.startswith(_STRIPPED_PREFIXES)]
    hdr = message.append(message.strip(content.hdr, *names), SCHEDULER, subject)
    hdr = message.append(hdr, NEXT, PURGE if following is None else _time_of(following))
    for name, wanted in ((message.MSG_TTL, headers.get(TTL)), (message.ROLLUP, headers.get(ROLLUP))):
        if wanted:
            hdr = message.append(hdr, name, wanted)
    return hdr


def _time_of(following: Occurrence) -> bytes:
    """RFC 3339 in the schedule's zone, with as many digits of the second as needed."""
    seconds, fraction = divmod(following.due_ns, NS_PER_S)
    moment = datetime.fromtimestamp(seconds, following.zone)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{fraction:09d}".rstrip("0") if fraction else "")
    offset = moment.strftime("%z") if moment.utcoffset() else ""
    return (text + (f"{offset[:3]}:{offset[3:5]}" if offset else "Z")).encode()


def _refuse(spec: ApiErrorSpec) -> NoReturn:
    raise PublishRefused(spec.with_values())
