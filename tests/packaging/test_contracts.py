"""The contracts of pyproject.toml say what the code says of itself, and nothing in them is left over."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.server import ROOT

FOLDERS: Final = ("api", "cluster", "raft", "store")
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS: Final[list[dict[str, Any]]] = PYPROJECT["tool"]["importlinter"]["contracts"]
MODULES: Final = sorted(path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PACKAGES: Final = [
    *(path for path in MODULES if path.name == "__init__.py"),
    *(path.relative_to(ROOT) for path in sorted((ROOT / "src").glob("*/__init__.py"))),
]
PURE: Final = re.compile(r"\bPure\b")
SENTENCE: Final = re.compile(r"[.?!:;](?=\s|$)")
PER_FILE: Final[dict[str, list[str]]] = PYPROJECT["tool"]["ruff"]["lint"]["per-file-ignores"]


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""


def _module(path: Path) -> str:
    parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
    return ".".join(("jetraft", *parts))


def test_the_modules_that_say_pure_are_those_of_the_contract() -> None:
    said = {_module(path) for path in MODULES if PURE.search(_docstring(path))}
    covered = {module for module in said if any(module.startswith(f"{other}.") for other in said)}
    contract = next(found for found in CONTRACTS if {"trio", "os"} <= set(found.get("forbidden_modules", [])))
    assert sorted(contract["source_modules"]) == sorted(said - covered)


@pytest.mark.parametrize("path", PACKAGES, ids=str)
def test_a_package_states_its_law(path: Path) -> None:
    """What it answers and what it never does: two sentences at least."""
    law = _docstring(path)
    assert len(SENTENCE.findall(law)) >= 2, law


def test_no_contract_is_there_twice_and_no_exception_either() -> None:
    names = [contract["name"] for contract in CONTRACTS]
    assert len(names) == len(set(names))
    for contract in CONTRACTS:
        ignored = contract.get("ignore_imports", [])
        assert len(ignored) == len(set(ignored))


def test_an_exception_that_matches_nothing_is_an_error() -> None:
    for contract in CONTRACTS:
        if "ignore_imports" in contract:
            assert contract["unmatched_ignore_imports_alerting"] == "error", contract["name"]


@pytest.mark.parametrize(("files", "rule"), [(files, rule) for files, rules in PER_FILE.items() for rule in rules])
def test_an_exception_from_a_lint_rule_is_needed(files: str, rule: str) -> None:
    command = ["-m", "ruff", "check", "--quiet", "--no-cache", "--config", "lint.per-file-ignores={}", "--select", rule]
    outcome = subprocess.run(
        [sys.executable, *command, files.removesuffix("/**")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 1, f"{files}: {rule} is ignored, and nothing breaks it"
