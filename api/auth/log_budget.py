"""Log lines whose number clients decide: all of them, up to so many a second, and then how many were left out."""

from collections.abc import Callable
from typing import Final

import attrs

from jetraft.store.model.clock import NS_PER_S, Clock

LINES_PER_S: Final = 200  # nats-server writes every line; a client that loops would fill the disk
LINE_CHARS_MAX: Final = 8192  # a control line may be longer than is worth reading


@attrs.define(eq=False)
class LogBudget:
    """Hands lines on while there are not too many."""

    write: Callable[[str], None]
    clock: Clock
    lines_per_s: int = LINES_PER_S
    left_out: int = 0  # since the last line that was written
    _second: int = -1
    _lines: int = 0

    def line(self, text: str) -> None:
        """Write a line, or count it."""
        second = self.clock.mono_ns() // NS_PER_S
        if second != self._second:
            self._second, self._lines = second, 0
            if self.left_out:
                self.write(f"{self.left_out} lines about clients were left out")
                self.left_out = 0
        if self._lines >= self.lines_per_s:
            self.left_out += 1
            return
        self._lines += 1
        self.write(text[:LINE_CHARS_MAX])
