"""Streams of counters: a message says what is added to its subject, and is stored with the sum.

The leader adds when it admits a message, to what the last message of the subject says: one in flight, else the applied
one. So the sum is in the log like any payload, and replicas do not calculate. Values are decimal numbers of any length;
`decimal` reads, adds and writes them in time that grows with their length, which `int` does not (and it refuses more
than 4,300 digits). `Nats-Counter-Sources` is kept from message to message. Source: ADR-49; the order of checks was
observed on 2.15.1.

A copy of an origin's counter adds what that counter has grown by since the last copy: its sum less the one that
`Nats-Counter-Sources` has for the origin and its subject. So an origin that begins again, or whose start is left out,
counts as what it says. A copy that says no sum is not wanted.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_DOWN, Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import orjson

from jetraft.cluster.capture._capture import capture_at
from jetraft.cluster.state.source_header import origin_in
from jetraft.cluster.streams.publishing.candidate import PublishRefused
from jetraft.store.model import errors, message
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.candidate import Candidate
    from jetraft.cluster.streams.publishing.publish import Publish
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.stream.stream_store import StoredMessage

COUNTER_SOURCES: Final = b"Nats-Counter-Sources"

_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")
_ZERO: Final = Decimal(0)
_EXACT: Final = Context(
    prec=MAX_PREC,  # nothing is rounded, or it is an error
    rounding=ROUND_DOWN,
    Emin=MIN_EMIN,
    Emax=MAX_EMAX,
    traps=[Inexact, InvalidOperation, Overflow],
)
# What says that a message is expected somewhere makes no sense for a sum.
_INCOMPATIBLE: Final = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
)


class LastMessages(Protocol):
    """A stream's applied state as counters read it."""

    def last_for(self, pattern: bytes) -> int:
        """The last live sequence whose subject matches, 0 for none."""

    def load(self, seq: int) -> StoredMessage | None:
        """A live message."""


@attrs.frozen(slots=True)
class Sum:
    """The value of a counter with one message, and how that message is stored."""

    value: bytes
    hdr: bytes

    @property
    def payload(self) -> bytes:
        """The body of the message."""
        return b'{"val":"%s"}' % self.value


def check_increment(candidate: Candidate, config: StreamConfig) -> None:
    """Raise PublishRefused for an increment that cannot be, wherever it is sent."""
    text = _increment(candidate)
    if not text:
        return
    if not _NUMBER.fullmatch(text):
        raise PublishRefused(errors.MESSAGE_INCR_INVALID.with_values())
    if not config.allow_msg_counter:
        raise PublishRefused(errors.MESSAGE_INCR_DISABLED.with_values())
    if candidate.payload_len:
        raise PublishRefused(errors.MESSAGE_INCR_PAYLOAD.with_values())
    if any(candidate.headers.get(name) for name in _INCOMPATIBLE):
        raise PublishRefused(errors.MESSAGE_INCR_INVALID.with_values())


