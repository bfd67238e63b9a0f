"""Can the explorer see a broken rule? One is broken at a time, and some state must show it soon."""

import pytest

from tests.crash_states.__main__ import main
from tests.crash_states.exploration import explore
from tests.crash_states.mutations import MUTATIONS, Mutation, files_are_not_synced, first_noticed, is_noticed_at_once
from tests.crash_states.series import SEEDS
from tests.harness.forms import IS_LONG


@pytest.mark.mutation
@pytest.mark.long_form
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.instead)
def test_a_broken_rule_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch(monkeypatch)
    if not IS_LONG and is_noticed_at_once(mutation):
        return
    noticed = first_noticed(SEEDS)
    assert noticed is not None
    judged, outcome = noticed
    assert judged <= mutation.states
    if mutation.found is not None and IS_LONG:
        assert mutation.found in {(found.seed, found.operation) for found in outcome.violations}


def test_a_violation_comes_again_when_its_crash_is_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    files_are_not_synced(monkeypatch)
    first = explore(SEEDS[0], steps=30).violations[0]
    assert explore(SEEDS[0], steps=30, at=first.operation).violations[0] == first


def test_the_command_fails_and_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files_are_not_synced(monkeypatch)
    assert main(["--first", str(SEEDS[0]), "--states", "1"]) == 1
    assert f"python -m tests.crash_states --first {SEEDS[0]} --at " in capsys.readouterr().out
