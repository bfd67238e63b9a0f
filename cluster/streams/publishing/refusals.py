"""Answers of admission itself to publishers: refusals of a whole batch, and repeats of what the stream has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import TRACED_ORIGIN
from jetraft.cluster.memory_budget import Shortage
from jetraft.cluster.streams.publishing.candidate import Candidate
from jetraft.cluster.streams.publishing.puback import duplicate_ack, error_ack
from jetraft.cluster.streams.publishing.traced import refused_text
from jetraft.store.model import errors
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from jetraft.cluster.site import Site
    from jetraft.cluster.streams.publishing.publish import Known, Turn
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig


def why_full(site: Site, config: StreamConfig) -> ApiError | None:
    """Why a stream can store nothing now.

    The account may have no such stream any more; account or server hold what they may hold at most; or memory or
    the disk is nearly full, and what is left is for making room again.
    """
    now_ns, is_in_files = site.clock.mono_ns(), config.storage is StorageType.FILE
    quota, of_account, memory = site.quota, site.account_quota, site.memory
    if of_account is not None and (refused := of_account.refusal(config, now_ns)) is not None:
        return refused
    if quota is not None and quota.is_full(config.storage, now_ns):
        return errors.INSUFFICIENT_RESOURCES.with_values()
    gives_way_at = Shortage.PUBLISHES if is_in_files else Shortage.STREAMS
    if memory is not None and memory.shortage(now_ns) >= gives_way_at:
        return errors.INSUFFICIENT_RESOURCES.with_values()
    if site.space is not None and is_in_files and site.space.is_low(now_ns):
        return errors.STORAGE_RESOURCES_EXCEEDED.with_values()
    return None


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
