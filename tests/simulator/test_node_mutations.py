"""Can whole nodes in the simulator see that a part of what joins them is missing?"""

from pathlib import Path

import pytest

from tests.simulator.nodes.mutations import MUTATIONS, NodeMutation, first_noticed

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.mutation
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.duty)
def test_a_missing_duty_is_noticed(mutation: NodeMutation) -> None:
    assert first_noticed(mutation) is not None


def test_the_page_on_reliability_lists_them() -> None:
    rows = set(PAGE.read_text().splitlines())
    missing = [row for row in map(row_of, MUTATIONS) if row not in rows]
    assert not missing, "\n".join(missing)


def row_of(mutation: NodeMutation) -> str:
    kinds = ", ".join(mutation.plan.kinds)
    return f"| {mutation.duty} | {mutation.instead} | {kinds} | {mutation.seeds} |"
