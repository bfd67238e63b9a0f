"""docs/releases.tsv, the changelog and the code say the same of each release."""

import csv
import itertools
import re
import subprocess
import sys
from typing import Final

import attrs
import pytest

import jetraft
import pyspark_jetstream
from jetraft.store.frames.format import FORMAT_VERSION
from jetraft.store.model.feature_level import LEVEL
from tests.harness.server import ROOT

NOT_YET: Final = "-"  # the commit of the version that this tree becomes; what the first version upgrades from
CONSTANTS: Final = {
    "version": ("src/jetraft/__init__.py", r'^__version__ = "(.+)"$'),
    "store_format": ("store/frames/format.py", r"^FORMAT_VERSION: Final = (\d+)"),
    "feature_level": ("store/model/feature_level.py", r"^LEVEL: Final = (\d+)"),
}


@attrs.frozen(kw_only=True)
class Release:
    """A row: strings, as the file has them."""

    version: str
    commit: str
    store_format: str
    feature_level: str
    upgrades_from: str

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))


def _rows() -> list[Release]:
    with (ROOT / "docs" / "releases.tsv").open(encoding="utf-8", newline="") as file:
        return [Release(**row) for row in csv.DictReader(file, dialect="excel-tab")]


RELEASES: Final = _rows()
RELEASED: Final = [release for release in RELEASES if release.commit != NOT_YET]


def test_the_last_release_is_this_tree() -> None:
    last = RELEASES[-1]
    assert (last.version, last.commit) == (jetraft.__version__, NOT_YET)
    assert (last.store_format, last.feature_level) == (str(FORMAT_VERSION), str(LEVEL))
    assert pyspark_jetstream.__version__ == jetraft.__version__
    shown = subprocess.run([sys.executable, "-m", "jetraft", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith(f"jetraft: v{last.version}\n")


def test_releases_go_up_and_upgrade_from_one_that_came_before() -> None:
    for before, release in itertools.pairwise(RELEASES):
        assert before.order < release.order
        assert int(before.store_format) <= int(release.store_format)
        assert int(before.feature_level) <= int(release.feature_level)
    for position, release in enumerate(RELEASES):
        earlier = [one.version for one in RELEASES[:position]]
        assert release.upgrades_from in (earlier or [NOT_YET])


@pytest.mark.parametrize("release", RELEASED, ids=lambda release: release.version)
def test_a_release_says_what_its_commit_has(release: Release) -> None:
    for field, (path, pattern) in CONSTANTS.items():
        ask = ["git", "show", f"{release.commit}:{path}"]
        shown = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
        if shown.returncode:
            pytest.skip("the history is not here: a shallow clone, or no git")
        found = re.search(pattern, shown.stdout, re.MULTILINE)
        assert found is not None, (release.version, path)
        assert found[1] == getattr(release, field), path


def test_each_release_has_its_section_in_the_changelog_the_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [release.version for release in reversed(RELEASES)]
