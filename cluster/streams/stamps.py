"""The present time of a stream's leader: the times of its messages, and what their ages are measured against. Pure.

It is the node's clock, and never before the last time in the log. A log may be ahead of all clocks (all nodes started
while the walls were wrong, and they were set right since). Then the time goes on from the last message as it passes, so
that what was stored before and what comes now keep their ages and their order; it goes slower by one part in SLEW_PART
until the node's clock has come up with it. Within a term it never goes faster either: a node that has just started may
set its clock after its term began.
"""

from __future__ import annotations

import logging
from typing import Protocol

from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.steady import APART_NS, SLEW_PART

log = logging.getLogger(__name__)


class PassingClock(Protocol):
    """The node's clock as it is needed here (store/model/steady.py)."""

    def unix_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        ...

    def elapsed_ns(self) -> int:
        """Nanoseconds that passed since some moment, also while the machine slept."""
        ...

    def moment(self) -> tuple[int, int]:
        """(`elapsed_ns`, `unix_ns`) of one moment."""
        ...


class StampClock:
    """The time of one stream during one term of leadership: as fast as time passes, but for one part in SLEW_PART."""

    def __init__(self, clock: PassingClock, last_ts_ns: int, *, stream: str = "") -> None:
        """`last_ts_ns` is the time of the last message in the log."""
        self._clock = clock
        self._told_ns = max(last_ts_ns, clock.unix_ns())  # what was said last, and when
        self._told_at_ns = clock.elapsed_ns()
        ahead_ns = last_ts_ns - clock.unix_ns()
        if ahead_ns > APART_NS:
            log.warning(
                "stream %s: the last message is %d s ahead of the clock; times go on from there, and slowly come back",
                stream,
                ahead_ns // NS_PER_S,
            )

    def no_earlier_than(self, last_ts_ns: int) -> None:
        """A message with a time of its own, this one, has been stored: what comes now is not before it."""
        self._told_ns = max(self.now_ns(), last_ts_ns)

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        at_ns, unix_ns = self._clock.moment()
        passed_ns = at_ns - self._told_at_ns
        slewed_ns, told_ns = passed_ns // SLEW_PART, self._told_ns + passed_ns
        # As the node's clock says, between the slowest and the fastest that this clock may go.
        if told_ns - slewed_ns <= unix_ns <= told_ns + slewed_ns:
            self._told_ns = unix_ns
        else:
            self._told_ns = told_ns - slewed_ns if unix_ns < told_ns else told_ns + slewed_ns
        self._told_at_ns = at_ns
        return self._told_ns
