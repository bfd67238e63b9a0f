"""Formats and parses times and durations like Go: RFC 3339 with nanoseconds, and `1m30s`.

Times are integers of nanoseconds since the Unix epoch, durations integers of nanoseconds. Go prints a time in the
shortest form (`2026-01-02T03:04:05.12Z`) and its zero time as year 1; it prints a duration with the largest unit
first. Source: Go, package time (Time.MarshalJSON, Duration.String, ParseDuration).
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
NS_PER_MINUTE: Final = 60 * NS_PER_S
NS_PER_HOUR: Final = 60 * NS_PER_MINUTE
DURATION_NS_MAX: Final = (1 << 63) - 1  # time.Duration is an int64

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FRACTION_DIGITS: Final = 9
ZERO_TIME_NS: Final = -62_135_596_800 * NS_PER_S  # Go's zero time, 0001-01-01T00:00:00Z
TIME_NS_END: Final = 253_402_300_800 * NS_PER_S  # the year 10000, which RFC 3339 cannot write
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_ZONE_HOURS_MAX: Final = 24  # Go accepts one more hour and one more minute than exist
_ZONE_MINUTES_MAX: Final = 60
_ZONE: Final = re.compile(r"(?:[.,]\d+)?(?:Z|[+-](\d\d):(\d\d))", re.ASCII)
# Go's layout element, number of digits, range, and name in error texts; separators have no digits.
_TIME_ELEMENTS: Final = (
    ("2006", 4, 0, 9999, "year"),
    ("-", 0, 0, 0, ""),
    ("01", 2, 1, 12, "month"),
    ("-", 0, 0, 0, ""),
    ("02", 2, 1, 31, "day"),
    ("T", 0, 0, 0, ""),
    ("15", 2, 0, 23, "hour"),
    (":", 0, 0, 0, ""),
    ("04", 2, 0, 59, "minute"),
    (":", 0, 0, 0, ""),
    ("05", 2, 0, 59, "second"),
)
_UNIT_NS: Final = {
    "ns": 1,
    "us": NS_PER_US,
    "\u00b5s": NS_PER_US,  # micro sign
    "\u03bcs": NS_PER_US,  # Greek mu
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": NS_PER_MINUTE,
    "h": NS_PER_HOUR,
}
_DURATION_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)


def http_date(unix_ns: int) -> str:
    """The time of a Date header (RFC 9110); what the library has for it would load its parser of mail."""
    moment = _EPOCH + timedelta(seconds=unix_ns // NS_PER_S)
    return f"{_DAYS[moment.weekday()]}, {moment.day:02} {_MONTHS[moment.month - 1]} {moment:%Y %H:%M:%S} GMT"


def format_time(unix_ns: int) -> str:
    """RFC 3339 in UTC with as many fraction digits as needed, none when zero; times out of range are clamped."""
    clamped = min(max(unix_ns, ZERO_TIME_NS), TIME_NS_END - 1)
    seconds, fraction = divmod(clamped, NS_PER_S)
    moment = _EPOCH + timedelta(seconds=seconds)
    text = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}T"
    text += f"{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"
    if fraction:
        text += "." + f"{fraction:0{_FRACTION_DIGITS}d}".rstrip("0")
    return text + "Z"


def parse_time(text: str) -> int | None:
    """Nanoseconds since the epoch, or None when the text is not RFC 3339. Fractions are truncated to nanoseconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
    fraction, sign, zone_hour, zone_minute = match.group(7, 8, 9, 10)
    offset = timedelta()
    if sign is not None:
        if int(zone_hour) > _ZONE_HOURS_MAX or int(zone_minute) > _ZONE_MINUTES_MAX:
            return None
        offset = timedelta(hours=int(zone_hour), minutes=int(zone_minute)) * (-1 if sign == "-" else 1)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    seconds = (moment - _EPOCH - offset) // timedelta(seconds=1)
    return seconds * NS_PER_S + int((fraction or "0")[:_FRACTION_DIGITS].ljust(_FRACTION_DIGITS, "0"))


def until_ns(moment_ns: int, now_ns: int) -> int:
    """The duration from now to a moment, limited to 64 bits like Go's time.Until."""
    return min(max(moment_ns - now_ns, -DURATION_NS_MAX - 1), DURATION_NS_MAX)


def explain_time(text: str) -> str:
    """The error text of Go's time.Parse for a text that `parse_time` refused."""
    fault, rest = _explain_clock(text)
    return fault or _explain_zone(text, rest)


def _explain_clock(text: str) -> tuple[str, str]:
    """(error text for the part before the zone or "", the rest of the text)."""
    rest = text
    for element, digits, low, high, what in _TIME_ELEMENTS:
        head = rest[: digits or len(element)]
        if not digits:
            if head != element:
                return _cannot_parse(text, rest, element), rest
        elif len(head) < digits or not (head.isascii() and head.isdigit()):
            return _cannot_parse(text, rest, element), rest
        elif not low <= int(head) <= high:
            return f"parsing time {_quote(text)}: {what} out of range", rest
        rest = rest[len(head) :]
    return "", rest


def _explain_zone(text: str, rest: str) -> str:
    zone = _ZONE.match(rest)
    if zone is None:
        return _cannot_parse(text, rest, "Z07:00")
    fault = "day out of range"  # of its month: the only remaining error if each part is in range
    if zone.end() < len(rest):
        fault = f"extra text: {_quote(rest[zone.end() :])}"
    elif zone.group(1) is not None and int(zone.group(1)) > _ZONE_HOURS_MAX:
        fault = "time zone offset hour out of range"
    elif zone.group(2) is not None and int(zone.group(2)) > _ZONE_MINUTES_MAX:
        fault = "time zone offset minute out of range"
    return f"parsing time {_quote(text)}: {fault}"


def format_duration(duration_ns: int) -> str:
    """Go's Duration.String: `0s`, `1.5ms`, `2m0s`, `1h30m0s`, with a minus sign when negative."""
    if duration_ns < 0:
        return "-" + format_duration(-duration_ns)
    if duration_ns == 0:
        return "0s"
    for unit, unit_ns in (("ns", 1), ("\u00b5s", NS_PER_US), ("ms", NS_PER_MS)):
        if duration_ns < unit_ns * 1_000:
            return _decimal(duration_ns, unit_ns) + unit
    hours, rest = divmod(duration_ns, NS_PER_HOUR)
    minutes, rest = divmod(rest, NS_PER_MINUTE)
    text = _decimal(rest, NS_PER_S) + "s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def parse_duration(text: str) -> int | None:
    """Nanoseconds of a duration in Go's format (`1h30m`, `-1.5s`, `0`), or None when it is invalid or out of range."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        return None
    total_ns = 0
    position = 0
    while position < len(rest):
        match = _DURATION_PART.match(rest, position)
        if match is None or not (match.group(1) or match.group(2)):
            return None
        unit_ns = _UNIT_NS[match.group(3)]
        whole, fraction = match.group(1) or "0", match.group(2) or ""
        total_ns += int(whole) * unit_ns + int(fraction or "0") * unit_ns // 10 ** len(fraction)
        if total_ns > DURATION_NS_MAX:
            return None
        position = match.end()
    return sign * total_ns


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _cannot_parse(text: str, rest: str, element: str) -> str:
    layout = "2006-01-02T15:04:05Z07:00"
    return f'parsing time {_quote(text)} as "{layout}": cannot parse {_quote(rest)} as "{element}"'


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}." + f"{rest:0{digits}d}".rstrip("0")
