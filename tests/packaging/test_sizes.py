"""A function fits on a screen: the longest of each folder may shrink and never grow.

Files and classes have no bound: their sizes follow from ideas. The numbers are lines, docstrings included. A change
that makes the longest function shorter lowers its number here; none raises one. Generated files are left out.
"""

import ast
from typing import Final

import pytest

from tests.harness.server import ROOT

GENERATED: Final = frozenset({"store/model/errors.py"})
SLACK: Final = 1.25  # a number this far above what it bounds has been forgotten

LONGEST: Final = {
    "api": 59,
    "cluster": 58,
    "raft": 48,
    "store": 58,
    "src/pyspark_jetstream": 29,
    "tests": 50,
    "demo": 31,
}


def _longest(folder: str) -> tuple[int, str]:
    """The lines of the folder's longest function, and where it is."""
    found = (0, "")
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name in GENERATED:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found = max(found, ((node.end_lineno or node.lineno) - node.lineno + 1, f"{name}: {node.name}"))
    return found


@pytest.mark.parametrize("folder", LONGEST)
def test_no_function_grows_beyond_the_longest(folder: str) -> None:
    lines, where = _longest(folder)
    bound = LONGEST[folder]
    assert lines <= bound, f"{where} has {lines} lines; the longest function of {folder} may have {bound}"
    assert bound <= lines * SLACK, f"the longest function of {folder} is {where} with {lines}: lower {bound}"
