"""The code of modules that is kept between starts: found as Python finds it, and never older than what is there."""

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from jetraft.api.startup import module_code
from jetraft.api.startup.kept_code import read, write
from jetraft.api.startup.module_code import KeptLoader, ModuleCode

NAMES = ("kept.one", "kept.inner", "kept.inner.two")
ATTRIBUTES = ("__name__", "__file__", "__cached__", "__package__", "VALUE")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package, which is imported as if nobody had imported it before."""
    within = tmp_path / "kept" / "inner"
    within.mkdir(parents=True)
    (within.parent / "__init__.py").write_text("")
    (within.parent / "one.py").write_text("VALUE = 1\n\n\ndef told():\n    return VALUE\n")
    (within / "__init__.py").write_text("VALUE = 2\n")
    (within / "two.py").write_text("from kept.inner import VALUE\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module_code, "PACKAGES", ("kept.",))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "bytecode"))
    yield within.parent
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kept"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def start(path: Path) -> tuple[dict[str, ModuleType], set[str]]:
    """The modules, as a process gets them that starts now, and which of them came from the file."""
    forget()
    finder = ModuleCode(path, read(path))
    sys.meta_path.insert(0, finder)
    try:
        return {name: importlib.import_module(name) for name in NAMES}, finder.found
    finally:
        finder.save()


def touch(path: Path) -> None:
    """Give it another time than it has, however coarse the times of this file system are."""
    at_ns = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(at_ns, at_ns))


def test_modules_are_the_same_from_kept_code(tmp_path: Path) -> None:
    first, found = start(tmp_path / "x.modules")
    assert found == set()
    second, found = start(tmp_path / "x.modules")
    assert found == set(NAMES)
    for name in NAMES:
        one, other = first[name], second[name]
        assert one is not other
        assert [getattr(one, at) for at in ATTRIBUTES] == [getattr(other, at) for at in ATTRIBUTES]
        assert one.__spec__ is not None
        assert other.__spec__ is not None
        assert isinstance(other.__spec__.loader, KeptLoader)
        assert one.__spec__.submodule_search_locations == other.__spec__.submodule_search_locations
    assert second["kept.one"].told() == 1
    assert inspect.getsource(second["kept.one"].told) == "def told():\n    return VALUE\n"
    assert second["kept.one"].__spec__.loader.get_code("kept.one").co_name == "<module>"  # type: ignore[union-attr]


def test_a_module_that_was_changed_is_read_again(folder: Path, tmp_path: Path) -> None:
    start(tmp_path / "x.modules")
    (folder / "one.py").write_text("VALUE = 10\n")
    modules, found = start(tmp_path / "x.modules")
    assert modules["kept.one"].VALUE == 10
    assert found == set(NAMES) - {"kept.one"}
    modules, found = start(tmp_path / "x.modules")
    assert modules["kept.one"].VALUE == 10
    assert found == set(NAMES)


def test_a_change_of_the_same_size_is_seen_by_its_time(folder: Path, tmp_path: Path) -> None:
    start(tmp_path / "x.modules")
    (folder / "inner" / "__init__.py").write_text("VALUE = 5\n")
    touch(folder / "inner" / "__init__.py")
    modules, _ = start(tmp_path / "x.modules")
    assert modules["kept.inner.two"].VALUE == 5


def test_a_package_that_came_beside_a_module_takes_its_place(folder: Path, tmp_path: Path) -> None:
    start(tmp_path / "x.modules")
    (folder / "one").mkdir()
    (folder / "one" / "__init__.py").write_text("VALUE = 7\n")
    touch(folder)
    modules, found = start(tmp_path / "x.modules")
    assert modules["kept.one"].VALUE == 7
    assert found == {"kept.inner.two"}


def test_a_module_that_is_gone_is_gone(folder: Path, tmp_path: Path) -> None:
    start(tmp_path / "x.modules")
    (folder / "one.py").unlink()
    touch(folder)
    with pytest.raises(ModuleNotFoundError):
        start(tmp_path / "x.modules")


def test_a_package_of_this_name_elsewhere_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path / "x.modules")
    other = tmp_path / "elsewhere" / "kept"
    (other / "inner").mkdir(parents=True)
    for name in ("__init__.py", "one.py", "inner/__init__.py", "inner/two.py"):
        (other / name).write_text("VALUE = 70\n")
    monkeypatch.syspath_prepend(str(other.parent))
    modules, found = start(tmp_path / "x.modules")
    assert {module.VALUE for module in modules.values()} == {70}
    assert found == set()


def test_damaged_code_is_read_from_where_python_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.modules"
    start(path)
    kept = read(path)
    start_at, _, _ = kept.index["kept.one"]
    data = path.read_bytes()
    path.write_bytes(data[:start_at] + bytes([data[start_at] ^ 1]) + data[start_at + 1 :])
    modules, found = start(path)
    assert modules["kept.one"].VALUE == 1
    assert found == set(NAMES) - {"kept.one"}
    assert start(path)[1] == set(NAMES), "it is whole again"


def test_nothing_is_written_where_python_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    start(tmp_path / "x.modules")
    assert not (tmp_path / "x.modules").exists()


def test_nothing_is_written_when_nothing_is_new(tmp_path: Path) -> None:
    path = tmp_path / "x.modules"
    start(path)
    before = path.stat().st_mtime_ns, path.stat().st_ino
    start(path)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


@pytest.mark.parametrize("data", [b"", b"\0" * 100], ids=["empty", "another file"])
def test_what_is_no_file_of_code_has_none(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.modules"
    path.write_bytes(data)
    assert read(path).codes() == {}
    write(path, {b"a": b"code"}, "facts")
    assert read(path).codes() == {b"a": b"code"}
    for end in range(0, path.stat().st_size, 7):
        (tmp_path / "cut").write_bytes(path.read_bytes()[:end])
        assert read(tmp_path / "cut").codes() == {}
