"""What a loop that compares what should be with what is could not finish, and when it looks again. Pure.

Such a loop never gives up: an event wakes it early, and nothing that fails ends it. What stays undone is named in the
log when it becomes so, and again every TELL_NS, so that an operator finds out without a debugger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model.clock import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_PAUSE_NS: Final = 200 * NS_PER_MS  # what stands in the way is mostly an election, or another change of the row
PAUSE_MAX_NS: Final = 10 * NS_PER_S
TELL_NS: Final = 60 * NS_PER_S
SHOWN_MAX: Final = 5


class Unfinished:
    """See the module. `duty` is how the log calls the work; `idle_ns` is the pause when nothing is left to do."""

    def __init__(self, duty: str, *, idle_ns: int = PAUSE_MAX_NS) -> None:
        self._duty = duty
        self._idle_ns = idle_ns
        self._pause_ns = FIRST_PAUSE_NS
        self._stuck: Mapping[str, str] = {}
        self._told_ns: int | None = None

    def looked(self, stuck: Mapping[str, str], now_ns: int) -> tuple[int, str | None]:
        """Take in what a look has left undone, with the reasons. Returns the pause (ns), and a line for the log."""
        before, self._stuck = self._stuck, dict(stuck)
        if not stuck:
            self._pause_ns, self._told_ns = FIRST_PAUSE_NS, None
            return self._idle_ns, f"{self._duty}: complete" if before else None
        has_progress = bool(before.keys() - stuck.keys())
        pause_ns = FIRST_PAUSE_NS if has_progress else self._pause_ns
        self._pause_ns = min(2 * pause_ns, PAUSE_MAX_NS)
        if self._told_ns is not None and now_ns - self._told_ns < TELL_NS and not stuck.keys() - before.keys():
            return pause_ns, None
        self._told_ns = now_ns
        shown = "; ".join(f"{what}: {why}" for what, why in list(stuck.items())[:SHOWN_MAX])
        more = f"; and {len(stuck) - SHOWN_MAX} more" if len(stuck) > SHOWN_MAX else ""
        return pause_ns, f"{self._duty}: {shown}{more}"
