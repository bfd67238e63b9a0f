"""Whoever takes a rule of docs/storage.md out sees a test fail."""

import re
from pathlib import Path

import attrs
import pytest

from tests.crash_states import damaged_lives
from tests.crash_states import mutations as crashes
from tests.store import compiled
from tests.store.compiled import COMPILED, CompiledMutation
from tests.store.rules import ELSEWHERE, MUTATIONS, Mutation

DOCUMENT = Path(__file__).parents[2] / "docs" / "storage.md"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.rule}: {mutation.instead}")
def test_a_rule_that_is_switched_off_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):  # also where an expected error has not come
        mutation.witness()


@pytest.mark.parametrize("mutation", {mutation.rule: mutation for mutation in MUTATIONS}.values(), ids=lambda m: m.rule)
def test_the_witness_of_a_rule_passes_while_it_holds(mutation: Mutation) -> None:
    mutation.witness()


@pytest.mark.mutation
@pytest.mark.parametrize("mutation", COMPILED, ids=lambda mutation: f"{mutation.rule}: {mutation.instead}")
def test_a_rule_of_compiled_code_that_is_switched_off_is_noticed(mutation: CompiledMutation, tmp_path: Path) -> None:
    code, said = compiled.outcome(mutation, compiled.built(mutation, tmp_path))
    assert code == pytest.ExitCode.TESTS_FAILED, said


@pytest.mark.mutation
@pytest.mark.parametrize("module", sorted({mutation.module for mutation in COMPILED}))
def test_a_module_that_is_built_again_without_an_edit_passes_the_same_tests(module: str, tmp_path: Path) -> None:
    mine = [mutation for mutation in COMPILED if mutation.module == module]
    file = compiled.built(attrs.evolve(mine[0], new=mine[0].old), tmp_path)
    for mutation in mine:
        code, said = compiled.outcome(mutation, file)
        assert code == pytest.ExitCode.OK, said


def test_every_rule_has_a_mutation_and_the_document_names_it() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rules = set(re.findall(r"^\| (S\d+) \|", text, re.MULTILINE))
    known = {mutation.rule for mutation in MUTATIONS} | ELSEWHERE.keys()
    known |= {mutation.rule for mutation in COMPILED}
    assert rules == known
    broken = [(each.rule, each.instead) for each in (*MUTATIONS, *COMPILED)]
    for rule, instead in [*broken, *ELSEWHERE.items()]:
        assert f"| {rule} | {instead} |" in text
    played = {each.instead for each in crashes.MUTATIONS} | {each.instead for each in damaged_lives.MUTATIONS}
    assert set(ELSEWHERE.values()) <= played
