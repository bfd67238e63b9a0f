"""The limit of open files: raised to the hard limit at start, with a warning when it is too low for the streams.

Most systems set a soft limit of 1,024 and a much higher hard limit. A stream keeps one or two files open; a stream that
cannot open another one stops until it can. The Go runtime raises the limit for nats-server in the same way.
"""

import os
import resource
import stat
from contextlib import suppress
from typing import Final

PER_STREAM: Final = 2  # the block that grows, and another one while a block begins or is read
SPARE: Final = 256  # for peers, clients, the log file and short-lived files


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def hold_sockets() -> None:
    """Keep the sockets of a process that ends open until the system closes them, after it has freed the memory.

    So a client that sees its connection end waits for nothing more: the process is gone. Freeing takes milliseconds.
    """
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  names are the descriptors
        with suppress(OSError):  # the descriptor of the directory itself; none is left: that connection ends earlier
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.dup(int(name))


class DescriptorWatch:
    """Warns when the streams need more open files than the limit allows: once, until they need fewer again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._was_short = False

    def note(self, streams: int) -> str | None:
        """Return the warning to log for this number of streams, if one is needed now."""
        needed = streams * PER_STREAM + SPARE
        was_short, self._was_short = self._was_short, needed > self._limit
        if self._was_short and not was_short:
            return f"{streams} streams need about {needed} open files, the limit is {self._limit} (ulimit -n)"
        return None
