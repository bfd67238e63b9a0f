"""Parts are put together from the bottom up: nobody sets or appends a callback of another object after it was made.

What an object calls is given to its constructor, or registered with a method that has a typed parameter
(`Signal.connect`, `Manager.serve_offers`, `Mesh.serve`, `ServedRequests.serve`). A callback is an attribute that some
class declares as a Callable or as a port (a Protocol), that is set to a lambda or such a parameter, or named `on_...`.
"""

import ast
from collections.abc import Collection, Iterator
from functools import cache
from typing import Final

import pytest

from tests.harness.server import ROOT

FOLDERS = ("api", "cluster", "raft", "store")
LISTS = {"append", "extend", "insert"}

# By file: the attribute, and why it is set from outside.
ALLOWED = {
    # A log is older than its group and outlives it. The port has one listener, which changes with the log's owner.
    "raft/group.py": {"on_durable"},
    "store/log/file_log.py": {"on_durable"},  # its own part, behind the property of the port
    "raft/recovery/joining.py": {"on_durable"},
    "raft/recovery/settling.py": {"on_durable"},
}


@cache  # read by the first test that asks: each worker imports this file, one runs it
def _trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


@cache
def _held() -> set[str]:
    return callbacks(_trees().values())


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def called_types(trees: Collection[ast.Module]) -> set[str]:
    """Callable, the Protocols, and the aliases that are made of these."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    called = {"Callable"}
    called |= {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef) and any("Protocol" in _names(base) for base in node.bases)
    }
    aliases = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript)]
    size = 0
    while size != len(called):
        size = len(called)
        for node in aliases:
            if _names(node.value) & called:
                called |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return called


def callbacks(trees: Collection[ast.Module]) -> set[str]:
    """The public attributes that hold something that is called."""
    called = called_types(trees)
    found: set[str] = set()
    for tree in trees:
        for body in (part for part in ast.walk(tree) if isinstance(part, ast.ClassDef)):
            found |= {
                node.target.id
                for node in body.body
                if isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and _names(node.annotation) & called
            }
            for method in body.body:
                if isinstance(method, ast.FunctionDef):
                    found |= set(_held_by(method, called))
    return {name for name in found if not name.startswith("_")}


def _held_by(method: ast.FunctionDef, called: set[str]) -> Iterator[str]:
    """The attributes of `self` that the method declares as called, or sets to a lambda or a parameter to be called."""
    parameters = {
        argument.arg
        for argument in (*method.args.args, *method.args.kwonlyargs)
        if argument.annotation is not None and _names(argument.annotation) & called
    }
    for node in ast.walk(method):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            if _names(node.annotation) & called:
                yield node.target.attr
        elif isinstance(node, ast.Assign):
            is_parameter = isinstance(node.value, ast.Name) and node.value.id in parameters
            if is_parameter or isinstance(node.value, ast.Lambda):
                yield from (part.attr for part in node.targets if isinstance(part, ast.Attribute) and is_own(part))


def is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")


def patched(tree: ast.Module, held: Collection[str]) -> Iterator[tuple[int, str]]:
    """The lines that set or append to a callback of another object, and which: `held`, and whatever is `on_...`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = [part for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Attribute)]
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target] if isinstance(node.target, ast.Attribute) else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LISTS:
            targets = [node.func.value] if isinstance(node.func.value, ast.Attribute) else []
            targets = [target for target in targets if target.attr.startswith("on_")]
        else:
            continue
        for target in targets:
            is_stored = isinstance(target.ctx, ast.Store) or isinstance(node, ast.Call)
            if is_stored and (target.attr.startswith("on_") or target.attr in held) and not is_own(target):
                yield node.lineno, target.attr


def test_no_callback_of_another_object_is_set_after_it_was_made() -> None:
    held = _held()
    found = [
        f"{name}:{line}: {attribute}"
        for name, tree in _trees().items()
        for line, attribute in patched(tree, held)
        if attribute not in ALLOWED.get(name, ())
    ]
    assert found == []


def test_what_is_allowed_is_still_there() -> None:
    held = _held()
    for name, attributes in ALLOWED.items():
        assert {attribute for _, attribute in patched(_trees()[name], held)} == attributes


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("manager.on_offer = handler", [1]),
        ("self.joining.on_admitted = self._admitted", [1]),
        ("mesh.on_peer_up.append(handler)", [1]),
        ("a.on_x, b.on_y = one, two", [1, 1]),
        ("log.on_durable: Callback = moved.set", [1]),
        ("self.on_change = Signal()", []),
        ("machine.on_change.connect(self._note)", []),
        ("on_heard = Signal()", []),
        ("self.mesh.after_frames = reactor.end_turn", [1]),
        ("mesh.sockets = reactor", [1]),
        ("mesh.other = reactor", []),
        ("mesh.sockets.name = name", []),
    ],
)
def test_a_patched_callback_is_found(source: str, lines: list[int]) -> None:
    assert [line for line, _ in patched(ast.parse(source), {"after_frames", "sockets"})] == lines


MESH: Final = """
FrameHandler = Callable[[bytes], None]
Handlers = dict[int, FrameHandler]
class Sockets(Protocol):
    def watch(self) -> None: ...
class Mesh:
    write: FrameHandler
    size: int
    def __init__(self, sockets: Sockets | None, send: FrameHandler, name: str) -> None:
        self.after_frames: Callable[[], None] = nothing
        self.before = lambda: None
        self.handlers: Handlers = {}
        self.sockets = sockets
        self.name = name
        self.heard_ns = sockets.mono_ns()
        self._send = send
"""


def test_what_is_called_is_known_by_its_declaration() -> None:
    assert callbacks([ast.parse(MESH)]) == {"write", "after_frames", "before", "handlers", "sockets"}
