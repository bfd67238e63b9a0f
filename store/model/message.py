r"""The NATS header block on bytes: `NATS/1.0[ status[ description]]\r\n`, lines `Name: value\r\n`, an empty line.

Names are matched exactly and the first line of a name counts, as in nats-server (it reads headers the same way on the
publish path). Blocks come from clients and may be malformed: reading one never fails, but may find nothing. Building
one refuses line breaks, so that no value can add a line. Source: server/client.go (getHeader, removeHeaderIfPresent).
"""

from collections.abc import Iterator, Mapping
from typing import Final

VERSION_LINE: Final = b"NATS/1.0"
LINE_END: Final = b"\r\n"
HEADER_BYTES_MAX: Final = 1 << 16  # the largest block that nats-server stores, error 10097

MSG_ID: Final = b"Nats-Msg-Id"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ: Final = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQ_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID: Final = b"Nats-Expected-Last-Msg-Id"
ROLLUP: Final = b"Nats-Rollup"
ROLLUP_SUBJECT: Final = b"sub"
ROLLUP_ALL: Final = b"all"
MSG_TTL: Final = b"Nats-TTL"
MSG_INCR: Final = b"Nats-Incr"
BATCH_ID: Final = b"Nats-Batch-Id"
BATCH_SEQ: Final = b"Nats-Batch-Sequence"
BATCH_COMMIT: Final = b"Nats-Batch-Commit"
SCHEDULE: Final = b"Nats-Schedule"
STREAM_SOURCE: Final = b"Nats-Stream-Source"
REQUIRED_API_LEVEL: Final = b"Nats-Required-Api-Level"
MSG_SIZE: Final = b"Nats-Msg-Size"
LAST_CONSUMER: Final = b"Nats-Last-Consumer"
LAST_STREAM: Final = b"Nats-Last-Stream"
CONSUMER_STALLED: Final = b"Nats-Consumer-Stalled"
PENDING_MESSAGES: Final = b"Nats-Pending-Messages"
PENDING_BYTES: Final = b"Nats-Pending-Bytes"
STREAM: Final = b"Nats-Stream"
SUBJECT: Final = b"Nats-Subject"
SEQUENCE: Final = b"Nats-Sequence"
TIME_STAMP: Final = b"Nats-Time-Stamp"
LAST_SEQUENCE: Final = b"Nats-Last-Sequence"
NUM_PENDING: Final = b"Nats-Num-Pending"
UP_TO_SEQUENCE: Final = b"Nats-UpTo-Sequence"

_NAME_FORBIDDEN: Final = frozenset(range(0x21)) | frozenset(b":\x7f")


class BadHeaderError(ValueError):
    """A name or value is not valid in a header block."""


def valid_block(hdr: bytes) -> bool:
    r"""Whether the block starts with `NATS/1.0`, ends with an empty line and has only `Name: value` lines between."""
    if not hdr.startswith(VERSION_LINE) or not hdr.endswith(LINE_END + LINE_END):
        return False
    lines = hdr[: -2 * len(LINE_END)].split(LINE_END)
    if any(byte in line for line in lines for byte in b"\r\n"):
        return False
    status = lines[0][len(VERSION_LINE) :]
    return (not status or status.startswith(b" ")) and all(line.find(b":") > 0 for line in lines[1:])


def get(hdr: bytes, name: bytes) -> bytes | None:
    """The value of the first line with this name, without surrounding white space; None when there is none."""
    start = _find(hdr, name)
    if start < 0:
        return None
    value_start = start + len(name) + 1
    value_end = hdr.find(LINE_END, value_start)
    return None if value_end < 0 else hdr[value_start:value_end].strip(b" \t")


def items(hdr: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The lines of a block as (name, value), in order; lines without a colon are skipped."""
    for line in hdr.split(LINE_END)[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            yield name, value.strip(b" \t")


def strip(hdr: bytes, *names: bytes) -> bytes:
    """The block without every line of these names; empty when no line is left."""
    if not hdr:
        return b""
    lines = hdr.removesuffix(LINE_END).split(LINE_END)
    kept = [line for line in lines[1:-1] if line.partition(b":")[0] not in names]
    if not kept:
        return b""
    return LINE_END.join([lines[0], *kept]) + LINE_END + LINE_END


def append(hdr: bytes, name: bytes, value: bytes) -> bytes:
    """The block with a line appended; starts a block if it is empty. Raises BadHeaderError, see `line`."""
    begun = hdr.removesuffix(LINE_END) if hdr else VERSION_LINE + LINE_END
    return begun + line(name, value) + LINE_END


def replace(hdr: bytes, name: bytes, value: bytes) -> bytes:
    """The block with another value in the first line of this name, or with a line appended. Raises as `append`."""
    start = _find(hdr, name)
    end = hdr.find(LINE_END, start) if start >= 0 else -1
    if end < 0:
        return append(hdr, name, value)
    return hdr[:start] + line(name, value) + hdr[end + len(LINE_END) :]


def build(fields: Mapping[bytes, bytes]) -> bytes:
    """A block of these lines, empty when there are none. Raises BadHeaderError, see `line`."""
    if not fields:
        return b""
    return VERSION_LINE + LINE_END + b"".join(line(name, value) for name, value in fields.items()) + LINE_END


def status(code: int, description: bytes = b"", fields: Mapping[bytes, bytes] | None = None) -> bytes:
    r"""A status block such as `NATS/1.0 404 No Messages\r\n\r\n`, with lines if given."""
    if b"\r" in description or b"\n" in description:
        raise BadHeaderError("a status description has no line breaks")
    head = VERSION_LINE + b" %d" % code + (b" " + description if description else b"") + LINE_END
    return head + b"".join(line(name, value) for name, value in (fields or {}).items()) + LINE_END


def line(name: bytes, value: bytes) -> bytes:
    """A `Name: value` line. Raises BadHeaderError for a name or value that would be read back differently."""
    if not name or not _NAME_FORBIDDEN.isdisjoint(name):
        raise BadHeaderError(f"header name {name!r}")
    if b"\r" in value or b"\n" in value:
        raise BadHeaderError(f"header {name!r}: a value has no line breaks")
    return name + b": " + value + LINE_END


def _find(hdr: bytes, name: bytes) -> int:
    """The position of the first line with this name, -1 when there is none."""
    needle = LINE_END + name + b":"
    found = hdr.find(needle)
    return -1 if found < 0 else found + len(LINE_END)
