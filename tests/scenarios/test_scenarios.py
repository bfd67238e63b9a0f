"""Every scenario happens as it is written (`python -m tests.scenarios.perform` writes them again)."""

from pathlib import Path

import pytest

from tests.scenarios.perform import FOLDER, perform

SCENARIOS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_happens_as_it_is_written(path: Path) -> None:
    text = path.read_text()
    assert perform(text) == text
    assert "VIOLATION" not in text
    assert text.count("\n    ") > text.count("\n> "), "it tells what came of its steps"
