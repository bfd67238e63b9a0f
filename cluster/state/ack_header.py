"""The header of a message that was published with an ack: which delivery it acknowledges, in the same entry."""

from __future__ import annotations

from typing import Final

from jetraft.cluster.state.commands import Acked
from jetraft.cluster.state.headers import parse_seq
from jetraft.store.model import message
from jetraft.store.stream._runs import Runs

ACKED: Final = b"Jetraft-Acked"
SEQ_END: Final = 1 << 63


def with_ack(hdr: bytes, consumer: bytes, stream_seq: int, count: int) -> bytes:
    """A header block that says so; `count` is for who reads the message."""
    return message.append(message.strip(hdr, ACKED), ACKED, b"%s %d %d" % (consumer, stream_seq, count))


def acked_in(hdr: bytes) -> Acked | None:
    """The ack of a message with the flag for it, in its entry; None where the header says nothing."""
    name, _, rest = (message.get(hdr, ACKED) or b"").partition(b" ")
    seq = parse_seq(rest.partition(b" ")[0])
    return Acked(name.decode(errors="replace"), Runs((seq,))) if 0 < seq < SEQ_END else None
