"""When a schedule is due: `@at` a time, `@every` interval, or a cron pattern of six fields with a time zone.

Fields are seconds, minutes, hours, day of month, month, day of week: numbers, names of months and days, `*` and `?`,
ranges, lists, steps. If both days are restricted, one of them suffices. Around a change of the clock a local time that
does not exist is left out, and one that exists twice is due twice. Source: ADR-51, robfig/cron, whose rules nats-server
has; what is refused was observed on 2.15.1.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from importlib.util import find_spec
from os.path import isfile
from pathlib import Path
from typing import Final
from zoneinfo import TZPATH, ZoneInfo

import attrs

from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import parse_duration, parse_time

INTERVAL_NS_MIN: Final = NS_PER_S
DUE_NS_MAX: Final = 2**62  # later is never: it is the year 2116
YEARS_MAX: Final = 5  # a pattern that is not due for longer is wrong: the 30th of February
PATTERNS_CACHED: Final = 1024
# A list of every value in every field has half as many; a header could hold 64 KiB, which takes 50 ms to read.
PATTERN_CHARS_MAX: Final = 1024
ZONE_CHARS_MAX: Final = 255
MONTH_DAYS_MAX: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_AT: Final = "@at "
_EVERY: Final = "@every "
_NAMED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_MONTHS: Final = {
    name: at
    for at, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_DAYS: Final = {name: at for at, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_NONE: Final[dict[str, int]] = {}
_FIELDS: Final = ((0, 59, _NONE), (0, 59, _NONE), (0, 23, _NONE), (1, 31, _NONE), (1, 12, _MONTHS), (0, 6, _DAYS))
_INTEGER: Final = re.compile(r"\+?[0-9]{1,9}")


@attrs.frozen(slots=True)
class Field:
    """The values that one field admits; `is_any` when it does not restrict."""

    values: frozenset[int]
    is_any: bool


@attrs.frozen(slots=True)
class Cron:
    """A parsed pattern, in a zone."""

    fields: tuple[Field, ...]
    zone: tzinfo

    def next_after(self, unix_ns: int) -> int | None:
        """The first time after this one, in whole seconds; None when there is none for years."""
        second, minute, hour, _, months = (field.values for field in self.fields[:5])
        at_s = unix_ns // NS_PER_S + 1
        end_s = at_s + (YEARS_MAX + 1) * 366 * 86_400
        last_year = datetime.fromtimestamp(at_s, self.zone).year + YEARS_MAX
        while at_s < end_s:
            local = datetime.fromtimestamp(at_s, self.zone)
            if local.year > last_year:
                return None
            if local.month not in months:
                at_s = max(at_s + 1, _month_after(local))
            elif not self._is_on(local):
                at_s = max(at_s + 1, _midnight_after(local))
            elif local.hour not in hour:
                at_s += 3600 - local.minute * 60 - local.second
            elif local.minute not in minute:
                at_s += 60 - local.second
            elif local.second not in second:
                at_s += 1
            else:
                return at_s * NS_PER_S
        return None

    def _is_on(self, local: datetime) -> bool:
        """Whether the day of a month of the pattern is one of its days."""
        of_month, _, of_week = self.fields[3:]
        days = local.day in of_month.values, local.isoweekday() % 7 in of_week.values
        return all(days) if of_month.is_any or of_week.is_any else any(days)


def is_possible(cron: Cron) -> bool:
    """Whether there is such a day: one of the days of the month in one of the months, or any day of the week."""
    of_month, months, of_week = cron.fields[3:]
    if not of_week.is_any and not of_month.is_any:
        return True
    return min(of_month.values) <= max(MONTH_DAYS_MAX[month - 1] for month in months.values)


@attrs.frozen(slots=True)
class Occurrence:
    """The successor of a time that was due: the next one, and how that is written; None for a schedule that ends."""

    due_ns: int
    zone: tzinfo


def zone_of(name: str) -> tzinfo | None:
    """The time zone of this name, None when this machine knows none."""
    if name == "UTC":
        return UTC
    # A publisher chooses the name, and ZoneInfo takes ten times as long to find that there is no such zone.
    if not name or len(name) > ZONE_CHARS_MAX:
        return None
    if not any(isfile(f"{folder}/{name}") for folder in zone_folders()):  # noqa: PTH113  a Path takes five times as long
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # no name of a zone, a folder of zones, no such zone
        return None


@cache
def zone_folders() -> tuple[str, ...]:
    """The folders that ZoneInfo looks in: the machine's folders of zones, and that of the package tzdata."""
    found = find_spec("tzdata")
    of_package = [f"{place}/zoneinfo" for place in (found.submodule_search_locations or ())] if found else []
    return tuple(folder for folder in (*TZPATH, *of_package) if Path(folder).is_dir())


