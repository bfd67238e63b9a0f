"""How far long work is, on one line of the standard error stream, where that is a terminal; it is gone in the end.

Backups and the inspection of stores need no extra, so this draws without one (client/progress.py has bars).
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHOWN_NS: Final = 125_000_000  # between two lines
GONE: Final = "\r\x1b[K"
KIBI: Final = 1024


def shown_bytes(count: int) -> str:
    """In MiB."""
    return f"{count / KIBI**2:,.1f} MiB"


class ProgressLine:
    """See the module. `total` is an estimate: the line never says more than that."""

    def __init__(self, title: str, total: int, shown: Callable[[int], str] = "{:,}".format) -> None:
        self._title = "".join(char if char.isprintable() else "?" for char in title)
        self._total = total
        self._shown = shown
        self._done = 0
        self._started_ns = self._drawn_ns = time.monotonic_ns()

    def add(self, count: int) -> None:
        """So much more is done."""
        self._done += count
        now_ns = time.monotonic_ns()
        if now_ns >= self._drawn_ns + SHOWN_NS:
            self._drawn_ns = now_ns
            self._draw(now_ns)

    def _draw(self, now_ns: int) -> None:
        done = min(self._done, self._total) if self._total else self._done
        share = f" of {self._shown(self._total)} ({100 * done // self._total} %)" if self._total else ""
        rate = self._shown(self._done * 1_000_000_000 // max(now_ns - self._started_ns, 1))
        sys.stderr.write(f"{GONE}{self._title}: {self._shown(done)}{share}, {rate}/s")
        sys.stderr.flush()


@contextmanager
def progress_line(
    title: str, total: int, shown: Callable[[int], str] = "{:,}".format
) -> Iterator[Callable[[int], None]]:
    """A function to be called with how much more is done; without a terminal it does nothing."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    line = ProgressLine(title, total, shown)
    try:
        yield line.add
    finally:
        sys.stderr.write(GONE)
        sys.stderr.flush()
