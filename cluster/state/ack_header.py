"""What a message says that was published with an ack: which delivery it acknowledges, in the same entry."""

from __future__ import annotations

from typing import Final

from jetraft.cluster.state.commands import Acked
from jetraft.cluster.state.headers import parse_seq
from jetraft.store.model import message
from jetraft.store.stream._runs import Runs

ACKED: Final = b"Jetraft-Acked"


def with_ack(hdr: bytes, consumer: bytes, stream_seq: int, count: int) -> bytes:
    """A header block that says so; `count` is for who reads the message."""
    return message.append(message.strip(hdr, ACKED), ACKED, b"%s %d %d" % (consumer, stream_seq, count))


def acked_in(hdr: bytes) -> Acked:
    """What a message with the flag for it does, in the entry in which it is stored."""
    name, seq, _ = (message.get(hdr, ACKED) or b"").split(b" ")
    return Acked(name.decode(), Runs((parse_seq(seq),)))
