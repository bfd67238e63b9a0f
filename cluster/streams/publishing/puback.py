"""The JSON of publish acknowledgements, byte for byte as nats-server 2.15 writes it (the odd space included)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from jetraft.store.model.encoding.gojson import quote

if TYPE_CHECKING:
    from jetraft.store.model.api_error import ApiError

STREAMS_CACHED: Final = 1024


@lru_cache(maxsize=STREAMS_CACHED)
def puback_prefix(stream: bytes, domain: str = "") -> bytes:
    """A positive ack up to the sequence; the sequence and a closing brace complete it."""
    within = f',"domain":{quote(domain)}' if domain else ""
    return f'{{"stream":{quote(stream.decode())}{within},"seq":'.encode()


def duplicate_ack(stream: bytes, seq: int, domain: str = "") -> bytes:
    """The ack of a message that the stream already has at `seq`."""
    return b'%s%d,"duplicate": true}' % (puback_prefix(stream, domain), seq)


def counter_ack(stream: bytes, seq: int, value: bytes, domain: str = "") -> bytes:
    """The ack of a message of a counter, which comes to `value` with it."""
    return b'%s%d,"val":"%s"}' % (puback_prefix(stream, domain), seq, value)


def batch_ack(stream: bytes, seq: int, batch_id: bytes, count: int, domain: str = "") -> bytes:
    """The ack of a batch of `count` messages, of which the last is at `seq`."""
    quoted = quote(batch_id.decode(errors="replace")).encode()
    return b'%s%d,"batch":%s,"count":%d}' % (puback_prefix(stream, domain), seq, quoted, count)


def error_ack(stream: bytes, error: ApiError) -> bytes:
    """The refusal of a message."""
    description = quote(error.description).encode()
    head = b'{"error":{"code":%d,"err_code":%d,"description":%s}' % (error.code, error.err_code, description)
    return b'%s,"stream":%s,"seq":0}' % (head, quote(stream.decode()).encode())
