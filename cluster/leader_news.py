"""Log lines of who leads: the meta group on every node, streams with several replicas on the node that leads them.

A node that stops takes the leaders of thousands of streams with it. Each period has room for LINES_MAX streams; the
others of the period are told as one number when it ends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from jetraft.cluster.ports import Timers
    from jetraft.store.model.clock import Clock

PERIOD_NS: Final = 10 * NS_PER_S
LINES_MAX: Final = 20  # of streams in a period: what still reads well; an election of all groups takes less than one

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class LeaderNews:
    """One for each node; its lines go to the log."""

    timers: Timers
    clock: Clock
    _lines: int = 0  # in this period
    _left_out: int = 0
    _is_counting: bool = False  # a period has begun

    def meta_leads(self, name: str | None, term: int) -> None:
        """Another node leads the meta group, or none that is known."""
        if name is None:
            log.warning("the meta group has no leader in term %d: streams cannot be made or changed", term)
        else:
            log.info("the meta group: %s leads in term %d", name, term)

    def stream_leads(self, account: str, stream: str, name: str, term: int) -> None:
        """This node has begun to lead a stream."""
        if self._has_room():
            log.info("stream %s > %s: %s leads in term %d", account, stream, name, term)

    def stream_lost(self, account: str, stream: str, name: str, term: int) -> None:
        """This node led a stream, has lost contact with a majority of its replicas, and knows of no other leader."""
        if self._has_room():
            log.warning(
                "stream %s > %s: %s leads no longer in term %d: it has no contact with a majority of the replicas",
                account,
                stream,
                name,
                term,
            )

    def _has_room(self) -> bool:
        if not self._is_counting:
            self._is_counting = True
            self.timers.call_at(self.clock.mono_ns() + PERIOD_NS, self._end_period)
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return False
        self._lines += 1
        return True

    def _end_period(self) -> None:
        if self._left_out:
            seconds = PERIOD_NS // NS_PER_S
            log.info("%d more changes of streams' leaders on this node in the last %d s", self._left_out, seconds)
        self._lines, self._left_out, self._is_counting = 0, 0, False
