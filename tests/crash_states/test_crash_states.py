"""The short form of `make crash-states`: what crashes leave of a store keeps every promise."""

from collections import Counter

import pytest

from tests.crash_states.__main__ import main
from tests.crash_states.exploration import explore
from tests.crash_states.series import MET, SEEDS, played
from tests.harness.forms import examples

pytestmark = pytest.mark.campaign


@pytest.mark.long_form
@pytest.mark.parametrize("seed", SEEDS[: examples(4, long=10)])
def test_whatever_a_crash_leaves_is_what_was_promised(seed: int) -> None:
    outcome = explore(seed)
    assert not outcome.violations, "\n".join(map(str, outcome.violations))


def test_the_lives_do_everything_that_an_opening_must_cope_with() -> None:
    met = Counter[str]()
    for seed in range(30):
        met += explore(seed, at=0).met
    assert met.keys() >= MET


def test_a_seed_decides_everything() -> None:
    assert explore(SEEDS[0], steps=30) == explore(SEEDS[0], steps=30)


def test_processes_only_share_the_work() -> None:
    alone = list(played(150, first=SEEDS[0], jobs=1, steps=10))
    assert list(played(150, first=SEEDS[0], jobs=2, steps=10)) == alone
    assert len(alone) > 1
    assert sum(outcome.states.total() for outcome in alone[:-1]) < 150


def test_the_command_succeeds_when_nothing_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first", str(SEEDS[0]), "--at", "100"]) == 0
    assert "0 violations" in capsys.readouterr().out
