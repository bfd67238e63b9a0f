"""The deadlines of all groups of a node, in one heap.

A group is entered once per deadline that is nearer than the one it is entered with. An entry that was overtaken stays
in the heap and is skipped when its time comes: cheaper than finding it.
"""

import heapq
from collections.abc import Iterator

from jetraft.raft.group import Group


class Deadlines:
    """See the module."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Group]] = []
        self._count = 0  # orders entries of the same moment: groups have no order

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ns(self) -> int | None:
        """The nearest one; the group may have moved its deadline on since."""
        return self._heap[0][0] if self._heap else None

    def schedule(self, group: Group) -> None:
        """Enter the group's deadline unless an earlier entry will look at it anyway."""
        deadline_ns = None if group.turns.failed is not None else group.core.deadline_ns
        if deadline_ns is None:
            return
        if group.scheduled_ns is None or deadline_ns < group.scheduled_ns:
            group.scheduled_ns = deadline_ns
            self._count += 1
            heapq.heappush(self._heap, (deadline_ns, self._count, group))

    def due(self, now_ns: int) -> Iterator[Group]:
        """Take the groups out whose entry is due, the oldest first; their own deadline may be later by now."""
        while self._heap and self._heap[0][0] <= now_ns:
            deadline_ns, _, group = heapq.heappop(self._heap)
            if group.scheduled_ns == deadline_ns:  # else a nearer deadline was scheduled since
                group.scheduled_ns = None
                yield group
