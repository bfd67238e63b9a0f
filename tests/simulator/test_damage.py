"""No promise is broken when entries of up to two disks are damaged at a time, also where elections look: at the end."""

import pytest

from tests.simulator.series import MET, play_some, seeds_of


@pytest.mark.long_form
@pytest.mark.parametrize("mode", ["damage", "damage-snap"])
def test_no_promise_is_broken_when_the_ends_of_logs_are_damaged(mode: str) -> None:
    series = play_some(mode, "core", seeds_of(mode))
    assert series.problems == {}
    assert series.counts.keys() >= MET[mode]
