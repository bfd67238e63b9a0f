"""No promise is broken while members come, go, lose their disks and come back; nor among five."""

import pytest

from tests.simulator.copying import KINDS
from tests.simulator.nodes.run import MODES as NODE_MODES
from tests.simulator.run import MODES
from tests.simulator.series import MET, play_some, seeds_of

pytestmark = pytest.mark.campaign


@pytest.mark.long_form
@pytest.mark.parametrize("mode", ["five", "member", "forget", "forget-five"])
def test_no_promise_is_broken_while_members_change_and_forget(mode: str) -> None:
    series = play_some(mode, "core", seeds_of(mode))
    assert series.problems == {}
    assert series.counts.keys() >= MET[mode]


def test_every_mode_has_a_list_of_what_it_meets() -> None:
    assert MET.keys() == {*MODES, *KINDS, "node", *NODE_MODES}