def first_due_ns(pattern: str, zone: str | None, unix_ns: int) -> int | None:
    """When a schedule that is stored at this time is due for the first time; None for a wrong pattern or zone."""
    if pattern.startswith(_AT):
        at_ns = parse_time(pattern[len(_AT) :]) if zone is None else None
        return None if at_ns is None else min(at_ns, DUE_NS_MAX)
    return _repeated_ns(pattern, zone, unix_ns)


def next_due(pattern: str, zone: str | None, due_ns: int, now_ns: int) -> Occurrence | None:
    """The successor of a time that was due, and is not past; None when nothing does.

    What has been missed is not made up for: after a pause a schedule is due once, and then goes on from now.
    """
    if pattern.startswith(_AT):
        return None
    next_ns = _repeated_ns(pattern, zone, due_ns)
    if next_ns is not None and next_ns < now_ns:
        next_ns = _repeated_ns(pattern, zone, _rounded(now_ns))
    return None if next_ns is None else Occurrence(next_ns, zone_of(zone or "UTC") or UTC)


def _repeated_ns(pattern: str, zone: str | None, from_ns: int) -> int | None:
    if pattern.startswith(_EVERY):
        interval_ns = parse_duration(pattern[len(_EVERY) :]) if zone is None else None
        if interval_ns is None or interval_ns < INTERVAL_NS_MIN:
            return None
        return min(_rounded(from_ns) + interval_ns, DUE_NS_MAX)
    if len(pattern) > PATTERN_CHARS_MAX or (zone is not None and len(zone) > ZONE_CHARS_MAX):
        return None
    cron = parsed(pattern, zone)
    return None if cron is None else cron.next_after(from_ns)


@lru_cache(maxsize=PATTERNS_CACHED)
def parsed(pattern: str, zone: str | None) -> Cron | None:
    """A cron pattern, or one of the named ones; None for a wrong one or an unknown zone."""
    found = _NAMED.get(pattern, pattern).split()
    where = zone_of("UTC" if zone is None else zone)
    if len(found) != len(_FIELDS) or where is None:
        return None
    fields = [_field(text, *bounds) for text, bounds in zip(found, _FIELDS, strict=True)]
    cron = Cron(tuple(field for field in fields if field is not None), where) if all(fields) else None
    return cron if cron is not None and is_possible(cron) else None


def _field(text: str, low: int, high: int, names: dict[str, int]) -> Field | None:
    parts = [_part(part, low, high, names) for part in text.split(",") if part]
    whole = [part for part in parts if part is not None]
    if not parts or len(whole) < len(parts):
        return None
    return Field(frozenset().union(*(part.values for part in whole)), any(part.is_any for part in whole))


def _part(text: str, low: int, high: int, names: dict[str, int]) -> Field | None:
    """`*`, `3`, `3-7`, `mon-fri`, each with `/2` or without."""
    span, slash, every = text.partition("/")
    bounds = span.split("-")
    step = _number(every, _NONE) if slash else 1
    is_any = bounds[0] in ("*", "?")
    first = low if is_any else _number(bounds[0], names)
    last = high if is_any or (slash and len(bounds) == 1) else _number(bounds[-1], names)
    if first is None or last is None or not step or (len(bounds) > len("ab") and not is_any):
        return None
    if not low <= first <= last <= high:
        return None
    return Field(frozenset(range(first, last + 1, step)), is_any and step == 1)


def _number(text: str, names: dict[str, int]) -> int | None:
    named = names.get(text.lower())
    if named is not None:
        return named
    return int(text) if _INTEGER.fullmatch(text) else None


def _rounded(unix_ns: int) -> int:
    """To the nearest second."""
    return (unix_ns + NS_PER_S // 2) // NS_PER_S * NS_PER_S


def _month_after(local: datetime) -> int:
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    year, month = (local.year + 1, 1) if local.month == len(MONTH_DAYS_MAX) else (local.year, local.month + 1)
    return int(first.replace(year=year, month=month).timestamp())


def _midnight_after(local: datetime) -> int:
    following = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0) + timedelta(days=1)
    return int(following.timestamp())
