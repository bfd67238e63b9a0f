"""Messages leave at their age, and ids are remembered, whatever is done to one wall clock; and the simulator sees it.

Each rule of the clocks (decision 59) is switched off once, and some seed must notice soon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jetraft.store.model.steady import SteadyClock
from tests.harness.forms import examples
from tests.simulator.engines import play
from tests.simulator.series import MET, play_some

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.campaign
SEEDS = examples(10, long=60)
SEEDS_MAX = 60


def wall_clocks_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SteadyClock, "unix_ns", lambda clock: clock._machine.unix_ns())


def starts_believe_their_wall_clock(patch: pytest.MonkeyPatch) -> None:
    def set_by_wall(clock: SteadyClock, own_ns: int, _agreed_ns: int | None, _peers: Any, *, nodes: int) -> None:
        del nodes
        clock._offset_ns, clock.is_set = own_ns, True

    patch.setattr(SteadyClock, "_set", set_by_wall)


def differences_are_made_up_for_at_once(patch: pytest.MonkeyPatch) -> None:
    adjust = SteadyClock.adjust

    def step(clock: SteadyClock, peers: Any, *, nodes: int) -> None:
        adjust(clock, (), nodes=1)  # its own wall clock, whatever the others say
        adjust(clock, peers, nodes=nodes)
        clock._offset_ns = clock._machine.unix_ns() - clock.elapsed_ns()

    patch.setattr(SteadyClock, "adjust", step)


MUTATIONS: list[tuple[Callable[[pytest.MonkeyPatch], None], int]] = [  # and the first seed that notices
    (wall_clocks_are_believed, 4),
    (starts_believe_their_wall_clock, 6),
    (differences_are_made_up_for_at_once, 4),
]


@pytest.mark.long_form
def test_ages_are_right_whatever_is_done_to_a_wall_clock() -> None:
    series = play_some("clocks", "core", range(SEEDS))
    assert series.problems == {}
    assert series.counts.keys() >= MET["clocks"]


@pytest.mark.parametrize(("switch", "first"), MUTATIONS)
def test_a_missing_rule_is_noticed(
    switch: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch(monkeypatch)
    assert any(play(seed, "clocks").problem is not None for seed in (first, *range(SEEDS_MAX)))
