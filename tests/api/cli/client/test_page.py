"""docs/cli.md: every example runs, in the order of the page, and prints what the page says.

`JETRAFT_WRITE_PAGE=1` writes what they print into the page.
"""

import os
import re

import pytest

from tests.api.cli.client.running import GROUPS, examples, masked, run, written_again
from tests.harness.server import ROOT

PAGE = ROOT / "docs" / "cli.md"


@pytest.mark.usefixtures("login")
def test_every_example_prints_what_the_page_says() -> None:
    outputs, differ = [], []
    for each in examples(PAGE):
        done = run(*each.words)
        said = done.out + done.err
        outputs.append(said)
        if masked(said) != masked(each.shown):
            differ.append(f"$ jetraft {' '.join(each.words)}\n{said}--- the page:\n{each.shown}")
    if os.environ.get("JETRAFT_WRITE_PAGE"):
        PAGE.write_text(written_again(PAGE, outputs), encoding="utf-8")
        return
    assert not differ, "\n".join(differ)


def commands() -> list[str]:
    """Every command of every group, as on the command line."""
    import importlib  # noqa: PLC0415  only here

    found = []
    for name, module in GROUPS.items():
        loaded = importlib.import_module(module)
        app = loaded.GROUPS[name].app if hasattr(loaded, "GROUPS") else loaded.GROUP.app
        alone = len(app.registered_commands) == 1 and app.registered_callback is None
        found += [name] if alone else [f"{name} {each.name}" for each in app.registered_commands]
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_has_an_example_on_the_page_and_in_its_help(name: str) -> None:
    assert re.search(rf"^(    |\$ )jetraft {name}\b", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    done = run(*name.split(), "--help")
    said = " ".join(done.out.split())
    assert (done.status, done.err) == (0, "")
    assert f"Example: jetraft {name}" in said
    assert "Exit status: 0 done, 1 failed" in said
    assert "--json" in said
