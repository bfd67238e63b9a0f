"""What a stream's leader takes for now: the times of its messages, and what their ages are measured against. Pure.

It is the node's clock, and never before the last time in the log. A log may be ahead of all clocks (all nodes started
while the walls were wrong, and they were set right since). Then the time goes on from the last message as it passes, so
that what was stored before and what comes now keep their ages and their order, and what it is ahead by is worked off as
slowly as the node's clock works off its own difference.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from jetraft.store.model.steady import APART_NS, SLEW_PART

if TYPE_CHECKING:
    from jetraft.store.model.clock import Clock

log = logging.getLogger(__name__)


class StampClock:
    """The time of one stream during one term of leadership. Never goes back."""

    def __init__(self, clock: Clock, last_ts_ns: int, *, stream: str = "") -> None:
        """`last_ts_ns` is the time of the last message in the log."""
        self._clock = clock
        self._from_ns = clock.mono_ns()
        self._ahead_ns = max(0, last_ts_ns - clock.unix_ns())  # of the node's clock, when the term began
        if self._ahead_ns > APART_NS:
            log.warning(
                "stream %s: the last message is %d s ahead of the clock; times go on from there, and slowly come back",
                stream,
                self._ahead_ns // 10**9,
            )

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        now_ns = self._clock.unix_ns()
        if self._ahead_ns:
            worked_off_ns = (self._clock.mono_ns() - self._from_ns) // SLEW_PART
            now_ns += max(0, self._ahead_ns - worked_off_ns)
        return now_ns
