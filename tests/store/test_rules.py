"""Whoever takes a rule of docs/storage.md out sees a test fail."""

import re
from pathlib import Path

import pytest

from tests.crash_states import damaged_lives
from tests.crash_states import mutations as crashes
from tests.store.rules import ELSEWHERE, MUTATIONS, WITHOUT, Mutation

DOCUMENT = Path(__file__).parents[2] / "docs" / "storage.md"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.rule}: {mutation.instead}")
def test_a_rule_that_is_switched_off_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):  # also where an expected error has not come
        mutation.witness()


@pytest.mark.parametrize("mutation", {mutation.rule: mutation for mutation in MUTATIONS}.values(), ids=lambda m: m.rule)
def test_the_witness_of_a_rule_passes_while_it_holds(mutation: Mutation) -> None:
    mutation.witness()


def test_every_rule_has_a_mutation_and_the_document_names_it() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rules = set(re.findall(r"^\| (S\d+) \|", text, re.MULTILINE))
    known = {mutation.rule for mutation in MUTATIONS} | ELSEWHERE.keys() | WITHOUT.keys()
    assert rules == known
    assert not WITHOUT.keys() & (known - WITHOUT.keys())
    for rule, instead in [*((each.rule, each.instead) for each in MUTATIONS), *ELSEWHERE.items()]:
        assert f"| {rule} | {instead} |" in text
    played = {each.instead for each in crashes.MUTATIONS} | {each.instead for each in damaged_lives.MUTATIONS}
    assert set(ELSEWHERE.values()) <= played
