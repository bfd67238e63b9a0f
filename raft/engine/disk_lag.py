"""Does the whole group wait for the leader's own disk? Pure.

A leader announces no commit that is not durable on its own disk (rule 5), so a slow one holds up the whole group, while
that of another member would not: an entry needs a majority, not this member. When a majority of others has had an entry
on disk for `SLOW_NS` that is not on this one yet, another member should lead. A group whose disks are all slow stays
where it is: then no majority of others is ahead.
"""

from typing import Final

from jetraft.store.model.clock import NS_PER_MS

SLOW_NS: Final = 750 * NS_PER_MS  # three hundred times an fsync; with the transfer a publisher waits for about a second


class DiskLag:
    """Watches one term of leadership. `due_ns` is when `note` has something to say without another event."""

    __slots__ = ("_awaited_index", "_since_ns")

    def __init__(self) -> None:
        self._awaited_index = 0  # what the others hold and this member does not; 0 for nothing
        self._since_ns = 0

    @property
    def due_ns(self) -> int | None:
        """None while this member holds what the others hold."""
        return self._since_ns + SLOW_NS if self._awaited_index else None

    def note(self, now_ns: int, *, durable_index: int, others_index: int) -> bool:
        """Say whether this member has been waited for too long; then it begins to count again.

        `others_index` is what a majority holds without this member.
        """
        if self._awaited_index and self._awaited_index <= durable_index:
            self._awaited_index = 0
        if not self._awaited_index and durable_index < others_index:
            self._awaited_index, self._since_ns = others_index, now_ns
        if not self._awaited_index or now_ns < self._since_ns + SLOW_NS:
            return False
        self._since_ns = now_ns
        return True
