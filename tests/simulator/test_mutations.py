"""Can the simulator see a missing rule? One is switched off at a time, and some seed must notice soon."""

import pytest

from tests.simulator.mutations import MUTATIONS, UNSEEN, Mutation, first_noticed

RULES = range(1, 37)  # ARCHITECTURE.md (Raft)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.rule}: {mutation.instead}")
def test_a_missing_rule_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch(monkeypatch)
    assert first_noticed(mutation, mutation.seeds) is not None


def test_every_rule_is_in_the_list_or_has_a_reason_not_to_be() -> None:
    seen = {mutation.rule for mutation in MUTATIONS}
    assert seen | UNSEEN.keys() == set(RULES)
    assert not seen & UNSEEN.keys()
