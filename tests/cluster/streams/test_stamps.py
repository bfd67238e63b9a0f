"""What a stream's leader takes for now, when its log is ahead of all clocks."""

from __future__ import annotations

import pytest

from jetraft.cluster.streams.stamps import StampClock
from jetraft.store.model.clock import NS_PER_S, ManualClock

HOUR_NS = 3600 * NS_PER_S


def test_now_is_the_node_s_clock() -> None:
    clock = ManualClock()
    stamps = StampClock(clock, clock.unix_ns() - HOUR_NS)
    clock.advance(5)
    assert stamps.now_ns() == clock.unix_ns()


def test_behind_a_log_from_the_future_time_goes_on_from_there() -> None:
    clock = ManualClock()
    last_ts_ns = clock.unix_ns() + HOUR_NS
    stamps = StampClock(clock, last_ts_ns)
    assert stamps.now_ns() == last_ts_ns
    clock.advance(10 * NS_PER_S)
    assert abs(stamps.now_ns() - last_ts_ns - 10 * NS_PER_S) <= NS_PER_S // 10


def test_what_a_log_is_ahead_by_is_worked_off_and_not_more() -> None:
    clock = ManualClock()
    stamps = StampClock(clock, clock.unix_ns() + NS_PER_S)
    before_ns = stamps.now_ns()
    for _ in range(200):
        clock.advance(NS_PER_S)
        assert stamps.now_ns() > before_ns
        before_ns = stamps.now_ns()
    assert stamps.now_ns() == clock.unix_ns()


def test_a_clock_that_is_set_back_after_the_term_began_lets_time_go_on() -> None:
    clock = ManualClock()
    stamps = StampClock(clock, 0)
    before_ns = stamps.now_ns()
    clock.epoch_ns -= HOUR_NS
    clock.advance(10 * NS_PER_S)
    assert abs(stamps.now_ns() - before_ns - 10 * NS_PER_S) <= NS_PER_S // 10


@pytest.mark.parametrize("ahead_ns", [0, HOUR_NS])
def test_a_clock_that_is_set_ahead_after_the_term_began_makes_nothing_older(ahead_ns: int) -> None:
    clock = ManualClock()
    stamps = StampClock(clock, clock.unix_ns() + ahead_ns)
    before_ns = stamps.now_ns()
    clock.epoch_ns += 2 * HOUR_NS
    clock.advance(10 * NS_PER_S)
    assert abs(stamps.now_ns() - before_ns - 10 * NS_PER_S) <= NS_PER_S // 10


def test_a_log_from_the_future_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    StampClock(clock, clock.unix_ns() + HOUR_NS, stream="S")
    assert "stream S: the last message is 3600 s ahead of the clock" in caplog.text
    caplog.clear()
    StampClock(clock, clock.unix_ns() + NS_PER_S, stream="S")
    assert not caplog.text
