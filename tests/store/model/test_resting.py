"""A walk over everything takes a small share of the thread, however much there is."""

import pytest

from jetraft.store.model.clock import NS_PER_MS, NS_PER_S, REST_S_MAX, WALK_SHARE, rest_s, tick_s


@pytest.mark.parametrize(
    ("took_ns", "expected_s"), [(0, 0.5), (NS_PER_MS // 10, 0.5), (NS_PER_MS, 2.0), (2 * NS_PER_MS, 4.0)]
)
def test_a_long_walk_is_followed_by_a_long_rest(took_ns: int, expected_s: float) -> None:
    assert rest_s(0.5, took_ns) == expected_s
    assert took_ns * WALK_SHARE <= expected_s * NS_PER_S


def test_a_rest_ends_though_the_walk_was_very_long() -> None:
    assert rest_s(0.5, NS_PER_S) == REST_S_MAX


def test_tasks_wake_together_and_never_at_once() -> None:
    woken = {tick_s(now_s, 0.5) for now_s in (10.0, 10.01, 10.2, 10.24)}
    assert woken == {10.5}
    assert tick_s(10.25, 0.25) == 10.5
    assert tick_s(10.26, 1.0) == 11.25
