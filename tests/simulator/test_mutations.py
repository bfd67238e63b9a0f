"""Is a missing rule noticed? One is switched off at a time, and some seed, scenario or test must notice soon."""

import re
from pathlib import Path

import pytest

from tests.harness.forms import IS_LONG
from tests.simulator.mutations import MUTATIONS, SCENARIOS, Mutation, first_noticed, is_noticed
from tests.simulator.unit_mutations import REASONS, UNIT_MUTATIONS
from tests.simulator.unit_runs import UnitMutation, still_passing

RULES = range(1, 45)  # docs/raft.md
TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "raft.md"


@pytest.mark.mutation
@pytest.mark.long_form
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.rule}: {mutation.instead}")
def test_a_missing_rule_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch(monkeypatch)
    if IS_LONG:
        assert first_noticed(mutation) == mutation.first
    else:
        assert is_noticed(mutation)


@pytest.mark.mutation
@pytest.mark.parametrize("mutation", UNIT_MUTATIONS, ids=lambda mutation: f"{mutation.rule}: {mutation.instead}")
def test_a_missing_rule_that_no_seed_can_notice_fails_its_tests(mutation: UnitMutation) -> None:
    assert still_passing(mutation) == []


def test_every_rule_has_a_mutation() -> None:
    seen = {mutation.rule for mutation in MUTATIONS}
    units = {mutation.rule for mutation in UNIT_MUTATIONS}
    assert seen | units == set(RULES)
    assert units - seen <= REASONS.keys()


def test_the_page_on_raft_says_which_rule_is_where() -> None:
    page = PAGE.read_text()
    rows = {row for row in page.splitlines() if re.match(r"\| \d+ \|", row)}
    missing = [row for row in [*map(seen_row, MUTATIONS), *map(unit_row, UNIT_MUTATIONS)] if row not in rows]
    assert not missing, "\n".join(missing)


def seen_row(mutation: Mutation) -> str:
    is_scenario = (SCENARIOS / mutation.where).is_file()
    where, seeds = (
        (f"scenarios/{mutation.where}", "- | -")
        if is_scenario
        else (mutation.where, f"{mutation.first} | {mutation.seeds}")
    )
    return f"| {mutation.rule} | {mutation.instead} | `{where}` | {seeds} |"


def unit_row(mutation: UnitMutation) -> str:
    files = sorted({f"`{test.partition('::')[0]}`" for test in mutation.tests})
    return f"| {mutation.rule} | {mutation.instead} | {REASONS.get(mutation.rule, '')} | {', '.join(files)} |"
