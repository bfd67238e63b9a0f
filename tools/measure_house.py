"""Print what can be counted of how the code is built: `python tools/measure_house.py [--json]`; `make lint` shows it.

It is a report and no ratchet, but for one figure: files that import each other in a circle fail it, also for types
alone, and the arrows of the circle are named. Rooms are folders, and files that lie beside folders. An arrow is an
import from one room to another, also for types alone. Arrows are upward that would have to go for the rooms to stand in
floors. Sentences that begin with What, Who or Where name their subject late; STYLE.md advises against them.
"""

# ruff: noqa: INP001, T201  (a script, not part of a package; it prints)

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[1]
LAYERS = ("store", "raft", "cluster", "api")
PACKAGE = "jetraft"
FOLDER_MODULES_MAX = 25
HELPER_LINES_MAX = 8
SHORT_WORDS = 4
CLAUSE = re.compile(r"(?:^|(?<=[.!?:;]\s))(?:What|Who|Where|Whoever|Whatever)\b(?![^.?!]*\?)", re.MULTILINE)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
POINTER = re.compile(r"^(?:See [^.]+|The same[^.]*|Likewise[^.]*)\.?$")

Graph = Mapping[str, set[str]]


@attrs.define(eq=False)
class Module:
    """One file of the package."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def layer(self) -> str:
        """Its folder below the package."""
        return self.name.split(".")[1]


def modules(root: Path = ROOT) -> list[Module]:
    """All modules of the four layers."""
    found = []
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            found.append(Module(name, path, ast.parse(text), text.count("\n")))
    return found


def imports(module: Module, known: set[str]) -> set[str]:
    """The modules that one imports, wherever in the file."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return (found & known) - {module.name}


def room_of(name: str, layer: str) -> str:
    """The folder of a module, or the module where it lies beside folders."""
    parts = name.removeprefix(f"{PACKAGE}.{layer}").strip(".").split(".")
    return parts[0]


def circles(graph: Graph) -> list[set[str]]:
    """Sets of more than one node that all reach each other (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []
    for start in graph:
        if start in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            node, left = work[-1]
            for other in left:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    work.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    circle, stack[at:] = set(stack[at:]), []
                    if len(circle) > 1:
                        found.append(circle)
    return sorted(found, key=len, reverse=True)


def upward(graph: Graph) -> set[tuple[str, str]]:
    """Arrows without which no circle is left: few, if not the fewest (Eades, Lin and Smyth 1993)."""
    left = {node: set(others) for node, others in graph.items()}
    first: list[str] = []
    last: list[str] = []
    while left:
        into = Counter(other for others in left.values() for other in others)
        sinks = [node for node in left if not left[node]]
        sources = [node for node in left if not into[node]]
        if sinks:
            node = min(sinks)
            last.insert(0, node)
        elif sources:
            node = min(sources)
            first.append(node)
        else:
            node = max(left, key=lambda each: (len(left[each]) - into[each], each))
            first.append(node)
        del left[node]
        for others in left.values():
            others.discard(node)
    place = {node: number for number, node in enumerate([*first, *last])}
    return {(node, other) for node, others in graph.items() for other in others if place[node] > place[other]}


def floors(graph: Graph) -> int:
    """The longest way down, in rooms, without the upward arrows."""
    away = upward(graph)
    down = {node: {other for other in others if (node, other) not in away} for node, others in graph.items()}
    height: dict[str, int] = {}
    for node in TopologicalSorter(down).static_order():
        height[node] = 1 + max((height[other] for other in down.get(node, ())), default=0)
    return max(height.values(), default=0)


def rooms(found: Iterable[Module], graph: Graph, layer: str) -> dict[str, set[str]]:
    """The rooms of a layer with those that each imports from."""
    names = {module.name for module in found if module.layer == layer and module.name != f"{PACKAGE}.{layer}"}
    result: dict[str, set[str]] = {room_of(name, layer): set() for name in names}
    for name in names:
        here = room_of(name, layer)
        result[here] |= {room_of(other, layer) for other in graph[name] if other in names} - {here}
    return result


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def only_forwards(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a method hands its own arguments to a method of what it holds, and does nothing else."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if len(body) != 1 or not function.args.args or function.args.args[0].arg != "self" or function.decorator_list:
        return False
    value = body[0].value if isinstance(body[0], ast.Return | ast.Expr) else None
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    holder: ast.expr = call.func.value
    while isinstance(holder, ast.Attribute):
        holder = holder.value
    own = [each.arg for each in (*function.args.args[1:], *function.args.kwonlyargs)]
    given = [each.id for each in call.args if isinstance(each, ast.Name)]
    given += [each.value.id for each in call.keywords if isinstance(each.value, ast.Name)]
    is_of_self = isinstance(holder, ast.Name) and holder.id == "self" and call.func.value is not holder
    return is_of_self and sorted(own) == sorted(given) and len(given) == len(call.args) + len(call.keywords)


def helpers_used_once(module: Module) -> int:
    """Private functions of fewer than nine lines that are named once beside their definition."""
    used = Counter(
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute | ast.Name)
    )
    return sum(
        function.name.startswith("_")
        and not function.name.startswith("__")
        and used[function.name] == 1
        and (function.end_lineno or function.lineno) - function.lineno < HELPER_LINES_MAX
        for function in functions(module.tree)
    )


def docstrings(module: Module) -> Iterator[str]:
    """Those of the module, its classes and functions."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def strings(module: Module) -> Iterator[str]:
    """Docstrings, and the texts of logs and errors: constants of more than three words."""
    yield from docstrings(module)
    documented = set(docstrings(module))
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node.value in documented:
            continue
        if node.value.count(" ") > SHORT_WORDS - 2:
            yield node.value


