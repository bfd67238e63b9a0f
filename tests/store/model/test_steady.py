"""The clock of what is stored: it counts what has passed, whatever is done to the machine's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.clock import NS_PER_S, ManualClock
from jetraft.store.model.steady import AGREE_NS, MAJORITY_WAIT_NS, ClockReading, SteadyClock, agreed_offset

HOUR_NS = 3600 * NS_PER_S


def offset(clock: SteadyClock) -> int:
    """Where the clock is: Unix time minus what was counted."""
    return clock.unix_ns() - clock.elapsed_ns()


def peers(*walls_ns: int, steady_ns: int | None = None) -> list[ClockReading]:
    """Peers whose walls are so far from the calendar of `ManualClock`."""
    epoch_ns = ManualClock().epoch_ns
    set_ns = None if steady_ns is None else epoch_ns + steady_ns
    return [ClockReading(wall_ns=epoch_ns + wall_ns, steady_ns=set_ns) for wall_ns in walls_ns]


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS])
def test_a_wall_clock_that_is_set_moves_no_age(jump_ns: int) -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    clock.adjust((), nodes=1)
    before_ns = clock.unix_ns()
    machine.epoch_ns += jump_ns
    for _ in range(10):
        clock.adjust((), nodes=1)
        machine.advance(NS_PER_S)
    passed_ns = clock.unix_ns() - before_ns
    assert abs(passed_ns - 10 * NS_PER_S) <= NS_PER_S // 10
    assert passed_ns != 10 * NS_PER_S  # it follows, slowly


def test_a_step_of_a_second_is_worked_off_in_a_hundred() -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    clock.adjust((), nodes=1)
    machine.epoch_ns += NS_PER_S
    clock.adjust((), nodes=1)
    assert clock.statistics().correction_ns == NS_PER_S
    machine.advance(100 * NS_PER_S)
    assert clock.unix_ns() == machine.unix_ns()
    machine.advance(100 * NS_PER_S)
    assert clock.unix_ns() == machine.unix_ns()
    assert clock.statistics().correction_ns == 0


def test_a_slew_of_the_wall_clock_is_followed_closely() -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    for _ in range(1000):
        clock.adjust((), nodes=1)
        machine.advance(2 * NS_PER_S)
        machine.epoch_ns += 2 * NS_PER_S // 2000  # 500 ppm: what NTP does at most
        assert abs(clock.unix_ns() - machine.unix_ns()) <= 1_000_000


def test_a_clock_alone_in_its_opinion_follows_the_others() -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    clock.adjust(peers(0, 5_000_000), nodes=3)
    machine.epoch_ns += HOUR_NS
    clock.adjust(peers(0, 5_000_000), nodes=3)
    machine.advance(1000 * NS_PER_S)
    assert abs(offset(clock) - ManualClock().epoch_ns) <= 5_000_000
    assert clock.statistics().own_wall_ns >= HOUR_NS - 5_000_000
    assert clock.statistics().has_majority


def test_a_node_that_starts_with_a_wrong_wall_clock_begins_with_the_majority_s() -> None:
    machine = ManualClock(epoch_ns=ManualClock().epoch_ns + HOUR_NS)
    clock = SteadyClock(machine)
    clock.adjust(peers(0), nodes=3)  # one against one
    clock.adjust(peers(0, 1_000), nodes=3)
    assert offset(clock) == ManualClock().epoch_ns


def test_a_node_that_starts_takes_over_what_others_have_measured() -> None:
    machine = ManualClock(epoch_ns=ManualClock().epoch_ns + HOUR_NS)
    clock = SteadyClock(machine)
    clock.adjust(peers(HOUR_NS, HOUR_NS, steady_ns=7), nodes=3)  # all walls were set meanwhile
    assert offset(clock) == ManualClock().epoch_ns + 7
    assert clock.statistics().correction_ns == HOUR_NS - 7


def test_nothing_is_corrected_without_a_majority() -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    clock.adjust(peers(0, 0), nodes=3)
    machine.epoch_ns += HOUR_NS
    for found in (peers(0), peers(-HOUR_NS, 0), ()):
        clock.adjust(found, nodes=3)
        machine.advance(1000 * NS_PER_S)
        assert offset(clock) == ManualClock().epoch_ns
        assert not clock.statistics().has_majority


def test_a_clock_that_nobody_has_confirmed_is_not_handed_on() -> None:
    clock = SteadyClock(ManualClock())
    clock.adjust((), nodes=3)
    assert clock.reading() == (ManualClock().unix_ns(), None)
    clock.adjust(peers(0), nodes=3)
    assert clock.reading() == (ManualClock().unix_ns(), ManualClock().unix_ns())


def test_when_no_wall_clocks_agree_at_the_start_all_begin_with_the_middle_one() -> None:
    begun = []
    walls = [0, HOUR_NS, 3 * HOUR_NS]
    for own in walls:
        clock = SteadyClock(ManualClock(epoch_ns=ManualClock().epoch_ns + own))
        clock.adjust(peers(*(wall for wall in walls if wall != own)), nodes=3)
        begun.append(offset(clock) - ManualClock().epoch_ns)
    assert begun == [HOUR_NS] * 3


def test_two_of_three_that_do_not_agree_wait_for_the_third_a_while() -> None:
    machine = ManualClock(epoch_ns=ManualClock().epoch_ns + HOUR_NS)
    clock = SteadyClock(machine)
    clock.adjust(peers(0), nodes=3)
    assert not clock.is_set
    assert offset(clock) == ManualClock().epoch_ns  # the earlier one until then
    machine.advance(MAJORITY_WAIT_NS + 1)
    clock.adjust(peers(0), nodes=3)
    assert clock.is_set
    assert offset(clock) == ManualClock().epoch_ns


def test_agreement_is_of_more_than_half_of_all_nodes() -> None:
    assert agreed_offset(0, [0, HOUR_NS], nodes=3) == 0
    assert agreed_offset(HOUR_NS, [0, 1], nodes=3) == 0
    assert agreed_offset(HOUR_NS, [0, AGREE_NS, AGREE_NS + 1], nodes=5) is None
    assert agreed_offset(AGREE_NS, [0, 1], nodes=5) == AGREE_NS
    assert agreed_offset(0, [], nodes=1) == 0
    assert agreed_offset(0, [], nodes=2) is None


steps = st.lists(
    st.tuples(
        st.integers(0, 10**11),  # time that passes
        st.integers(-(10**13), 10**13),  # where the wall is put
        st.lists(st.integers(-(10**13), 10**13), max_size=4),  # where the peers' walls are
    ),
    max_size=20,
)


@given(steps)
def test_once_it_is_set_it_counts_what_has_passed(history: list[tuple[int, int, list[int]]]) -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    clock.adjust((), nodes=1)
    for passed_ns, wall_ns, others in history:
        before_ns = clock.unix_ns()
        machine.epoch_ns = ManualClock().epoch_ns + wall_ns
        clock.adjust(peers(*others, steady_ns=5), nodes=len(others) + 1)
        machine.advance(passed_ns)
        assert abs(clock.unix_ns() - before_ns - passed_ns) <= passed_ns // 100 + 1
