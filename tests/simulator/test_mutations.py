"""Can the simulator see a missing rule? One is switched off at a time, and some seed must notice soon."""

import re
from pathlib import Path

import pytest

from tests.simulator.mutations import MUTATIONS, SCENARIOS, UNSEEN, Mutation, first_noticed

RULES = range(1, 37)  # ARCHITECTURE.md (Raft)
TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.rule}: {mutation.instead}")
def test_a_missing_rule_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch(monkeypatch)
    assert first_noticed(mutation, mutation.seeds) is not None


def test_every_rule_is_in_the_list_or_has_a_reason_not_to_be() -> None:
    seen = {mutation.rule for mutation in MUTATIONS}
    assert seen | UNSEEN.keys() == set(RULES)
    assert not seen & UNSEEN.keys()


@pytest.mark.parametrize("rule", UNSEEN)
def test_a_rule_that_no_seed_can_notice_has_tests_of_its_own(rule: int) -> None:
    for test in UNSEEN[rule].tests:
        path, name = test.split("::")
        assert re.search(rf"^(async )?def {name}\(", (TESTS / path).read_text(), re.MULTILINE), test


def test_the_page_on_reliability_says_which_rule_is_where() -> None:
    page = PAGE.read_text()
    rows = {row for row in page.splitlines() if re.match(r"\| \d+ \|", row)}
    missing = [row for row in [*map(seen_row, MUTATIONS), *map(unseen_row, UNSEEN)] if row not in rows]
    assert not missing, "\n".join(missing)


def seen_row(mutation: Mutation) -> str:
    is_scenario = (SCENARIOS / mutation.where).is_file()
    where, seeds = (f"scenarios/{mutation.where}", "-") if is_scenario else (mutation.where, mutation.seeds)
    return f"| {mutation.rule} | {mutation.instead} | `{where}` | {seeds} |"


def unseen_row(rule: int) -> str:
    elsewhere = UNSEEN[rule]
    files = sorted({f"`{test.partition('::')[0]}`" for test in elsewhere.tests})
    return f"| {rule} | {elsewhere.reason} | {', '.join(files)} |"
