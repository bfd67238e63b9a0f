"""The rest that a loop of comparing could not finish, and when it looks again. Pure.

Such a loop never gives up: an event wakes it early, and nothing that fails ends it. Work that stays undone is named in
the log when it becomes so, and again every TELL_NS, so that an operator finds out without a debugger.
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
    """See the module. `duty` is how the log calls the work; `idle_ns` is the pause when nothing is left to do.

    `patience_ns` is how long something may stay undone before it is named, `first_pause_ns` the first pause after it.
    """

    def __init__(
        self,
        duty: str,
        *,
        idle_ns: int = PAUSE_MAX_NS,
        patience_ns: int = 0,
        first_pause_ns: int = FIRST_PAUSE_NS,
    ) -> None:
        self._duty = duty
        self._idle_ns = idle_ns
        self._patience_ns = patience_ns
        self._first_pause_ns = self._pause_ns = first_pause_ns
        self._since_ns: dict[str, int] = {}  # what is undone, and when that was seen first
        self._named: frozenset[str] = frozenset()
        self._told_ns: int | None = None

    def looked(self, stuck: Mapping[str, str], now_ns: int) -> tuple[int, str | None]:
        """Take in what a look has left undone, with the reasons. Returns the pause (ns), and a line for the log."""
        before, named = self._since_ns, self._named
        self._since_ns = {what: before.get(what, now_ns) for what in stuck}
        late = {what: why for what, why in stuck.items() if now_ns - self._since_ns[what] >= self._patience_ns}
        self._named = frozenset(late)
        return self._pause_after(before), self._line(late, named, now_ns)

    def _pause_after(self, before: Mapping[str, int]) -> int:
        if not self._since_ns:
            self._pause_ns = self._first_pause_ns
            return self._idle_ns
        has_progress = bool(before.keys() - self._since_ns.keys())
        pause_ns = self._first_pause_ns if has_progress else self._pause_ns
        self._pause_ns = min(2 * pause_ns, PAUSE_MAX_NS)
        return pause_ns

    def _line(self, late: Mapping[str, str], named: frozenset[str], now_ns: int) -> str | None:
        if not late:
            self._told_ns = None
            return f"{self._duty}: complete" if named else None
        if self._told_ns is not None and now_ns - self._told_ns < TELL_NS and not late.keys() - named:
            return None
        self._told_ns = now_ns
        shown = "; ".join(f"{what}: {why}" for what, why in list(late.items())[:SHOWN_MAX])
        more = f"; and {len(late) - SHOWN_MAX} more" if len(late) > SHOWN_MAX else ""
        return f"{self._duty}: {shown}{more}"
