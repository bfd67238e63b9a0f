"""Values that several pages show."""

import os
from typing import Final

LIMIT_MAX: Final = 4096  # rows on one page, whatever limit is asked for: a page is made in one turn
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def page_limit(asked: int, default: int) -> int:
    """The number of rows of a page: what is asked for, the default without it, LIMIT_MAX at most."""
    return min(asked, LIMIT_MAX) if asked > 0 else default


def uptime_text(seconds: int) -> str:
    """Return a duration as `1d2h3m4s`, like nats-server."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (secs, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return "".join(f"{number}{unit}" for number, unit in parts)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123  a proc file, read on every request
        return int(statm.read().split()[1]) * PAGE_BYTES
