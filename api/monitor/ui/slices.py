"""Long work of a page in short pieces, between which the other tasks of the node run.

A page of the dashboard looks at thousands of streams. It may hold the loop for 5 ms at most, so it pauses after
SLICE_NS and what it had looked at may have changed by then: a caller asks again after each pause.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import attrs
import trio

from jetraft.store.model.clock import Clock

SLICE_NS: Final = 1_000_000  # a turn of a busy node takes as long; what follows the last look at the clock adds to it
SORTED_AT_ONCE: Final = 512  # rows: a sort of them takes some 0.3 ms

T = TypeVar("T")


@attrs.define(eq=False)
class Slices:
    """The clock of one page."""

    clock: Clock
    longest_ns: int = 0
    _began_ns: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._began_ns = self.clock.mono_ns()

    async def pause(self) -> None:
        """Let other tasks run if this slice is over."""
        spent_ns = self.clock.mono_ns() - self._began_ns
        self.longest_ns = max(self.longest_ns, spent_ns)
        if spent_ns >= SLICE_NS:
            await trio.lowlevel.checkpoint()
            self._began_ns = self.clock.mono_ns()

    async def sorted_part(
        self, rows: Sequence[T], key: Callable[[T], Any], *, offset: int, limit: int, descending: bool
    ) -> list[T]:
        """Rows `offset` to `offset + limit` in the order of a key; equal ones stay in their order."""
        chunks = []
        for at in range(0, len(rows), SORTED_AT_ONCE):
            chunks.append(sorted(rows[at : at + SORTED_AT_ONCE], key=key, reverse=descending))
            await self.pause()
        found: list[T] = []
        for number, row in enumerate(heapq.merge(*chunks, key=key, reverse=descending)):
            if number >= offset + limit:
                break
            if number >= offset:
                found.append(row)
            if number % SORTED_AT_ONCE == 0:
                await self.pause()
        return found
