"""What is read for the filters of `where`: never less than what Spark then keeps."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringStartsWith,
)

from pyspark_jetstream.pushdown import Narrowing, narrowing

SEQ, TIME, SUBJECT = ("stream_seq",), ("time",), ("subject",)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
KEEPS: dict[Any, Callable[[int, int], bool]] = {
    EqualTo: lambda seq, value: seq == value,
    GreaterThan: lambda seq, value: seq > value,
    GreaterThanOrEqual: lambda seq, value: seq >= value,
    LessThan: lambda seq, value: seq < value,
    LessThanOrEqual: lambda seq, value: seq <= value,
}


@given(st.lists(st.tuples(st.sampled_from(list(KEEPS)), st.integers(-2, 30)), max_size=4))
def test_the_range_is_that_of_all_filters_on_the_sequence(chosen: list[tuple[Any, int]]) -> None:
    found = narrowing([kind(SEQ, value) for kind, value in chosen], ())
    read = range(found.start_seq, 40 if found.end_seq is None else found.end_seq)
    kept = [seq for seq in range(1, 40) if all(KEEPS[kind](seq, value) for kind, value in chosen)]
    assert kept == list(read)


@pytest.mark.parametrize(
    ("filters", "options", "part"),
    [
        ([In(SEQ, (7, 3))], (), Narrowing(start_seq=3, end_seq=8)),
        ([In(SEQ, (7, None))], (), Narrowing()),
        ([EqualTo(SUBJECT, "a.b")], (), Narrowing(subjects=("a.b",))),
        ([EqualTo(SUBJECT, "a.*")], (), Narrowing()),
        ([EqualTo(SUBJECT, "a..b")], (), Narrowing()),
        ([In(SUBJECT, ("a.b", "c"))], (), Narrowing(subjects=("a.b", "c"))),
        ([StringStartsWith(SUBJECT, "a.b")], (), Narrowing(subjects=("a.>",))),
        ([StringStartsWith(SUBJECT, "a.*.b")], (), Narrowing()),
        ([StringStartsWith(SUBJECT, "a")], (), Narrowing()),
        ([StringContains(SUBJECT, "a."), IsNotNull(SUBJECT)], (), Narrowing()),
        ([EqualTo(SUBJECT, "a.b")], ("a.>",), Narrowing(subjects=("a.b",))),
        ([EqualTo(SUBJECT, "b.b")], ("a.>",), Narrowing(subjects=("a.>",))),
        ([EqualTo(("other",), 5), EqualTo(("subject", "part"), "a")], (), Narrowing()),
    ],
)
def test_filters_that_are_understood_narrow_what_is_read(
    filters: list[Filter], options: tuple[str, ...], part: Narrowing
) -> None:
    assert narrowing(filters, options) == part


def test_times_are_cut_to_microseconds_so_what_is_after_one_begins_a_microsecond_later() -> None:
    same, later = "2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:05.000007Z"
    assert narrowing([GreaterThanOrEqual(TIME, MOMENT)], ()).start_time == same
    assert narrowing([GreaterThan(TIME, MOMENT)], ()).start_time == later
    assert narrowing([LessThan(TIME, MOMENT)], ()).end_time == same
    assert narrowing([LessThanOrEqual(TIME, MOMENT)], ()).end_time == later
    both = narrowing([EqualTo(TIME, MOMENT), LessThan(TIME, MOMENT + timedelta(days=1))], ())
    assert (both.start_time, both.end_time) == (same, later)
