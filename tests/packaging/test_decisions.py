"""The decisions in docs/decisions: numbered without gaps, of one form, and each in the index."""

import re

import pytest

from tests.harness.server import ROOT

FOLDER = ROOT / "docs" / "decisions"
DECISIONS = sorted(path.name for path in FOLDER.glob("[0-9]*.md"))
FORM = re.compile(
    r"# (?P<number>\d+)\. (?P<title>[^\n]+)\n\n"
    r"Date: \d{4}-\d\d-\d\d\n\n"
    r"Status: (Accepted|Superseded)\b[^\n]*\n\n"
    r"## Context\n.+?\n\n## Decision\n.+?\n\n## Consequences\n.+\n",
    re.DOTALL,
)


def test_numbers_have_no_gaps() -> None:
    assert [int(name[:4]) for name in DECISIONS] == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_has_the_form(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    found = FORM.fullmatch(text)
    assert found is not None, "title, date, status, context, decision, consequences"
    assert int(found["number"]) == int(name[:4])


@pytest.mark.parametrize("name", DECISIONS)
def test_a_superseded_decision_names_an_existing_successor(name: str) -> None:
    status = re.search(r"^Status: (.+)$", (FOLDER / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert status is not None
    others = re.findall(r"\((\d{4}-[\w-]+\.md)\)", status[1])
    assert others or "Superseded" not in status[1]
    assert all((FOLDER / other).is_file() for other in others)


def test_the_index_lists_each_decision_with_its_title() -> None:
    rows = re.findall(r"^(\d+)\. \[(.+)\]\((\S+)\)$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    titles = [
        (str(int(name[:4])), (FOLDER / name).read_text(encoding="utf-8").splitlines()[0].partition(". ")[2], name)
        for name in DECISIONS
    ]
    assert rows == titles
