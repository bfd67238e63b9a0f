"""Durations, sizes, counts and times: as people type them and as they are shown."""

import re
from datetime import UTC, datetime
from typing import Final

from jetraft.api.cli.client.errors import UsageError
from jetraft.store.model.gotime import parse_time

UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 7 * 86_400_000_000_000,
    "y": 365 * 86_400_000_000_000,
}
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d|w|y)")
SIZE: Final = re.compile(r"(-?\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
KIBI: Final = 1024
NUMBER_MAX: Final = (1 << 63) - 1  # of the API's JSON


def duration_ns(text: str) -> int:
    """Nanoseconds of a duration such as 1h30m or 7d. Raises UsageError."""
    found = DURATION.findall(text)
    if text == "0":
        return 0
    if "".join(number + unit for number, unit in found) != text or not text:
        raise UsageError(f"{text!r} is no duration: write 30s, 5m, 1h30m or 7d")
    return within(round(sum(float(number) * UNITS_NS[unit] for number, unit in found)), text)


def size_bytes(text: str) -> int:
    """Bytes of a size such as 64K or 10GB (of 1,024, as the server's); -1 is unlimited. Raises UsageError."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no size: write 1024, 64K, 10MB or 1GiB")
    return within(round(float(found[1]) * KIBI ** " KMGT".index(found[2].upper() or " ")), text)


def within(number: int, text: str) -> int:
    """The number, which the API's JSON can carry. Raises UsageError."""
    if number > NUMBER_MAX:
        raise UsageError(f"{text!r} is too large")
    return number


def integer(text: str) -> int:
    """A whole number, perhaps with separators. Raises UsageError."""
    try:
        return within(int(text.replace(",", "")), text)
    except ValueError:
        raise UsageError(f"{text!r} is no whole number") from None


def time_text(text: str) -> str:
    """A time as the API takes it, from RFC 3339 or from a duration that is subtracted from now. Raises UsageError."""
    if parse_time(text) is not None:
        return text
    try:
        ago_ns = duration_ns(text)
    except UsageError:
        raise UsageError(f"{text!r} is no time: write 2026-01-31T12:00:00Z, or 1h for an hour ago") from None
    return from_now(-ago_ns)


def from_now(distance_ns: int) -> str:
    """The time at that distance from now, RFC 3339."""
    moment = datetime.now(tz=UTC).timestamp() + distance_ns / 1e9
    try:
        return datetime.fromtimestamp(moment, tz=UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        raise UsageError("the time is out of range") from None


def shown_duration(duration: object) -> str:
    """A duration in nanoseconds, in its two largest units."""
    if not isinstance(duration, int | float) or duration <= 0:
        return "0s"
    if duration < UNITS_NS["s"]:
        return f"{duration / 1e6:.2f}ms" if duration >= UNITS_NS["us"] * 10 else f"{duration / 1e3:.2f}µs"
    parts, rest = [], int(duration)
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, UNITS_NS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest:
        parts.append(f"{rest / 1e9:.2f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts[:2])


def shown_size(size: object) -> str:
    """A number of bytes in the largest unit that it fills; negative: unlimited."""
    if not isinstance(size, int | float) or size < 0:
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < KIBI:
            return f"{size} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= KIBI
    return f"{size:.1f} TiB"


def shown_count(count: object) -> str:
    """A number with separators; negative: unlimited."""
    if not isinstance(count, int | float):
        return "-"
    return "unlimited" if count < 0 else f"{count:,}"


def counted(count: int, word: str) -> str:
    """A number of things, in the singular or the plural."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def shown_time(text: object) -> str:
    """A time of the API to the second, in UTC; never, for Go's zero time."""
    if not isinstance(text, str) or not text or text.startswith("0001-"):
        return "never"
    return text.partition(".")[0].removesuffix("Z").replace("T", " ")


def since(text: object) -> str:
    """How long ago a time of the API is."""
    time_ns = parse_time(text) if isinstance(text, str) and not text.startswith("0001-") else None
    if time_ns is None:
        return "never"
    return shown_duration(max(0, round(datetime.now(tz=UTC).timestamp() * 1e9) - time_ns))
