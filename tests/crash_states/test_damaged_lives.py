"""The short form of the lives with damage of `make crash-states`, and whether they notice a broken rule."""

from collections import Counter

import pytest

from tests.crash_states.__main__ import main
from tests.crash_states.damaged_lives import DAMAGES, MUTATIONS, LifeMutation, is_noticed, lived
from tests.harness.forms import IS_LONG, examples

pytestmark = pytest.mark.campaign


@pytest.mark.long_form
@pytest.mark.parametrize("seed", range(examples(4, long=100)))
def test_what_was_acknowledged_is_served_or_listed(seed: int) -> None:
    assert not lived(seed, Counter(), DAMAGES if seed % 3 else ())


def test_the_lives_meet_every_damage_and_crashes_in_openings() -> None:
    met = Counter[str]()
    for seed in range(12):
        assert not lived(200 + seed, met)
    assert met.keys() >= {"crashes", "crashes in an opening", "compacted", "listed as lost", "rot"}
    assert len(met.keys() & set(DAMAGES)) >= len(DAMAGES) - 2
    assert met["unavailable"] <= met["lives"] // 2


@pytest.mark.long_form
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.instead)
def test_a_broken_rule_is_noticed_by_a_life(mutation: LifeMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch(monkeypatch)
    assert is_noticed(mutation, long=IS_LONG)


def test_the_command_plays_lives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first", "300", "--lives", "2"]) == 0
    assert "2 lives, 0 violations" in capsys.readouterr().out
