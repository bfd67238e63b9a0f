"""How many subjects a stream may have (`jetraft.max_subjects`), judged with what is in flight. Pure.

A message of a subject that the stream has, or that is in flight, always fits. Another one is judged as if everything in
flight were applied, so that the number is never exceeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.streams.publishing.candidate import PublishRefused
from jetraft.store.model import errors
from jetraft.store.model.extensions import stream_extensions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.cluster.streams.rules.applied_state import AppliedState
    from jetraft.store.model.config import StreamConfig


class SubjectBound:
    """See the module."""

    def __init__(self, subjects_max: int, applied: AppliedState) -> None:
        self.subjects_max = subjects_max
        self._applied = applied
        self._in_flight: dict[bytes, int] = {}  # messages by subject

    @classmethod
    def of(cls, config: StreamConfig, applied: AppliedState, before: SubjectBound | None) -> SubjectBound | None:
        """The bound of a configuration, knowing what is in flight; None without a limit."""
        wanted = stream_extensions(config).max_subjects
        if not wanted:
            return None
        bound = before or cls(wanted, applied)
        bound.subjects_max = wanted
        return bound

    def check(self, subject: bytes) -> None:
        """Raise PublishRefused when there is no room for a message of this subject."""
        if subject not in self._in_flight and not self._applied.count_for(subject) and not self._has_room():
            raise PublishRefused(errors.STREAM_STORE_FAILED.with_values(err="maximum subjects exceeded"))

    def admit(self, subject: bytes) -> None:
        """Raise PublishRefused, or count a message among what is in flight."""
        self.check(subject)
        self.note(subject)

    def note(self, subject: bytes) -> None:
        """Count a message that needs no room: it replaces another one."""
        self._in_flight[subject] = self._in_flight.get(subject, 0) + 1

    def settled(self, subjects: Iterable[bytes]) -> None:
        """These messages are applied, or are not to be."""
        for subject in subjects:
            left = self._in_flight.pop(subject, 1) - 1
            if left:
                self._in_flight[subject] = left

    def _has_room(self) -> bool:
        room = self.subjects_max - self._applied.num_subjects
        if room <= 0 or len(self._in_flight) < room:
            return room > 0
        return sum(not self._applied.count_for(subject) for subject in self._in_flight) < room
