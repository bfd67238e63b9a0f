"""The folders keep their laws: one import name, typed extensions, imports in one direction."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.server import ROOT

FILE_BYTES_MAX = 1 << 20  # the largest, a store of an older version, has 156 kB
FOLDERS = ("api", "cluster", "raft", "store")
EXTENSIONS = sorted(path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.pyx"))
MODEL = sorted((ROOT / "store" / "model").rglob("*.py"))


def python(code: str, *, path: Path) -> "subprocess.CompletedProcess[str]":
    """Run code in a fresh interpreter that sees only this folder and the installed packages."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(path)},
        cwd=path,
    )


def test_the_repository_has_no_file_that_a_build_has_left() -> None:
    """Whoever clones it takes each file that was ever in it along: packages and images are no part of it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    if listed.returncode:
        pytest.skip("this is no checkout of git")
    sizes = {
        name: (ROOT / name).lstat().st_size for name in listed.stdout.split("\0") if name and (ROOT / name).exists()
    }
    assert not {name: size for name, size in sizes.items() if size > FILE_BYTES_MAX}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_second_import_name_fails_at_once(folder: str) -> None:
    outcome = python(f"import {folder}", path=ROOT)
    assert outcome.returncode != 0
    assert "AssertionError" in outcome.stderr


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_real_import_name_works(folder: str) -> None:
    outcome = python(f"import jetraft.{folder}", path=ROOT / "src")
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_states_its_law_before_its_guard(folder: str) -> None:
    tree = ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))
    law = ast.get_docstring(tree)
    assert law is not None
    assert len(law) > 100
    assert any(isinstance(node, ast.Assert) for node in tree.body)


PYTHON_FACE = re.compile(r"^(def|cpdef|class|cdef class) ", re.MULTILINE)


@pytest.mark.parametrize("path", EXTENSIONS, ids=str)
def test_an_extension_has_a_typed_face(path: Path) -> None:
    """Python sees it through a .pyi; what only other extensions call is described by its .pxd."""
    seen_by_python = PYTHON_FACE.search((ROOT / path).read_text(encoding="utf-8"))
    assert (ROOT / path).with_suffix(".pyi" if seen_by_python else ".pxd").exists()


@pytest.mark.parametrize("path", EXTENSIONS, ids=str)
def test_an_extension_is_compiled(path: Path) -> None:
    name = ".".join(path.with_suffix("").parts)
    outcome = python(f"import jetraft.{name}", path=ROOT / "src")
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("path", MODEL, ids=lambda path: path.name)
def test_the_model_imports_only_itself(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert not name.startswith("jetraft.") or name.startswith("jetraft.store.model"), f"{path}: {name}"


def test_the_guard_is_not_the_reason_that_the_version_is_missing() -> None:
    outcome = python("import jetraft; print(jetraft.__version__)", path=ROOT / "src")
    assert outcome.stdout.strip()
