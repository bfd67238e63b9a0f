"""What a stream's leader takes for now, when its log is ahead of all clocks."""

from __future__ import annotations

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
