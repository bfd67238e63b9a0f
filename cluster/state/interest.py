"""Interest and work-queue retention: which messages no consumer needs any more. Pure, and part of applying an entry.

A work-queue message goes when a consumer is done with it. An interest message goes when every consumer whose filter
matches its subject is done with it, and at once when there is no such consumer. The decision uses applied state only,
so every replica removes the same messages at the same entry: nothing is removed because one replica saw an ack.

A message meets the filters of all consumers in one walk down their tree, and of a filter that many consumers have it
asks those first who wanted something last. Consumers that begin at a message still to come are not asked until it is
there. So what applying an entry costs does not grow with the number of consumers and filters.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from jetraft.cluster.state._entries import subjects_of
from jetraft.store.model.extensions import WAITING
from jetraft.store.model.validation.consumer_filters import ConsumerFilters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jetraft.store.stream.consumer_state import ConsumerState


class SubjectSource(Protocol):
    """The live messages; a StreamStore, seen through the machine."""

    @property
    def last_seq(self) -> int:
        """The last sequence given out."""

    def subject_of(self, seq: int) -> bytes | None:
        """The subject of the message at this sequence, None when it is gone."""


class Interest:
    """Which messages the consumers of a stream with interest retention want; follows every change of a consumer."""

    def __init__(self, consumers: Mapping[str, ConsumerState], source: SubjectSource) -> None:
        """`consumers` is the machine's own table."""
        self.filters = ConsumerFilters()
        self._consumers = consumers
        self._source = source
        self._unfiltered: dict[str, None] = {}
        self._later: list[tuple[int, str]] = []  # a heap: the consumer waits for what is above the sequence
        self._later_at: dict[str, int] = {}  # those of the heap that are valid
        for consumer in consumers.values():
            self.put(consumer)

    def put(self, consumer: ConsumerState) -> None:
        """A consumer exists, or its filters or its position have changed."""
        name, position = consumer.name, consumer.delivered_stream
        self.forget(name)
        if not consumer.config.filters:
            self._unfiltered[name] = None
        if (
            position >= self._source.last_seq
            and not (consumer.dead or consumer.acked_ahead)
            and consumer.pending.first() is None
        ):
            self._later_at[name] = position
            heappush(self._later, (position, name))
        else:
            self.filters.put(name, consumer.config)

    def forget(self, name: str) -> None:
        """A consumer is gone."""
        self.filters.forget(name)
        self._unfiltered.pop(name, None)
        self._later_at.pop(name, None)

    def arrived(self, last_seq: int) -> None:
        """The stream has messages up to this one."""
        while self._later and self._later[0][0] < last_seq:
            position, name = heappop(self._later)
            if self._later_at.get(name) == position:
                del self._later_at[name]
                self.filters.put(name, self._consumers[name].config)

    def unneeded_on_arrival(self, first_seq: int, frame: bytes) -> list[int]:
        """Of the messages of a frame that was just stored, those that no consumer will ever want; what waits stays."""
        if any(self._consumers[name].resume_seq <= first_seq for name in self._unfiltered):
            return []
        return [
            first_seq + place
            for place, subject in enumerate(subjects_of(frame))
            if not subject.startswith(WAITING) and not self.is_wanted(first_seq + place, subject)
        ]

    def is_wanted(self, seq: int, subject: bytes, *, but: str = "") -> bool:
        """Whether a consumer, other than this one, is still to be given the message, or to acknowledge it."""
        consumers = self._consumers
        return self.filters.tree.any_of(subject, lambda name: name != but and consumers[name].is_waiting_for(seq))

    def unneeded(self, seqs: Iterable[int], *, but: str = "") -> list[int]:
        """Of these messages, those that no consumer wants, other than this one."""
        subject_of = self._source.subject_of
        return [
            seq
            for seq in seqs
            if (subject := subject_of(seq)) is not None and not self.is_wanted(seq, subject, but=but)
        ]
