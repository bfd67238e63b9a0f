"""When schedules are due. What is refused is in the conformance scenes."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest

from jetraft.cluster.streams.schedules import cron
from jetraft.cluster.streams.schedules.cron import (
    PATTERN_CHARS_MAX,
    ZONE_CHARS_MAX,
    first_due_ns,
    next_due,
    parsed,
    zone_folders,
    zone_of,
)
from jetraft.store.model.gotime import format_time, parse_time

S = 10**9


def at(text: str) -> int:
    found = parse_time(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("pattern", "zone", "now", "due"),
    [
        ("@at 2030-01-01T00:00:00+02:00", None, "2026-01-01T00:00:00Z", "2029-12-31T22:00:00Z"),
        ("@at 2020-01-01T00:00:00Z", None, "2026-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("@every 90s", None, "2026-01-01T00:00:00.4Z", "2026-01-01T00:01:30Z"),
        ("@every 1.5s", None, "2026-01-01T00:00:00.6Z", "2026-01-01T00:00:02.5Z"),
        ("* * * * * *", None, "2026-01-01T00:00:00.9Z", "2026-01-01T00:00:01Z"),
        ("* * * * * *", None, "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"),
        ("@hourly", None, "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@weekly", None, "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("@yearly", None, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("0 30 4 1,15 * 5", None, "2026-01-02T05:00:00Z", "2026-01-09T04:30:00Z"),
        ("0 30 4 1,15 * *", None, "2026-01-02T05:00:00Z", "2026-01-15T04:30:00Z"),
        ("0 0 0 29 2 *", None, "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("5/20 10-12/2 0 * jan-mar MON", None, "2026-01-01T00:00:00Z", "2026-01-05T00:10:05Z"),
        ("5/20 10-12/2 0 * jan-mar MON", None, "2026-01-05T00:10:45Z", "2026-01-05T00:12:05Z"),
        ("0 0 5 * * *", "Europe/Amsterdam", "2026-01-01T00:00:00Z", "2026-01-01T04:00:00Z"),
        ("0 0 5 * * *", "Europe/Amsterdam", "2026-07-01T00:00:00Z", "2026-07-01T03:00:00Z"),
        ("0 30 2 * * *", "Europe/Amsterdam", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),  # 2:30 does not exist
        ("0 30 2 * * *", "Europe/Amsterdam", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"),  # 2:30 exists twice
        ("0 30 2 * * *", "Europe/Amsterdam", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ("0 0 0 31 2 *", None, "2026-01-01T00:00:00Z", None),
        ("0 0 0 31 2,4,6 *", None, "2026-01-01T00:00:00Z", None),
        ("0 0 0 31 2,4 mon", None, "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"),
        ("0 0 0 31 2-4 *", None, "2026-01-01T00:00:00Z", "2026-03-31T00:00:00Z"),
        ("0 0 0 1 1 *", "Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-12-31T18:30:00Z"),
        ("0 0 5 * * *", "No/Where", "2026-01-01T00:00:00Z", None),
    ],
)
def test_a_schedule_is_due_at(pattern: str, zone: str | None, now: str, due: str | None) -> None:
    found = first_due_ns(pattern, zone, at(now))
    assert (None if found is None else format_time(found)) == due


@pytest.mark.parametrize(
    ("pattern", "due", "now", "following"),
    [
        ("@every 10s", "2026-01-01T00:00:10Z", "2026-01-01T00:00:10.3Z", "2026-01-01T00:00:20Z"),
        ("@every 10s", "2026-01-01T00:00:10Z", "2026-01-01T05:00:02.3Z", "2026-01-01T05:00:12Z"),
        ("0 0 * * * *", "2026-01-01T01:00:00Z", "2026-01-01T05:00:02Z", "2026-01-01T06:00:00Z"),
        ("0 0 * * * *", "2026-01-01T01:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"),
    ],
)
def test_what_was_missed_is_not_made_up_for(pattern: str, due: str, now: str, following: str) -> None:
    found = next_due(pattern, None, at(due), at(now))
    assert found is not None
    assert format_time(found.due_ns) == following


def test_nothing_follows_a_time() -> None:
    assert next_due("@at 2026-01-01T00:00:00Z", None, at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z")) is None


def test_an_impossible_date_is_refused_without_a_search() -> None:
    assert parsed("0 0 0 30 2 *", None) is None
    assert parsed("0 0 0 29 2 *", None) is not None


def test_no_long_text_is_read_or_kept() -> None:
    every = "0-9," * 400
    parsed.cache_clear()
    assert first_due_ns(f"{every}0 * * * * *", None, 0) is None
    assert first_due_ns("* * * * * *", "A" * (ZONE_CHARS_MAX + 1), 0) is None
    assert parsed.cache_info().currsize == 0
    listed = ",".join(str(number) for number in range(60))
    assert len(pattern := f"{listed} {listed} 0-23 {listed[3:80]} * *") < PATTERN_CHARS_MAX
    assert first_due_ns(pattern, None, 0) is not None


@pytest.mark.parametrize(
    "name", ["", "*.zz", "Europe", "../zoneinfo/UTC", "/etc/localtime", "A\0B", "A" * 70_000, "Mars/Base"]
)
def test_a_name_that_is_no_zone_has_none(name: str) -> None:
    assert zone_of(name) is None


def test_zones_of_this_machine_and_of_the_package_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert zone_of("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    monkeypatch.setattr(cron, "TZPATH", ())  # a machine without zones
    zone_folders.cache_clear()
    try:
        assert zone_of("Europe/Berlin") == ZoneInfo("Europe/Berlin")
        assert len(zone_folders()) == 1
    finally:
        zone_folders.cache_clear()


def test_the_files_of_zones_are_looked_for_by_name_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def found(name: str) -> tzinfo:
        asked.append(name)
        return UTC

    monkeypatch.setattr(cron, "ZoneInfo", found)
    assert zone_of("*.zz") is None
    assert zone_of("Asia/Tokyo") is UTC
    assert asked == ["Asia/Tokyo"]
