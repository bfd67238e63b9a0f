"""The header `Nats-Stream-Source`: which message of which origin a stored message is a copy of. Pure.

    Nats-Stream-Source: <origin> <sequence> <filters> <destinations> <subject> <identity>

`origin`, filters and destinations make up the key of a source: the name of the stream (with a hash of the prefix where
it is external, and of the durable consumer where one is named), the subjects that are asked for and what they become,
`>` for all and for no change. The identity tells
an origin from a later stream of the same name; it is missing where the origin's server says none.
Source: nats-server 2.15 stream.go (genSourceHeader, composeIName, streamAndSeq), observed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.state.headers import parse_seq
from jetraft.store.model import message

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamSource

ALL: Final = b">"
SEPARATOR: Final = b"\f"  # between several filters, or destinations
PARTS_MIN: Final = 4  # without the origin's subject, as servers before 2.11 wrote it
SUBJECT_AT: Final = 4
IDENTITY_AT: Final = 5
HASH_CHARS: Final = 8
_DIGITS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@attrs.frozen(slots=True)
class SourcePosition:
    """The last sequence of an origin that the stream has or has passed over, and which origin that was."""

    seq: int
    identity: bytes = b""


def key_of(source: StreamSource) -> bytes:
    """The key of this source's positions; another filter or transform is another source."""
    return b"%s %s %s" % _key_parts(source)


def header_value(source: StreamSource, seq: int, subject: bytes, identity: bytes) -> bytes:
    """The value for a copy of the origin's message of this sequence, which has this subject there."""
    before, between, after = header_parts(source, identity)
    return b"%s%d%s%s%s" % (before, seq, between, subject, after)


def header_parts(source: StreamSource, identity: bytes) -> tuple[bytes, bytes, bytes]:
    """The same without the sequence and the subject: what stands before, between and behind them."""
    name, filters, destinations = _key_parts(source)
    return name + b" ", b" %s %s " % (filters, destinations), b" " + identity if identity else b""


def position_in(hdr: bytes) -> tuple[bytes, SourcePosition] | None:
    """The key and position that a stored message's headers tell; None when they tell none."""
    value = message.get(hdr, message.STREAM_SOURCE)
    parts = value.split(b" ") if value else []
    seq = parse_seq(parts[1]) if len(parts) >= PARTS_MIN else -1
    if seq < 0:
        return None
    identity = parts[IDENTITY_AT] if len(parts) > IDENTITY_AT else b""
    return b"%s %s %s" % (parts[0], parts[2], parts[3]), SourcePosition(seq, identity)


def origin_in(hdr: bytes) -> tuple[str, str] | None:
    """The origin that a stored message's headers tell, and the message's subject there; None when they tell neither."""
    parts = (message.get(hdr, message.STREAM_SOURCE) or b"").split(b" ")
    if len(parts) <= SUBJECT_AT:
        return None
    return parts[0].decode(errors="replace"), parts[SUBJECT_AT].decode(errors="replace")


def _key_parts(source: StreamSource) -> tuple[bytes, bytes, bytes]:
    name = source.name.encode()
    if source.external is not None:
        name += b":" + short_hash(source.external.api.encode())
    if source.consumer is not None:
        name += b":C=" + short_hash(source.consumer.name.encode())
    if source.subject_transforms:
        filters = SEPARATOR.join(transform.src.encode() for transform in source.subject_transforms)
        return name, filters, SEPARATOR.join(transform.dest.encode() for transform in source.subject_transforms)
    return name, source.filter_subject.encode() or ALL, ALL


def short_hash(text: bytes) -> bytes:
    """Eight letters and digits, as in nats-server."""
    return bytes(_DIGITS[byte % len(_DIGITS)] for byte in sha256(text).digest()[:HASH_CHARS])
