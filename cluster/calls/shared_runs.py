"""One answer for all who ask the same while it is made, and none that is older than its question.

Those who ask while a run is under way wait for the next one, which begins after all of them came: group commit, for
questions. However many ask, each question is in work once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")


@attrs.define(eq=False)
class _Runs(Generic[T]):
    """The runs for one question: how many have begun, and what the last one that ended gave."""

    lock: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0
    begun: int = 0
    number: int = 0
    answers: list[T] = attrs.field(factory=list)  # one, or none yet


class SharedRuns(Generic[T]):
    """See the module. `at_once` questions are in work at a time."""

    def __init__(self, at_once: int) -> None:
        self._runs: dict[Hashable, _Runs[T]] = {}
        self._places = trio.CapacityLimiter(at_once)

    def __len__(self) -> int:
        """How many questions wait or are in work."""
        return len(self._runs)

    async def answer(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` gives, in a run that begins after this call. Raises what it raises, to one who asked."""
        runs = self._runs.setdefault(question, _Runs())
        runs.users += 1
        wanted = runs.begun + 1  # not the one that may be under way
        try:
            async with runs.lock:
                if runs.number < wanted:
                    async with self._places:
                        runs.begun += 1
                        number = runs.begun
                        runs.answers = [await ask()]
                        runs.number = number
                return runs.answers[0]
        finally:
            runs.users -= 1
            if not runs.users:
                del self._runs[question]
