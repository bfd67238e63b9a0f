"""Verifications take up to a millisecond each, and strangers decide how many there are: so many in one turn.

The rest waits in line and is done between turns, a few at a time, while other clients are served. The line is
as long as there are connections that are held, and requests of a callout that are in flight.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import trio

PER_TURN: Final = 8  # some 6 ms

Work = Callable[[], None]


@attrs.define(eq=False)
class Verifications:
    """The line, and what one turn has done."""

    done: int = 0
    waited: int = 0
    _turn: int = -1
    _in_turn: int = 0
    _line: deque[Work] = attrs.field(factory=deque)
    _work: trio.Event = attrs.field(factory=trio.Event)

    def may_now(self, turn: int) -> bool:
        """Whether one more fits into this turn; it counts then. None passes those that wait."""
        if turn != self._turn:
            self._turn, self._in_turn = turn, 0
        if self._line or self._in_turn >= PER_TURN:
            return False
        self._in_turn += 1
        self.done += 1
        return True

    def put(self, work: Work) -> None:
        """Do it later, behind what waits."""
        self._line.append(work)
        self.waited += 1
        self._work.set()

    async def run(self, end_turn: Callable[[], None]) -> None:
        """Serve the line until cancelled."""
        while True:
            if not self._line:
                self._work = trio.Event()
                await self._work.wait()
            for _ in range(min(PER_TURN, len(self._line))):
                self.done += 1
                self._line.popleft()()
            end_turn()
            # At most PER_TURN between two checkpoints.
            await trio.lowlevel.checkpoint()

    def statistics(self) -> dict[str, int]:
        """How many were done, and how many of these had to wait."""
        return {"verified": self.done, "verified_later": self.waited, "verifying": len(self._line)}
