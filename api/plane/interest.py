"""Watches of the interest in a subject: a push consumer delivers only while its deliver subject has subscribers.

The plane notes the subjects of subscriptions that come and go while anybody watches; once a turn those who watch a
subject that is affected are called. A literal subscription concerns the watchers of that subject, found by one
look-up; a wildcard one is compared with all watched subjects of its account.
"""

import itertools
from collections.abc import Callable

import attrs

from jetraft.api.plane._accounts import Account
from jetraft.api.plane._plane import Plane
from jetraft.store.model.subject import is_literal, matches


@attrs.define(eq=False)
class InterestWatches:
    """The watches of one node."""

    plane: Plane
    _by_subject: dict[int, dict[bytes, dict[int, Callable[[], None]]]] = attrs.field(factory=dict)  # by account's id
    watched: dict[int, tuple[int, bytes]] = attrs.field(factory=dict)  # by handle: account and subject
    _handles: "itertools.count[int]" = attrs.field(factory=lambda: itertools.count(1))

    def add(self, account: Account, subject: bytes, callback: Callable[[], None]) -> int:
        """Call back after turns in which interest in this literal subject may have changed; returns a handle."""
        handle = next(self._handles)
        self._by_subject.setdefault(account.id, {}).setdefault(subject, {})[handle] = callback
        self.watched[handle] = account.id, subject
        self.plane.note_interest(True)  # noqa: FBT003  a switch
        return handle

    def remove(self, handle: int) -> None:
        """End a watch; harmless when it has ended."""
        ended = self.watched.pop(handle, None)
        if ended is not None:
            account, subject = ended
            subjects = self._by_subject[account]
            del subjects[subject][handle]
            if not subjects[subject]:
                del subjects[subject]
            if not subjects:
                del self._by_subject[account]
        self.plane.note_interest(bool(self.watched))

    def run(self) -> None:
        """Call back for the changes since the last run, once per watch at most."""
        affected: dict[int, Callable[[], None]] = {}
        for account, changed in dict.fromkeys(self.plane.take_interest_changes()):
            subjects = self._by_subject.get(account, {})
            if is_literal(changed):
                affected |= subjects.get(changed, {})
            else:
                for subject, callbacks in subjects.items():
                    if matches(changed, subject):
                        affected |= callbacks
        for handle, callback in affected.items():
            if handle in self.watched:
                callback()

    def statistics(self) -> dict[str, int]:
        """How many watch how many subjects."""
        return {"watches": len(self.watched), "subjects": sum(map(len, self._by_subject.values()))}
