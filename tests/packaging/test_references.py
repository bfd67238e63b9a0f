"""What documents, docstrings and comments cite exists: files, anchors of documents, rules of Raft, decisions, holes."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

import pytest

from tests.harness.server import ROOT

CITED = re.compile(r"(?<![\w/.:*{<-])((?:[\w.-]+/)*[\w-]+\.(?:pyx|pxd|pyi|py|md|txt|svg|toml|sh))(?![\w/*(])")
RULES = re.compile(r"(?<!-)\brules? (\d+)(?:(?:,? (?:to|and|or) |, )(\d+))*", re.IGNORECASE)
DECISIONS = re.compile(r"\bdecisions? (\d+)", re.IGNORECASE)
HOLES = re.compile(r"\bhole (\d+)", re.IGNORECASE)
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([\w-]+))?\)")
NUMBER = re.compile(r"\d+")
OF_OTHERS = {  # files of other projects, and of tests' own scratch directories
    "nats.py",
    "s2.go",
    "framing_format.txt",
    "pyspark/sql/worker/lookup_data_sources.py",
}

Citation = tuple[str, str]  # where, what
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def _listed() -> list[str]:
    """Every file of the repository, also those that are not committed yet. Without git (a wheel's tests): none."""
    run = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    outcome = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    return [name for name in outcome.stdout.splitlines() if (ROOT / name).is_file()]


FILES = _listed()
PATHS = set(FILES)
NAMES = {PurePosixPath(name).name for name in FILES}
pytestmark = pytest.mark.skipif(not FILES, reason="needs git")


def _prose(name: str) -> Iterator[tuple[int, str]]:
    """The lines of a document or Cython file; the comments and docstrings of a Python file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if not name.endswith((".py", ".pyi")):
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    nodes: list[ast.AST] = [ast.parse(text)]
    for node in nodes:  # it grows by the statements within: expressions, which are most of a tree, have no docstrings
        nodes += [part for part in ast.iter_child_nodes(node) if isinstance(part, STATEMENTS)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found is not None:
                yield getattr(node, "lineno", 1), found


@cache  # read by the first test that asks: each worker imports this file, one runs it
def read_lines() -> list[tuple[str, int, str]]:
    return [
        (name, line, text)
        for name in FILES
        if name.endswith((".md", ".py", ".pyx", ".pxd", ".pyi")) and not name.startswith("tests/packaging/")
        for line, text in _prose(name)
    ]


def _exists(cited: str, citing: str) -> bool:
    """From the root, from a folder above the citing file, as the end of a path, or a bare name that some file has."""
    if "://" in cited or cited in OF_OTHERS or cited in PATHS:
        return True
    if "/" not in cited:
        return cited in NAMES
    if cited.startswith("../"):
        return (ROOT / citing).parent.joinpath(cited).is_file()
    return any(path.endswith("/" + cited) for path in PATHS)


def test_every_cited_file_exists() -> None:
    missing = [
        f"{name}:{line}: {match[1]}"
        for name, line, text in read_lines()
        if "http" not in text and "klauspost" not in text and "github.com" not in text
        for match in CITED.finditer(text)
        if not _exists(match[1], name)
    ]
    assert not missing, "\n".join(missing)


def test_no_citation_leaves_the_repository() -> None:
    elsewhere = re.compile(r"\b(store|raft)-rules\b|\.\./shared")
    outside = [f"{name}:{line}" for name, line, text in read_lines() if elsewhere.search(text)]
    assert not outside, "\n".join(outside)


def _numbered(pattern: re.Pattern[str]) -> list[tuple[str, int]]:
    return [
        (f"{name}:{line}: {match[0]}", int(number))
        for name, line, text in read_lines()
        if not name.startswith("tests/conformance/")  # its rules are those of nats-server
        for match in pattern.finditer(text)
        for number in NUMBER.findall(match[0])
    ]


def _rows(heading: str) -> set[int]:
    """The numbers in the first column of the tables under one heading of docs/raft.md, up to the next of its level."""
    page = (ROOT / "docs" / "raft.md").read_text(encoding="utf-8")
    sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return {
        int(number)
        for section in sections
        if section.startswith(f"## {heading}")
        for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)
    }


def _stated() -> list[int]:
    page = (ROOT / "docs" / "raft.md").read_text(encoding="utf-8")
    return [int(number) for number in re.findall(r"^\| (\d+) \|", page.partition("## Each rule")[0], re.MULTILINE)]


def test_every_rule_is_stated_once_and_every_cited_rule_is_stated() -> None:
    stated = _stated()
    assert stated == list(range(1, len(stated) + 1))
    unknown = [where for where, number in _numbered(RULES) if number not in stated]
    assert not unknown, "\n".join(unknown)


def test_every_rule_has_its_mutation_in_the_tables() -> None:
    assert _rows("Each rule switched off") == set(_stated())


def test_every_cited_hole_of_the_library_is_listed() -> None:
    listed = _rows("Holes of the stock library")
    unknown = [where for where, number in _numbered(HOLES) if number not in listed]
    assert not unknown, "\n".join(unknown)


def test_every_cited_decision_exists() -> None:
    numbers = {int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    unknown = [where for where, number in _numbered(DECISIONS) if number not in numbers]
    assert not unknown, "\n".join(unknown)


def _anchors(name: str) -> set[str]:
    """What GitHub makes of the headings of a document."""
    text = (ROOT / name).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = []
    for name, line, text in read_lines():
        if not name.endswith(".md"):
            continue
        for target, anchor in LINK.findall(text):
            path = (ROOT / name).parent.joinpath(target).resolve() if target else ROOT / name
            if not path.exists():
                broken.append(f"{name}:{line}: {target}")
            elif anchor and anchor not in _anchors(str(path.relative_to(ROOT))):
                broken.append(f"{name}:{line}: {target}#{anchor}")
    assert not broken, "\n".join(broken)


def test_the_map_is_short_and_each_of_its_packages_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert page.count("\n") <= 200  # a map; the longest that a reader takes in at once
    table = page.partition("## Which file do I open?")[2]
    rows = {found for row in table.splitlines() if row.startswith("| `") for found in re.findall(r"`([^`]+)`", row)}
    packages = {
        str(PurePosixPath(name).parent)
        for name in FILES
        if name.endswith("/__init__.py") and name.split("/")[0] in {"api", "cluster", "raft", "store"}
    }
    missing = sorted(package for package in packages if package not in rows and f"{package}/" not in rows)
    assert not missing, missing


def _map_rows() -> list[tuple[list[str], list[str]]]:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = [
        row.split("|") for row in page.partition("## Which file do I open?")[2].splitlines() if row.startswith("| `")
    ]
    return [(re.findall(r"`([^`]+)`", row[1]), re.findall(r"`([^`]+)`", row[3])) for row in rows]


def test_the_files_that_the_map_opens_are_in_their_packages() -> None:
    wrong = [
        (packages, name)
        for packages, names in _map_rows()
        for name in names
        if not any((ROOT / package / name).is_file() for package in packages)
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("walk", ["publish", "pull", "an API request", "failover", "Spark read"])
def test_a_walk_of_the_map_is_a_list_of_files(walk: str) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = next(
        part for part in re.split(r"^## ", page, flags=re.MULTILINE) if re.match(rf"Life of (a )?{walk}", part)
    )
    steps = re.findall(r"^\d+\. .*?(?=^\d+\. |\Z)", section, re.MULTILINE | re.DOTALL)
    assert len(steps) >= 5
    for step in steps:
        assert re.search(r"`[\w/]+\.(py|pyx)`", step), step
