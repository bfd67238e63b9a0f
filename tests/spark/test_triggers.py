"""Limits of a micro-batch and pauses of an idle query, with a clock that the test turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream import triggers
from pyspark_jetstream.triggers import Minimum, Pace, shares


class Clock:
    """Counts the seconds that are slept."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(triggers, "time", made)
    return made


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000), min_size=1), st.integers(1, 2000))
def test_streams_share_a_limit_and_each_one_comes_to_its_turn(waiting: dict[str, int], rows_max: int) -> None:
    given_rows = shares(rows_max, waiting)
    assert sum(given_rows.values()) == min(rows_max, sum(waiting.values()))
    assert all(0 <= given_rows[name] <= rows for name, rows in waiting.items())
    if rows_max >= len(waiting):
        assert all(given_rows[name] for name, rows in waiting.items() if rows)


def test_an_idle_query_asks_less_and_less_often_and_a_busy_one_at_once(clock: Clock) -> None:
    pace, asked = Pace(), 0
    end_s = clock.now_s + 10
    while clock.now_s < end_s:
        pace.wait()
        asked += 1
        pace.note(idle=True, streams=1)
        clock.sleep(0.01)  # Spark's polling delay
    assert asked < 10 * 5
    pace.note(idle=False, streams=1)
    before_s = clock.now_s
    pace.wait()
    assert clock.now_s == before_s


def test_many_idle_streams_cost_as_little(clock: Clock) -> None:
    pace, asked = Pace(), 0
    for _ in range(200):
        pace.wait()
        asked += 20
        pace.note(idle=True, streams=20)
    assert asked / (clock.now_s - 100.0) < 10


def test_a_small_batch_waits_until_it_is_large_or_old_enough(clock: Clock) -> None:
    minimum = Minimum(rows_min=100, delay_max_s=60.0)
    assert minimum.is_due(0)
    assert not minimum.is_due(5)
    clock.sleep(59)
    assert not minimum.is_due(99)
    assert minimum.is_due(100)
    assert not minimum.is_due(5)
    clock.sleep(60)
    assert minimum.is_due(5)
    assert Minimum(rows_min=None, delay_max_s=60.0).is_due(1)