def clauses_per_1000(texts: Iterable[str]) -> float:
    """Sentences that begin with What, Who or Where and are no questions, a thousand words."""
    words = sentences = 0
    for text in texts:
        words += len(WORD.findall(text))
        sentences += len(CLAUSE.findall(text))
    return round(1000 * sentences / max(words, 1), 2)


def import_graph(found: Iterable[Module]) -> dict[str, set[str]]:
    """The modules that each module imports."""
    known = {module.name for module in found}
    return {module.name: imports(module, known) for module in found}


def arrows_in_circles(graph: Graph) -> list[str]:
    """The imports by which files reach themselves: "a imports b", sorted within each circle."""
    return [
        f"{name} imports {other}"
        for circle in circles(graph)
        for name in sorted(circle)
        for other in sorted(graph[name] & circle)
    ]


def measures(found: list[Module], graph: Graph, root: Path = ROOT) -> dict[str, object]:
    """All figures, by what they count."""
    by_layer = {layer: [module for module in found if module.layer == layer] for layer in LAYERS}
    folders = Counter(str(module.path.parent.relative_to(root)) for module in found if module.path.stem != "__init__")
    report: dict[str, object] = {}
    for layer in LAYERS:
        of_layer = rooms(found, graph, layer)
        arrows = sum(map(len, of_layer.values()))
        report[f"{layer}: rooms / arrows / upward / floors"] = (
            f"{len(of_layer)} / {arrows} / {len(upward(of_layer))} / {floors(of_layer)}"
        )
    report[f"folders with more than {FOLDER_MODULES_MAX} modules"] = {
        folder: count for folder, count in folders.most_common() if count > FOLDER_MODULES_MAX
    }
    report["circles of files, counting imports for types"] = [len(circle) for circle in circles(graph)]
    report["methods that only forward"] = sum(
        only_forwards(function) for module in found for function in functions(module.tree)
    )
    report[f"helpers of at most {HELPER_LINES_MAX} lines that are used once"] = sum(map(helpers_used_once, found))
    report["sentences that begin with What, Who or Where, per 1,000 words"] = {
        layer: clauses_per_1000(text for module in of for text in strings(module)) for layer, of in by_layer.items()
    } | {"docs": clauses_per_1000(path.read_text(encoding="utf-8") for path in _documents(root))}
    texts = [text for module in found for text in docstrings(module)]
    report["docstrings that only point elsewhere"] = sum(bool(POINTER.match(text)) for text in texts)
    report[f"docstrings of at most {SHORT_WORDS} words, of all"] = (
        f"{sum(len(text.split()) <= SHORT_WORDS for text in texts)} of {len(texts)}"
    )
    report["assertions per 1,000 lines"] = {
        layer: round(1000 * _count(of, ast.Assert) / max(1, sum(module.lines for module in of)), 1)
        for layer, of in by_layer.items()
    }
    report["Any in api"] = sum(
        isinstance(node, ast.Name) and node.id == "Any" for module in by_layer["api"] for node in ast.walk(module.tree)
    )
    return report


def _documents(root: Path) -> list[Path]:
    pages = [*root.glob("*.md"), *(root / "docs").glob("*.md")]
    return [path for path in pages if path.name != "CHANGELOG.md"]


def _count(of: Iterable[Module], kind: type[ast.AST]) -> int:
    return sum(isinstance(node, kind) for module in of for node in ast.walk(module.tree))


def main(words: list[str]) -> int:
    """Print the report; 1 where files import each other in a circle."""
    found = modules()
    graph = import_graph(found)
    report = measures(found, graph)
    closing = arrows_in_circles(graph)
    for arrow in closing:
        print(f"a circle of files: {arrow}", file=sys.stderr)
    if "--json" in words:
        print(json.dumps(report, indent=1))
        return bool(closing)
    for what, value in report.items():
        shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        print(f"{what}: {shown or 'none'}")
    return bool(closing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
