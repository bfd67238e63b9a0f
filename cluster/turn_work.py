"""Work whose size a client chose, done in slices: a small part of each turn, shared by all who want some.

A search over all subjects of a stream, or a look at all of its messages, may take longer than a turn should. Such work
is a job that does a part of itself each time it is called. Jobs of one owner are done in order; owners take turns, so
that one who asks for much waits longest for it. An owner is a connection, or what the node itself looks after.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.store.model._fifo import Fifo

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from jetraft.cluster.ports import TimerHandle, Timers
    from jetraft.store.model.steady import SteadyClock

TURN_NS: Final = 2_000_000  # of a turn, for the jobs of all owners together
JOBS_MAX: Final = 4_096  # of all owners; more are refused
OWNER_JOBS_MAX: Final = (
    1_024  # of one: it cannot take the places of all, as of batch direct gets (streams/gets/direct.py)
)


@attrs.frozen(slots=True)
class TurnWorkStatistics:
    """A frozen look."""

    owners: int
    jobs: int


class TurnWork:
    """The jobs of one node."""

    def __init__(self, timers: Timers, clock: SteadyClock) -> None:
        self._timers = timers
        self._clock = clock
        self._of: OrderedDict[Hashable, Fifo[Callable[[int], bool]]] = OrderedDict()
        self._jobs = 0
        self._timer: TimerHandle | None = None

    def add(self, owner: Hashable, job: Callable[[int], bool]) -> bool:
        """Have a job called, from the next turn on, until it returns False; False when there is no place for it.

        It is told until when (monotonic ns) it may work, and does something even when that has passed.
        """
        mine = self._of.get(owner)
        if self._jobs >= JOBS_MAX or (mine is not None and len(mine) >= OWNER_JOBS_MAX):
            return False
        if mine is None:
            mine = self._of[owner] = Fifo()
        mine.append(job)
        self._jobs += 1
        self._wake()
        return True

    async def finish(self, owner: Hashable, step: Callable[[], bool]) -> bool:
        """Call this in slices until it returns False; False, and nothing done, when there is no place for it."""
        is_done = trio.Event()
        is_given_up = False

        def job(until_ns: int) -> bool:
            while not is_given_up and step():
                if self._clock.mono_ns() > until_ns:
                    return True
            is_done.set()
            return False

        if not self.add(owner, job):
            return False
        try:
            await is_done.wait()
        finally:
            is_given_up = True
        return True

    def statistics(self) -> TurnWorkStatistics:
        """A frozen look."""
        return TurnWorkStatistics(owners=len(self._of), jobs=self._jobs)

    def _wake(self) -> None:
        if self._timer is None:
            self._timer = self._timers.call_at(self._clock.mono_ns() + 1, self._work)

    def _work(self) -> None:
        self._timer = None
        until_ns = self._clock.mono_ns() + TURN_NS
        while self._of:
            owner = next(iter(self._of))
            jobs = self._of[owner]
            if not jobs[0](until_ns):  # what it adds for its owner comes behind it
                jobs.popleft()
                self._jobs -= 1
            if jobs:
                self._of.move_to_end(owner)
            else:
                del self._of[owner]
            if self._clock.mono_ns() >= until_ns:
                break
        if self._of:
            self._wake()
