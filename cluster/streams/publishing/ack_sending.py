"""Sends the acks of publishes: as JSON, or as the tech preview of 2020 had them where the stream asks for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.store.model.extensions import stream_extensions

if TYPE_CHECKING:
    from jetraft.cluster.ports import Outbox
    from jetraft.store.model.config import StreamConfig


class AckSending:
    """The way out for the acks of one stream's leader."""

    def __init__(self, outbox: Outbox, config: StreamConfig) -> None:
        self._outbox = outbox
        self.follow(config)

    def follow(self, config: StreamConfig) -> None:
        """Send as this configuration asks for from now on."""
        self._is_legacy = stream_extensions(config).legacy_ack

    def send(self, acks: bytes) -> None:
        """Send acks, which are capture records of JSON."""
        self._outbox.send_batch(legacy_acks(acks) if self._is_legacy else acks)


def legacy_acks(acks: bytes) -> bytes:
    """The same acks as `+OK`, or `-ERR` and why; one that is empty stays so."""
    return b"".join(encode_capture(ack.subject, payload=_legacy_ack(ack.payload)) for ack in captures(acks))


def _legacy_ack(payload: bytes) -> bytes:
    if not payload.startswith(b'{"error":'):
        return b"+OK" if payload else b""
    description: str = orjson.loads(payload)["error"]["description"]
    return b"-ERR '%s'" % description.encode()
