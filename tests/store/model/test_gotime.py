"""Go's texts of times and durations."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.gotime import (
    DURATION_NS_MAX,
    NS_PER_S,
    ZERO_TIME_NS,
    explain_time,
    format_duration,
    format_time,
    http_date,
    parse_duration,
    parse_time,
    until_ns,
)

LAST_NS = 253_402_300_800 * 10**9 - 1  # the end of the year 9999


@pytest.mark.parametrize(
    ("unix_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (120_000_000, "1970-01-01T00:00:00.12Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (ZERO_TIME_NS, "0001-01-01T00:00:00Z"),
        (LAST_NS, "9999-12-31T23:59:59.999999999Z"),
        (1_767_323_045_120_000_000, "2026-01-02T03:04:05.12Z"),
    ],
)
def test_known_times(unix_ns: int, text: str) -> None:
    assert format_time(unix_ns) == text
    assert parse_time(text) == unix_ns


@given(st.integers(ZERO_TIME_NS, LAST_NS))
def test_times_come_back(unix_ns: int) -> None:
    assert parse_time(format_time(unix_ns)) == unix_ns


@given(st.integers())
def test_times_out_of_range_are_clamped(unix_ns: int) -> None:
    assert parse_time(format_time(unix_ns)) == min(max(unix_ns, ZERO_TIME_NS), LAST_NS)


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("2024-01-02T03:04:05+02:00", "2024-01-02T01:04:05Z"),
        ("2024-01-02T03:04:05-23:59", "2024-01-03T03:03:05Z"),
        ("2024-01-02T03:04:05.1234567899Z", "2024-01-02T03:04:05.123456789Z"),
        ("2024-01-02T03:04:05,5Z", "2024-01-02T03:04:05.5Z"),
        ("2024-02-29T00:00:00+24:00", "2024-02-28T00:00:00Z"),
    ],
)
def test_other_forms_of_a_time(text: str, same_as: str) -> None:
    assert parse_time(text) == parse_time(same_as) is not None


@given(st.text(max_size=30) | st.from_regex(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?x?"))
def test_any_text_is_a_time_or_has_a_reason(text: str) -> None:
    if parse_time(text) is None:
        assert explain_time(text).startswith("parsing time ")


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5\u00b5s"),
        (100_000_000, "100ms"),
        (999_999_999, "999.999999ms"),
        (1_000_000_000, "1s"),
        (90_000_000_000, "1m30s"),
        (120_000_000_000, "2m0s"),
        (3_600_000_000_000, "1h0m0s"),
        (5_430_000_000_001, "1h30m30.000000001s"),
        (-1_500_000_000, "-1.5s"),
        (DURATION_NS_MAX, "2562047h47m16.854775807s"),
    ],
)
def test_known_durations(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text
    assert parse_duration(text) == duration_ns


@given(st.integers(-DURATION_NS_MAX, DURATION_NS_MAX))
def test_durations_come_back(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("0", 0), ("+5s", 5 * 10**9), (".5s", 5 * 10**8), ("1.s", 10**9), ("1us", 1000), ("1h1h", 7200 * 10**9)],
)
def test_other_forms_of_a_duration(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize("text", ["", "-", "5", "s", ".s", "1.5", "1 s", "1d", "3000000h", "5s ", "--5s", "٣s"])
def test_texts_that_are_no_duration(text: str) -> None:
    assert parse_duration(text) is None


@given(st.text(max_size=20))
def test_any_text_is_judged_without_failing(text: str) -> None:
    found = parse_duration(text)

    assert found is None or abs(found) <= DURATION_NS_MAX


def test_the_time_until_a_moment_has_64_bits_as_in_go() -> None:
    assert until_ns(LAST_NS, 10**18) == DURATION_NS_MAX
    assert until_ns(ZERO_TIME_NS, 10**18) == -DURATION_NS_MAX - 1
    assert until_ns(5, 3) == 2


@pytest.mark.parametrize("unix_s", [0, 951_782_399, 1_709_210_096, 1_798_761_599, 4_102_444_800])
def test_dates_of_http_are_those_of_the_library(unix_s: int) -> None:
    assert http_date(unix_s * NS_PER_S + 999_999_999) == formatdate(unix_s, usegmt=True)
