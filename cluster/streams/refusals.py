"""What publishers are answered by admission itself: refusals of a whole batch, and repeats of what the stream has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.streams.candidate import TRACED_ORIGIN, Candidate
from jetraft.cluster.streams.puback import duplicate_ack, error_ack
from jetraft.cluster.streams.traced import refused_text

if TYPE_CHECKING:
    from jetraft.cluster.streams.publish import Known, Turn
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig


def refuse_all(turn: Turn, batch: bytes, error: ApiError, config: StreamConfig) -> None:
    """Answer every message of a capture batch with an error."""
    answer = error_ack(config.name.encode(), error)
    for refused in captures(batch):
        turn.answer(refused.reply if not config.no_ack else b"", answer)
        if refused.origin & TRACED_ORIGIN:
            turn.trace(Candidate.at(batch, refused.start), refused_text(error, {}))


def answer_duplicate(turn: Turn, reply: bytes, known: Known, config: StreamConfig, domain: str) -> None:
    """Ack a repeat: at once when the first copy is applied, else together with the first copy."""
    if not reply or config.no_ack:
        return
    if known.publish is not None:
        known.publish.duplicates.append((reply, known.seq))
    else:
        turn.answer(reply, duplicate_ack(config.name.encode(), known.seq, domain))
