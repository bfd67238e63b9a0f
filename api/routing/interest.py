"""Who wants to know whether somebody listens on a subject: push consumers, which deliver only while somebody does.

The plane notes the subjects of subscriptions that come and go while anybody watches; once a turn those who watch a
subject that is concerned are called. A literal subscription concerns the watchers of that subject, found by one
look-up; a wildcard one is compared with all watched subjects.
"""

import itertools
from collections.abc import Callable

import attrs

from jetraft.api.routing._plane import Plane
from jetraft.store.model.subject import is_literal, matches


@attrs.define(eq=False)
class InterestWatches:
    """The watches of one node."""

    plane: Plane
    _by_subject: dict[bytes, dict[int, Callable[[], None]]] = attrs.field(factory=dict)
    _subject_of: dict[int, bytes] = attrs.field(factory=dict)
    _handles: "itertools.count[int]" = attrs.field(factory=lambda: itertools.count(1))

    def add(self, subject: bytes, callback: Callable[[], None]) -> int:
        """Call back after turns in which interest in this literal subject may have changed; returns a handle."""
        handle = next(self._handles)
        self._by_subject.setdefault(subject, {})[handle] = callback
        self._subject_of[handle] = subject
        self.plane.note_interest(True)  # noqa: FBT003  a switch
        return handle

    def remove(self, handle: int) -> None:
        """End a watch; harmless when it has ended."""
        subject = self._subject_of.pop(handle, None)
        if subject is not None:
            callbacks = self._by_subject[subject]
            del callbacks[handle]
            if not callbacks:
                del self._by_subject[subject]
        self.plane.note_interest(bool(self._subject_of))

    def run(self) -> None:
        """Call those whom the changes since the last run concern; each at most once."""
        if not self._subject_of:
            return
        concerned: dict[int, Callable[[], None]] = {}
        for changed in dict.fromkeys(self.plane.take_interest_changes()):
            if is_literal(changed):
                concerned |= self._by_subject.get(changed, {})
            else:
                for subject, callbacks in self._by_subject.items():
                    if matches(changed, subject):
                        concerned |= callbacks
        for handle, callback in concerned.items():
            if handle in self._subject_of:
                callback()

    def statistics(self) -> dict[str, int]:
        """How many watch how many subjects."""
        return {"watches": len(self._subject_of), "subjects": len(self._by_subject)}
