"""How long what a member has applied may be read."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.engine.port import Timing
from jetraft.raft.freshness import ENDLESS_NS, READ_GRACE_NS, STALENESS_MAX_NS, Freshness
from jetraft.raft.mesh.peers import SILENCE_NS, STALL_NS, WATCH_NS

GRACE = READ_GRACE_NS


@attrs.frozen
class Event:
    """What a member knows at a moment: how far its leader says it is, and what is applied."""

    now_ns: int
    told_index: int | None
    applied_index: int
    is_leader: bool = False
    is_news: bool = False


def play(events: list[Event]) -> Freshness:
    news: list[int] = []
    freshness = Freshness(lambda: news.append(1))
    for event in events:
        news.clear()
        freshness.note(
            is_leader=event.is_leader,
            told_index=event.told_index,
            applied_index=event.applied_index,
            now_ns=event.now_ns,
        )
        assert bool(news) is event.is_news, event
    return freshness


@pytest.mark.parametrize(
    ("events", "until_ns"),
    [
        pytest.param([], 0, id="nothing is known"),
        pytest.param([Event(10, None, 90)], 0, id="no leader since the start"),
        pytest.param([Event(10, 0, 90)], 0, id="a leader whose state is not complete says nothing"),
        pytest.param([Event(10, 100, 90)], 0, id="behind since the start"),
        pytest.param([Event(10, 100, 90), Event(20, None, 100)], 0, id="the leader went before it was reached"),
        pytest.param([Event(10, 100, 100, is_news=True)], ENDLESS_NS, id="level with the leader"),
        pytest.param([Event(10, 100, 90), Event(20, 100, 100, is_news=True)], ENDLESS_NS, id="reached"),
        pytest.param(
            [Event(10, 100, 90), Event(20, 110, 100, is_news=True)], 10 + GRACE, id="reached what was told at first"
        ),
        pytest.param(
            [Event(10, 100, 90), Event(11 + GRACE, 110, 100)], 10 + GRACE, id="reached so late that it is old again"
        ),
        pytest.param([Event(10, 100, 100, is_news=True), Event(20, 101, 100)], 20 + GRACE, id="behind from now on"),
        pytest.param(
            [Event(10, 100, 100, is_news=True), Event(20, 101, 100), Event(30, 105, 100)],
            20 + GRACE,
            id="behind for longer",
        ),
        pytest.param(
            [Event(10, 100, 100, is_news=True), Event(20, 101, 100), Event(30, 105, 101)],
            20 + GRACE,
            id="a step further",
        ),
        pytest.param(
            [Event(10, 100, 100, is_news=True), Event(20, 101, 100), Event(30, 105, 101), Event(40, 109, 105)],
            30 + GRACE,
            id="and another",
        ),
        pytest.param(
            [Event(10, 100, 100, is_news=True), Event(20, None, 100, is_news=True), Event(30, None, 100)],
            20 + GRACE,
            id="without a leader",
        ),
        pytest.param(
            [Event(10, 100, 100, is_news=True), Event(20, 0, 100, is_news=True)],
            20 + GRACE,
            id="a new leader that does not know yet",
        ),
        pytest.param([Event(10, None, 100, is_leader=True, is_news=True)], ENDLESS_NS, id="leads"),
        pytest.param(
            [Event(10, None, 100, is_leader=True, is_news=True), Event(20, None, 100, is_news=True)],
            20 + GRACE,
            id="led",
        ),
        pytest.param(
            [
                Event(10, 100, 100, is_news=True),
                Event(20, None, 100, is_news=True),
                Event(21 + GRACE, 120, 100),
                Event(22 + GRACE, 120, 120, is_news=True),
            ],
            ENDLESS_NS,
            id="comes back",
        ),
    ],
)
def test_reads_are_allowed_until(events: list[Event], until_ns: int) -> None:
    assert play(events).until_ns == until_ns


def test_who_takes_no_part_any_more_is_not_read() -> None:
    freshness = play([Event(10, 100, 100, is_news=True)])
    freshness.void()
    assert freshness.until_ns == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, GRACE // 4, GRACE // 2, GRACE, 2 * GRACE]),  # how much later
        st.sampled_from(["told", "silent", "leads", "ignorant"]),
        st.integers(0, 3),  # what is committed meanwhile
        st.integers(0, 3),  # and what is applied
    ),
    max_size=30,
)


@given(STEPS)
def test_what_was_told_before_the_grace_is_applied_where_reads_are_allowed(
    steps: list[tuple[int, str, int, int]],
) -> None:
    freshness, now_ns, committed, applied = Freshness(), 1, 5, 1
    told: list[tuple[int, int]] = []  # when, what was committed then
    had_all = False
    for later_ns, who, more, done in steps:
        for moment_ns in (now_ns + later_ns // 2, now_ns + later_ns):  # between two events, and at the next one
            if moment_ns <= freshness.until_ns:
                assert had_all
                assert (
                    any(at_ns >= moment_ns - GRACE and applied >= index for at_ns, index in told)
                    or freshness.until_ns == ENDLESS_NS
                )
        now_ns += later_ns + 1
        committed += more
        applied = committed if who == "leads" else min(committed, applied + done)
        told_index = {"told": committed, "ignorant": 0}.get(who)
        before_ns = freshness.until_ns
        freshness.note(is_leader=who == "leads", told_index=told_index, applied_index=applied, now_ns=now_ns)
        if before_ns == ENDLESS_NS:  # up to this event it had what had been told
            told.append((now_ns, applied))
        if who in ("told", "leads"):
            told.append((now_ns, committed))
        had_all |= any(applied >= index for _, index in told)
        if who in ("told", "leads") and applied == committed:
            assert freshness.until_ns == ENDLESS_NS


def test_the_bound_holds_what_it_takes_to_notice() -> None:
    """A member and a deposed leader, cut off together: the silence, the leader's look at its quorum, and the grace."""
    noticed_ns = SILENCE_NS + WATCH_NS + STALL_NS + 2 * Timing().quorum_check_ns
    assert noticed_ns + READ_GRACE_NS <= STALENESS_MAX_NS
