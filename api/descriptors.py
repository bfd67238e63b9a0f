"""How many files and sockets this process may have open: as many as it is allowed, and a word when that is too few.

Most systems let a process open 1,024 files and raise that itself to far more. A stream keeps one or two files open; one
that needs another and gets none stops for a while. nats-server raises the limit in the same way (Go does it at start).
"""

import resource
from contextlib import suppress
from typing import Final

PER_STREAM: Final = 2  # the block that grows, and another while a block begins or is read
SPARE: Final = 256  # peers, clients, the log, what opens and closes meanwhile


def raise_limit() -> int:
    """Let this process open as many files as it may; returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


class DescriptorWatch:
    """Says once when a number of streams comes near the limit, and again when that has passed and come back."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._was_short = False

    def note(self, streams: int) -> str | None:
        """The warning to be logged now, if any."""
        needed = streams * PER_STREAM + SPARE
        was_short, self._was_short = self._was_short, needed > self._limit
        if self._was_short and not was_short:
            return f"{streams} streams need about {needed} open files, the limit is {self._limit} (ulimit -n)"
        return None
