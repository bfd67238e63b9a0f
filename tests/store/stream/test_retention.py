"""Sizes and ages."""

import pytest

from jetraft.store.stream.retention import SizeModel, age_cutoff_ts_ns, age_deadline_ts_ns


@pytest.mark.parametrize(
    ("model", "hdr_len", "counted"),
    [
        (SizeModel.FILE, 0, 22 + 3 + 5 + 8),
        (SizeModel.FILE, 12, 22 + 3 + 4 + 12 + 5 + 8),
        (SizeModel.MEMORY, 12, 16 + 20),
    ],
)
def test_the_size_of_a_message(model: SizeModel, hdr_len: int, counted: int) -> None:
    assert model.message_bytes(3, hdr_len, 5) == counted


def test_without_an_age_nothing_is_too_old() -> None:
    assert age_cutoff_ts_ns(now_ts_ns=100, max_age_ns=0) is None
    assert age_deadline_ts_ns(oldest_ts_ns=100, max_age_ns=0) is None


def test_an_empty_stream_waits_for_no_age() -> None:
    assert age_deadline_ts_ns(oldest_ts_ns=None, max_age_ns=10) is None


def test_at_the_deadline_the_oldest_is_below_the_cutoff_and_just_before_it_is_not() -> None:
    deadline = age_deadline_ts_ns(oldest_ts_ns=100, max_age_ns=10)
    assert deadline is not None
    at, before = (age_cutoff_ts_ns(now_ts_ns=now, max_age_ns=10) for now in (deadline, deadline - 1))
    assert at is not None
    assert before is not None
    assert before <= 100 < at
