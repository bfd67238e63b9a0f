"""The catalogue of log events: its page is made from it, and every event is written with the fields of its kind."""

import ast
import importlib.util
from collections.abc import Iterator

from jetraft.api.logs.log_forms import OWN
from jetraft.store.model import events
from jetraft.store.model.events import KINDS, EventKind
from tests.harness.server import ROOT

BY_NAME = {name: kind for name, kind in vars(events).items() if isinstance(kind, EventKind)}
FOLDERS = ("api", "cluster", "raft", "store")


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("gen_logs", ROOT / "tools" / "gen_logs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == (ROOT / "docs" / "logs.md").read_text(encoding="utf-8"), "run `make docs`"


def test_kinds_are_named_once_as_their_constants_and_have_no_field_of_each_line() -> None:
    assert {name: kind.name for name, kind in BY_NAME.items()} == {name: name.lower() for name in BY_NAME}
    assert len({kind.name for kind in KINDS}) == len(KINDS) == len(BY_NAME)
    assert [kind.name for kind in KINDS if set(kind.fields) & set(OWN)] == []


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Where an event is written, its kind, and its fields."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="log"), keywords=keywords):
                        yield f"{path.name}:{node.lineno}", name, {str(word.arg) for word in keywords}


def test_every_event_has_the_fields_of_its_kind() -> None:
    wrong = [
        f"{where}: {name} has {sorted(fields)}, not {sorted(BY_NAME[name].fields)}"
        for where, name, fields in calls()
        if name in BY_NAME and fields != set(BY_NAME[name].fields)
    ]
    assert wrong == []


def test_every_kind_is_written_somewhere() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "events.py"
    )
    assert [name for name in BY_NAME if name not in source] == []


def test_every_kind_is_provoked_by_a_test_that_reads_the_log() -> None:
    """Named where events of servers or of caplog are read; a series of a metric or a made-up event provokes nothing."""
    readers = [
        text
        for path in (ROOT / "tests").rglob("test_*.py")
        if "tests.harness.log_lines import" in (text := path.read_text(encoding="utf-8"))
    ]
    assert [kind.name for kind in KINDS if not any(f'"{kind.name}"' in text for text in readers)] == []
