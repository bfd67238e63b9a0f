"""The header block of a dead letter: that of the message, and where it comes from. Pure.

Headers that begin with `Nats-` speak to the server that stores a message (an id, an expectation, a time to live), so
they stay behind; the id is kept under a name of its own. Lines of an earlier dead letter are replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model import message
from jetraft.store.model.gotime import format_time

if TYPE_CHECKING:
    from jetraft.cluster.ports import StoredLike
    from jetraft.store.stream.consumer_state import ConsumerState
    from jetraft.store.stream.dead_letter import DeadLetter

OURS: Final = b"Jetraft-Dead-Letter-"
OF_SERVERS: Final = b"Nats-"


def letter_hdr(stream: str, state: ConsumerState, seq: int, letter: DeadLetter, stored: StoredLike) -> bytes:
    """The header block of what is published; only replicated values are in it."""
    original = stored.hdr if message.valid_block(stored.hdr) else b""
    lines = {name for name, _ in message.items(original) if name.startswith((OURS, OF_SERVERS))}
    kept = message.strip(original, *lines)
    own = {
        b"Nats-Msg-Id": letter_id(stream, state, seq, letter),
        OURS + b"Subject": stored.subject,
        OURS + b"Stream": stream.encode(),
        OURS + b"Consumer": state.name.encode(),
        OURS + b"Sequence": b"%d" % seq,
        OURS + b"Time": format_time(stored.ts_ns).encode(),
        OURS + b"Deliveries": b"%d" % letter.deliveries,
        OURS + b"Cause": letter.cause.encode(),
    }
    if letter.reason:
        own[OURS + b"Reason"] = " ".join(letter.reason.split()).encode(errors="replace")
    if msg_id := message.get(original, message.MSG_ID):
        own[OURS + b"Msg-Id"] = msg_id
    added = b"".join(message.line(name, value) for name, value in own.items())
    if len(kept) + len(added) >= message.HEADER_BYTES_MAX:
        kept = b""  # no stream takes more than that; where the message is from is what counts
    return (kept.removesuffix(message.LINE_END) or message.VERSION_LINE + message.LINE_END) + added + message.LINE_END


def letter_id(stream: str, state: ConsumerState, seq: int, letter: DeadLetter) -> bytes:
    """The same for every publish of a letter, on any leader; another one for a namesake's, or a later giving up."""
    numbers = f"{state.created_ns}.{seq}.{letter.given_up_ns}"
    return f"jetraft.dead.{stream}.{state.name}.{numbers}".encode()
