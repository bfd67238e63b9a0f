"""The short form of `python -m tests.corruption.witnesses`: each witness alone, and some of them together."""

from random import Random

import pytest

from tests.corruption.witnesses import (
    Combination,
    Instead,
    LoneStore,
    Witness,
    combined,
    is_consistent,
    parsed,
    spelled,
)
from tests.corruption.witnesses import witness_of as witness_of_file

pytestmark = pytest.mark.campaign

PLAIN = tuple(it for it in Witness if it is not Witness.KEYS)
BESIDE = {"lock", "emergency"}  # files that say nothing of what was acknowledged
TOGETHER = 12  # combinations of two to four witnesses
FOUND = [
    # by the first run of all pairs
    "ledger.0 older, ledger.1 older",
    "ledger.0 missing, ledger.1 older",
    "ledger.0 another's, ledger.1 another's",
    "ledger.0 another's, meta log missing",
    "ledger.0 another's, meta log older",
    # by a run of all combinations of five with these copies of the ledger
    "ledger.0 another's, ledger.1 another's, meta log older, checkpoints another's, blocks missing",
    "ledger.0 another's, ledger.1 another's, meta log older, checkpoints missing, blocks empty",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LoneStore:
    found = LoneStore(tmp_path_factory.mktemp("lone"), is_thorough=False)
    found.build()
    return found


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> LoneStore:
    found = LoneStore(tmp_path_factory.mktemp("lone"), is_encrypted=True, is_thorough=False)
    found.build()
    return found


def chosen() -> list[Combination]:
    """The same ones in each run."""
    found = list(combined(4, PLAIN))
    return [*map(parsed, FOUND), *Random(27).sample([it for it in found if len(it) > 1], TOGETHER)]


def check(store: LoneStore, combination: Combination) -> None:
    for is_oldest in {True, Instead.OLDER not in combination.values()}:
        finding = store.judged(combination, is_oldest=is_oldest)
        assert not finding.verdict.is_violation, f"{finding}\n{spelled(combination)}"


def test_every_file_of_a_store_bears_witness_or_says_nothing(encrypted: LoneStore) -> None:
    names = encrypted.tree.names()
    assert {witness_of_file(name) for name in names} >= set(Witness)
    assert {name.rpartition("/")[2] for name in names if witness_of_file(name) is None} <= BESIDE


def test_every_combination_is_made_once() -> None:
    found = [spelled(it) for it in combined(3, PLAIN)]
    undecidable = 4**2  # both copies changed, and the blocks older
    assert len(found) == len(set(found)) == 6 * 4 + 15 * 4**2 + 20 * 4**3 - undecidable
    assert all(spelled(parsed(text)) == text for text in found)
    assert not any(is_consistent(it) for it in combined(4, PLAIN))


@pytest.mark.parametrize("combination", list(combined(1, PLAIN)), ids=spelled)
def test_a_lone_server_serves_or_refuses_without_one_witness(store: LoneStore, combination: Combination) -> None:
    check(store, combination)


@pytest.mark.parametrize("combination", chosen(), ids=spelled)
def test_a_lone_server_serves_or_refuses_without_several(store: LoneStore, combination: Combination) -> None:
    check(store, combination)


@pytest.mark.parametrize("state", Instead)
def test_a_lone_server_serves_or_refuses_without_its_keys(encrypted: LoneStore, state: Instead) -> None:
    check(encrypted, {Witness.KEYS: state})
