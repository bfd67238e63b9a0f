"""Times in the server's format: RFC 3339 in UTC with up to nine digits of a second."""

import re
from datetime import UTC, datetime

NS_PER_S = 1_000_000_000
ZERO_TIME = "0001-01-01T00:00:00Z"  # what Go writes for "no time"

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def unix_ns(text: str) -> int:
    """Return nanoseconds since the Unix epoch. Raises ValueError for anything but RFC 3339."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    zone = "+00:00" if match[3] == "Z" else match[3]
    seconds = int((datetime.fromisoformat(match[1] + zone) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    return seconds * NS_PER_S + int((match[2] or "").ljust(9, "0"))


def rfc3339_of(moment: datetime) -> str:
    """Return an aware datetime in the server's format, in UTC with microseconds."""
    assert moment.tzinfo is not None
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
