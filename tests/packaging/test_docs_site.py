"""The documentation is a site whose links lead somewhere, and which asks no other host for anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mkdocs.exceptions import PluginError

from tests.harness.server import ROOT
from tools.docs_site import OUTSIDE, linked

LOADED = re.compile(
    r"<(?:script|img|iframe|link rel=\"(?:stylesheet|preconnect|icon)\")[^>]* (?:src|href)=\"?https?://[^\s\">]*"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site: a warning, of a broken link or anchor or of a page that the navigation lacks, is an error."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_of_the_documentation_is_on_the_site(site: Path) -> None:
    expected = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"start"} | {"index"}
    expected |= {name.removesuffix(".md") for name in OUTSIDE.values()}
    assert expected <= {path.stem for path in site.glob("*.html")}


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    assert not [
        (page.name, LOADED.findall(text)) for page in site.glob("**/*.html") if LOADED.search(text := page.read_text())
    ]


def test_a_link_to_a_source_file_is_its_path() -> None:
    assert (
        linked("see [the core](../cluster/consumers/core.py)", "raft.md")
        == "see the core (`cluster/consumers/core.py`)"
    )
    assert linked("[a](../README.md#what-it-is) [b](tls.md)", "raft.md") == "[a](readme.md#what-it-is) [b](tls.md)"
    assert linked("[a](../raft.md)", "decisions/0045-threads-for-busy-logs.md") == "[a](../raft.md)"


def test_a_link_to_a_file_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(PluginError, match=r"docs/raft\.md: a link leads to docs/none\.md, which does not exist"):
        linked("[a](none.md)", "raft.md")
