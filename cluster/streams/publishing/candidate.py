"""One message under judgement, and what can be said of it by itself and the stream's configuration.

All that depends on the state that the message will meet is judged in `admit.py`, which also knows the order of all
checks. Each check here returns, or raises Refused with the catalogue's error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.capture._capture import capture_at
from jetraft.cluster.capture.reach import TRACE_NUMBERS, TRACED_ONLY, TRACED_ORIGIN
from jetraft.cluster.state.headers import nats_headers
from jetraft.cluster.state.ttl import parse_ttl
from jetraft.store.model import errors
from jetraft.store.model.encoding.gojson import quote

if TYPE_CHECKING:
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig

HDR_BYTES_MAX: Final = 65_535  # as nats-server: the header length of its store is 16 bits

FAST_SUFFIX: Final = b".$FI"  # of the reply subjects of fast batches; `_admission.pyx` looks for it too


@attrs.frozen(slots=True)
class Candidate:
    """One captured message."""

    end: int  # offset of the next capture record
    subject: bytes
    reply: bytes
    hdr: bytes
    payload_len: int
    headers: dict[bytes, bytes]  # those that start with Nats-
    batch: bytes = b""  # where it was captured, at `start`
    start: int = 0
    trace: int | None = None  # the number of its trace in this turn; the publisher hears of it from there
    is_trace_only: bool = False  # it is judged and not stored
    is_copy: bool = False  # of another stream's message
    has_ack: bool = False  # it acknowledges a delivery

    @classmethod
    def at(cls, batch: bytes, start: int, *, is_copy: bool = False, has_ack: bool = False) -> Candidate:
        """Read the captured message at an offset of a batch."""
        found = capture_at(batch, start)
        return cls(
            found.end,
            found.subject,
            found.reply,
            found.hdr,
            found.payload_len,
            nats_headers(found.hdr),
            batch,
            start,
            trace=found.origin & TRACE_NUMBERS if found.origin & TRACED_ORIGIN else None,
            is_trace_only=found.origin & TRACED_ORIGIN != 0 and found.origin & TRACED_ONLY != 0,
            is_copy=is_copy,
            has_ack=has_ack,
        )

    @property
    def payload(self) -> bytes:
        """A copy of the payload."""
        return capture_at(self.batch, self.start).payload

    @property
    def is_fast(self) -> bool:
        """Whether the reply subject is one of a fast batch."""
        return self.reply.endswith(FAST_SUFFIX)

    @property
    def is_of_batch(self) -> bool:
        """Whether it says that it is of a batch."""
        return self.is_fast or bool(self.headers.get(b"Nats-Batch-Id"))

    @property
    def msg_id(self) -> bytes:
        """The id for de-duplication, empty for none."""
        return self.headers.get(b"Nats-Msg-Id", b"")


class PublishRefused(Exception):  # noqa: N818  (a way out of nested checks, not an error)
    """The message does not get in; `error` is the answer."""

    def __init__(self, error: ApiError) -> None:
        self.error = error


def check_shape(message: Candidate, config: StreamConfig) -> None:
    """The stream takes messages, and of this size."""
    if config.sealed:
        raise PublishRefused(errors.STREAM_SEALED.with_values())
    check_size(len(message.hdr), message.payload_len, config)


def check_size(hdr_len: int, payload_len: int, config: StreamConfig) -> None:
    """A message is not too large, in bytes."""
    if hdr_len > HDR_BYTES_MAX:
        raise PublishRefused(errors.STREAM_HEADER_EXCEEDS_MAXIMUM.with_values())
    if 0 < config.max_msg_size < hdr_len + payload_len:
        raise PublishRefused(errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.with_values())


def check_supported(headers: dict[bytes, bytes], stream: bytes, config: StreamConfig) -> None:
    """Check that the wishes of the headers are served and allowed here, and that they mean this stream."""
    expected = headers.get(b"Nats-Expected-Stream")
    if expected and expected != stream:
        raise PublishRefused(errors.STREAM_NOT_MATCH.with_values())
    ttl = headers.get(b"Nats-TTL")
    if ttl and not config.allow_msg_ttl:
        raise PublishRefused(errors.MESSAGE_TTL_DISABLED.with_values())
    if ttl and parse_ttl(ttl) is None:
        raise PublishRefused(errors.MESSAGE_TTL_INVALID.with_values())


def check_unsupported_origin(headers: dict[bytes, bytes]) -> None:
    """It is not sourced."""
    if headers.get(b"Nats-Stream-Source"):
        raise PublishRefused(errors.MESSAGE_STREAM_SOURCE_HEADER_NOT_ALLOWED.with_values())


def rolls_up(message: Candidate, config: StreamConfig) -> bool:
    """True when the message takes the place of its subject's: it was checked whether it may."""
    return config.allow_rollup_hdrs and bool(message.headers.get(b"Nats-Rollup"))


def check_rollup(headers: dict[bytes, bytes], config: StreamConfig) -> None:
    """A rollup is allowed and makes sense."""
    rollup = headers.get(b"Nats-Rollup")
    if not rollup:
        return
    if not config.allow_rollup_hdrs or config.deny_purge:
        raise PublishRefused(errors.STREAM_ROLLUP_FAILED.with_values(err="rollup not permitted"))
    if rollup.lower() not in (b"sub", b"all"):
        value = quote(rollup.decode(errors="replace"))
        raise PublishRefused(errors.STREAM_ROLLUP_FAILED.with_values(err=f"rollup value invalid: {value}"))
