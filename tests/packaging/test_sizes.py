"""A ratchet: the largest file, function and class of each folder may shrink and never grow.

The numbers are lines, docstrings included. A change that makes the largest one smaller lowers its number here; none
raises one. Generated files are left out.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.harness.server import ROOT

GENERATED: Final = frozenset({"store/model/errors.py"})
SLACK: Final = 1.25  # a number this far above what it bounds has been forgotten


@attrs.frozen
class Sizes:
    """The longest of a folder, in lines."""

    python_file: int
    cython_file: int
    function: int
    class_body: int


LARGEST: Final = {
    "api": Sizes(python_file=416, cython_file=402, function=59, class_body=303),
    "cluster": Sizes(python_file=430, cython_file=236, function=58, class_body=354),
    "raft": Sizes(python_file=375, cython_file=0, function=48, class_body=322),
    "store": Sizes(python_file=479, cython_file=544, function=58, class_body=355),
    "src/pyspark_jetstream": Sizes(python_file=305, cython_file=0, function=29, class_body=171),
    "tests": Sizes(python_file=617, cython_file=0, function=50, class_body=396),
    "demo": Sizes(python_file=310, cython_file=0, function=31, class_body=101),
}


def _found(folder: str) -> dict[str, tuple[int, str]]:
    """The largest of each kind: its lines and where it is."""
    found = {kind.name: (0, "") for kind in attrs.fields(Sizes)}
    for path, kind in _files(folder):
        name = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        found[kind] = max(found[kind], (text.count("\n"), name))
        if kind == "cython_file":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found["function"] = max(found["function"], (_lines(node), f"{name}: {node.name}"))
            elif isinstance(node, ast.ClassDef):
                found["class_body"] = max(found["class_body"], (_lines(node), f"{name}: {node.name}"))
    return found


def _files(folder: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / folder).rglob("*.py*")):
        kind = {".py": "python_file", ".pyx": "cython_file"}.get(path.suffix)
        if kind is not None and str(path.relative_to(ROOT)) not in GENERATED:
            yield path, kind


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("folder", LARGEST)
def test_nothing_grows_beyond_the_largest(folder: str) -> None:
    found = _found(folder)
    for kind, bound in attrs.asdict(LARGEST[folder]).items():
        size, where = found[kind]
        assert size <= bound, f"{where} has {size} lines; the largest {kind} of {folder} may have {bound}"
        assert bound <= size * SLACK, f"the largest {kind} of {folder} is {where} with {size}: lower {bound}"
