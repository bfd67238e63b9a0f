"""Features (batches, schedules, dead letters ...) under faults: no promise is broken, and each rule is missed."""

import pytest

from tests.harness.forms import IS_LONG, examples
from tests.simulator.copying import KINDS
from tests.simulator.features.mutations import MUTATIONS, FeatureMutation, first_noticed, is_noticed
from tests.simulator.run import MODES
from tests.simulator.series import MET, play_some
from tests.simulator.test_node_mutations import PAGE

pytestmark = pytest.mark.campaign

FEATURES = ["batches", "counters", "schedules", "resets", "letters", "delays", "chain", *KINDS]
SEEDS = examples(6, long=200)
ONE_OF_EACH_MODE = list({mutation.mode: mutation for mutation in MUTATIONS}.values())


@pytest.mark.long_form
@pytest.mark.parametrize("mode", FEATURES)
def test_no_promise_of_a_feature_is_broken_under_faults(mode: str) -> None:
    series = play_some(mode, "core", range(SEEDS))
    assert series.problems == {}
    assert series.counts.keys() >= MET[mode]


@pytest.mark.long_form
@pytest.mark.parametrize("mutation", MUTATIONS if IS_LONG else ONE_OF_EACH_MODE, ids=lambda mutation: mutation.rule)
def test_a_missing_rule_of_a_feature_is_noticed(mutation: FeatureMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch(monkeypatch)
    if IS_LONG:
        assert first_noticed(mutation) == mutation.first
    else:
        assert is_noticed(mutation)


def test_every_feature_has_rules() -> None:
    assert {mutation.mode for mutation in MUTATIONS} == set(FEATURES)
    assert {name for name, mode in MODES.items() if mode.feature.__module__.endswith("feature")} == MODES.keys() - set(
        FEATURES
    )


def test_the_page_on_reliability_lists_the_rules() -> None:
    rows = set(PAGE.read_text().splitlines())
    missing = [row for row in map(row_of, MUTATIONS) if row not in rows]
    assert not missing, "\n".join(missing)


def row_of(mutation: FeatureMutation) -> str:
    return f"| {mutation.rule} | {mutation.instead} | `{mutation.mode}` | {mutation.first} |"