class Counters:
    """The sums of one stream during one term of leadership, those in flight among them."""

    def __init__(self, applied: LastMessages) -> None:
        self._applied = applied
        self._in_flight: dict[bytes, tuple[Sum, Publish]] = {}  # by subject, the last one
        self._replaced: list[tuple[bytes, tuple[Sum, Publish] | None]] | None = (
            None  # by a publish that may be taken back
        )

    def sum_with(self, candidate: Candidate, batch: bytes, start: int) -> Sum:
        """The value of the counter with this message, which is at this offset. Raises PublishRefused."""
        if candidate.is_copy:
            return self._sum_with_copy(candidate, capture_at(batch, start).payload)
        text = _increment(candidate)
        if not text:
            raise PublishRefused(errors.MESSAGE_INCR_MISSING.with_values())
        before = self._before(candidate.subject)
        added = _EXACT.add(_number(before.value), _number(text))
        return Sum(_text(added), _with_sources_of(before.hdr, candidate.hdr))

    def _sum_with_copy(self, candidate: Candidate, payload: bytes) -> Sum:
        found = origin_in(candidate.hdr)
        if not _increment(candidate) or found is None:
            raise PublishRefused(errors.MESSAGE_INCR_MISSING.with_values())
        (origin, subject), told = found, _number(_value_of(payload))
        before = self._before(candidate.subject)
        sources = _sources_in(before.hdr)
        of_origin = sources.get(origin, {})
        known = of_origin.get(subject, "0") if isinstance(of_origin, dict) else None
        if not isinstance(known, str) or not _NUMBER.fullmatch(known.encode()):
            raise PublishRefused(errors.MESSAGE_COUNTER_BROKEN.with_values())
        grown = _EXACT.subtract(told, _number(known.encode()))
        sources[origin] = {**of_origin, subject: _text(told).decode()}
        hdr = message.replace(candidate.hdr, message.MSG_INCR, _text(grown))
        hdr = message.replace(hdr, COUNTER_SOURCES, orjson.dumps(sources, option=orjson.OPT_SORT_KEYS))
        return Sum(_text(_EXACT.add(_number(before.value), grown)), hdr)

    def note(self, subject: bytes, total: Sum, publish: Publish) -> None:
        """A message with this sum is in flight."""
        if self._replaced is not None:
            self._replaced.append((subject, self._in_flight.get(subject)))
        self._in_flight[subject] = total, publish

    def begin_alone(self) -> None:
        """All that is noted from now on may be taken back: a batch is judged."""
        self._replaced = []

    def end_alone(self) -> None:
        """The batch has passed."""
        self._replaced = None

    def take_back(self) -> None:
        """The batch has not passed: counters come to what they came to before it."""
        for subject, before in reversed(self._replaced or []):
            if before is None:
                del self._in_flight[subject]
            else:
                self._in_flight[subject] = before
        self._replaced = None

    def settled(self, publish: Publish) -> None:
        """A publish is applied: the applied state speaks for it now."""
        for subject in publish.records.subjects():
            found = self._in_flight.get(subject)
            if found is not None and found[1] is publish:
                del self._in_flight[subject]

    def _before(self, subject: bytes) -> Sum:
        in_flight = self._in_flight.get(subject)
        return in_flight[0] if in_flight is not None else self._applied_sum(subject)

    def _applied_sum(self, subject: bytes) -> Sum:
        seq = self._applied.last_for(subject)
        try:
            last = self._applied.load(seq) if seq else None
        except StoreCorrupt:
            raise PublishRefused(errors.MESSAGE_COUNTER_BROKEN.with_values()) from None
        if last is None:
            return Sum(b"0", b"")
        return Sum(_value_of(last.payload), last.hdr)


def _increment(candidate: Candidate) -> bytes:
    """The increment as it stands, empty without one: nats-server leaves white space at its end, and refuses it."""
    if not candidate.headers.get(message.MSG_INCR):
        return b""
    behind = candidate.hdr.partition(b"\r\n" + message.MSG_INCR + b":")[2]
    return behind.partition(message.LINE_END)[0].lstrip(b" ")


def _value_of(payload: bytes) -> bytes:
    """The number that a stored message says. Raises PublishRefused."""
    value = _object(payload).get("val")
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.encode()):
        raise PublishRefused(errors.MESSAGE_COUNTER_BROKEN.with_values())
    return value.encode()


def _with_sources_of(before: bytes, hdr: bytes) -> bytes:
    """A header block with what the one before says of sources, if that is anything. Raises PublishRefused."""
    sources = _sources_in(before)
    if not sources:
        return hdr
    return message.append(message.strip(hdr, COUNTER_SOURCES), COUNTER_SOURCES, orjson.dumps(sources))


def _sources_in(hdr: bytes) -> dict[str, Any]:
    """The sources in a header block: sums by origin and subject. Raises PublishRefused."""
    text = message.get(hdr, COUNTER_SOURCES)
    return _object(text) if text else {}


def _number(text: bytes) -> Decimal:
    return _EXACT.create_decimal(text.decode())


def _text(number: Decimal) -> bytes:
    return format(number or _ZERO, "f").encode()


def _object(text: bytes) -> dict[str, Any]:
    """A JSON object. Raises PublishRefused."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise PublishRefused(errors.MESSAGE_COUNTER_BROKEN.with_values())
    return found
