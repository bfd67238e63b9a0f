"""What tools/measure_house.py counts, on code small enough to count by hand."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_house", ROOT / "tools" / "measure_house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # attrs looks the module of a class up
    spec.loader.exec_module(module)
    return module


def test_arrows_that_close_a_circle_are_upward(house: ModuleType) -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "b"}, "e": set()}
    assert house.circles(graph) == [{"a", "b", "c"}]
    assert len(house.upward(graph)) == 1
    assert house.arrows_in_circles(graph) == ["a imports b", "b imports c", "c imports a"]
    down = {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert house.arrows_in_circles(down) == []
    assert house.upward(down) == set()
    assert house.floors(down) == 3


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(self, a, b=1): return self._x.f(a, b=b)", True),
        ("async def f(self, a):\n '''Doc.'''\n return await self._x.y.f(a)", True),
        ("def f(self): self._x.f()", True),
        ("def f(self, a): return self._x.f(a + 1)", False),
        ("def f(self, a): return self.g(a)", False),
        ("def f(self, a, b): return self._x.f(a)", False),
        ("@property\ndef f(self): return self._x.f()", False),
        ("def f(a): return a.f()", False),
    ],
)
def test_a_method_that_hands_its_arguments_on_forwards(house: ModuleType, source: str, expected: bool) -> None:  # noqa: FBT001  (a row)
    assert house.only_forwards(ast.parse(source).body[0]) is expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("What is left goes.", 1),
        ("The rest goes. Who asks is told; where it is unknown, nothing.", 1),
        ("Where is it?", 0),
        ("It says what is left.", 0),
    ],
)
def test_sentences_that_begin_with_a_clause_are_counted(house: ModuleType, text: str, count: int) -> None:
    assert len(house.CLAUSE.findall(text)) == count
