"""Log lines about misbehaving peers: each thing once in a while, and all together never more than so many lines.

A stranger chooses what it sends, and how often: neither the log nor the memory of what was said may grow with it. Pure:
the clock's time comes in, the text to log, if any, comes out.
"""

from collections.abc import Hashable
from typing import Final

from jetraft.store.model.clock import NS_PER_S

PERIOD_NS: Final = 10 * NS_PER_S  # the same thing is said again after that long
LINES_MAX: Final = 20  # of all things, in a period
TEXT_CHARS_MAX: Final = 300  # a peer's own words are part of some


class LogLimiter:
    """Decides which messages are logged. `unsaid` counts the others."""

    __slots__ = ("_began_ns", "_lines", "_said_ns", "_skipped", "unsaid")

    def __init__(self) -> None:
        self._said_ns: dict[Hashable, int] = {}  # of this period and the one before; `LINES_MAX` in each
        self._began_ns: int | None = None  # the period
        self._lines = 0  # in this period
        self._skipped = 0  # since the last line
        self.unsaid = 0

    def line(self, key: Hashable, text: str, now_ns: int) -> str | None:
        """The line to log, or None. `key` is what makes two messages the same; a peer must not choose it freely."""
        if self._began_ns is None or now_ns - self._began_ns >= PERIOD_NS:
            self._said_ns = {known: at_ns for known, at_ns in self._said_ns.items() if now_ns - at_ns < PERIOD_NS}
            self._began_ns, self._lines = now_ns, 0
        said_ns = self._said_ns.get(key)
        if self._lines >= LINES_MAX or (said_ns is not None and now_ns - said_ns < PERIOD_NS):
            self._skipped += 1
            self.unsaid += 1
            return None
        self._said_ns[key] = now_ns
        self._lines += 1
        more, self._skipped = self._skipped, 0
        shown = "".join(char if char.isprintable() else "?" for char in text[:TEXT_CHARS_MAX])
        return shown + (f" ({more} more complaints were not logged)" if more else "")
