"""docs/start.md: what a newcomer is told to type runs, on an empty server, and prints what the page says.

`JETRAFT_WRITE_PAGE=1` writes what they print into the page.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.cli.client.running import examples, masked, run, written_again
from tests.harness.server import ROOT, Server

PAGE = ROOT / "docs" / "start.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An empty one: other pages' examples use the same names."""
    with Server("jetraft", directory=Path(tmp_path_factory.mktemp("start"))) as one:
        one.wait_healthy()
        yield one


@pytest.mark.usefixtures("login")
def test_every_command_of_the_first_five_minutes_prints_what_the_page_says() -> None:
    outputs, differ = [], []
    for each in examples(PAGE):
        done = run(*each.words)
        said = done.out + done.err
        outputs.append(said)
        if done.status or masked(said) != masked(each.shown):
            differ.append(f"$ jetraft {' '.join(each.words)}\n{said}--- the page:\n{each.shown}")
    if os.environ.get("JETRAFT_WRITE_PAGE"):
        PAGE.write_text(written_again(PAGE, outputs), encoding="utf-8")
        return
    assert outputs
    assert not differ, "\n".join(differ)
