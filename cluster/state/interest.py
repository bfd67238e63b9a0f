"""Interest and work-queue retention: which messages no consumer needs any more. Pure, and part of applying an entry.

A work-queue message goes when a consumer is done with it. An interest message goes when every consumer whose filter
matches its subject is done with it, and at once when there is no such consumer. The decision uses applied state only,
so every replica removes the same messages at the same entry: nothing is removed because one replica saw an ack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jetraft.store.model.config import RetentionPolicy
from jetraft.store.model.extensions import WAITING
from jetraft.store.model.subject import matches_any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from jetraft.store.stream.consumer_state import ConsumerState
    from jetraft.store.stream.stream_store import StreamStore


class SubjectSource(Protocol):
    """Looks up subjects of live messages; a StreamStore, seen through the machine."""

    def subject_of(self, seq: int) -> bytes | None:
        """The subject of the message at this sequence, None when it is gone."""


def wants(consumer: ConsumerState, seq: int, subject: bytes) -> bool:
    """True when this consumer has yet to deliver the message, or to see it acknowledged."""
    filters = consumer.config.filters
    return consumer.is_waiting_for(seq) and (not filters or matches_any(filters, subject))


def unneeded_on_arrival(consumers: Collection[ConsumerState], first_seq: int, subjects: Sequence[bytes]) -> list[int]:
    """Of messages just stored in an interest stream, those that no consumer will ever want; what waits stays."""
    return [
        first_seq + place
        for place, subject in enumerate(subjects)
        if not subject.startswith(WAITING)
        and not any(wants(consumer, first_seq + place, subject) for consumer in consumers)
    ]


def unneeded(consumers: Collection[ConsumerState], store: StreamStore) -> list[int]:
    """Of all messages, those that no consumer wants: after a change of its filters, or of the retention."""
    seqs = store.next_matches(store.visible(()), 1, store.messages)
    return [seq for seq in seqs if not is_wanted(consumers, seq, store)]


def unneeded_after_done(
    retention: RetentionPolicy,
    consumers: Collection[ConsumerState],
    by: ConsumerState,
    done: Sequence[int],
    source: SubjectSource,
) -> Sequence[int]:
    """Of the messages that one consumer is done with, those that may go."""
    if retention is RetentionPolicy.LIMITS:
        return []
    if retention is RetentionPolicy.WORK_QUEUE or len(consumers) == 1:
        return done
    others = [consumer for consumer in consumers if consumer is not by]
    return [seq for seq in done if not is_wanted(others, seq, source)]


def is_wanted(consumers: Iterable[ConsumerState], seq: int, source: SubjectSource) -> bool:
    """True when one of these consumers wants the message; the subject is looked up only when it matters."""
    subject: bytes | None = None
    for consumer in consumers:
        if not consumer.is_waiting_for(seq):
            continue
        if not consumer.config.filters:
            return True
        if subject is None:
            subject = source.subject_of(seq)
        if subject is None:
            return False
        if matches_any(consumer.config.filters, subject):
            return True
    return False
