"""The page of configuration keys is made from its table, and the table from what both servers accept."""

import csv
import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.harness.server import ROOT, command, environment

SCRIPT = ROOT / "tools" / "gen_configuration.py"
TIMEOUT_S = 60
OUR_OWN = "jetraft only"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_configuration", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date() -> None:
    assert script().page() == (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"), "run `make docs`"


def test_no_key_that_is_refused_is_missing() -> None:
    from jetraft.api.config.not_served import NOT_SERVED  # noqa: PLC0415

    listed = {(row["block"], key) for row in rows() for key in row["keys"].split()}
    blocks = {block for block, _ in listed}
    missing = {(block, key) for block, keys in NOT_SERVED.items() if block in blocks for key in keys} - listed
    assert missing == set()


@pytest.mark.reference
def test_the_reference_knows_every_key(tmp_path: Path) -> None:
    around = script().AROUND
    unknown = []
    for row in rows():
        for key in row["keys"].split() if not row["meaning"].startswith(OUR_OWN) else ():
            path = tmp_path / "c.conf"
            path.write_text(around[row["block"]].format(f"{key}: {row['sample']}"), encoding="utf-8")
            done = subprocess.run(
                [*command("reference"), "-t", "-c", str(path)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            if f'nknown field "{key}"' in done.stderr:
                unknown.append((row["block"], key))
    assert unknown == []


def test_the_error_that_the_page_on_operations_shows_is_the_one_that_is_printed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (shown,) = (line.strip() for line in page.splitlines() if line.startswith("    jetraft: n1.conf:"))
    key = shown.split('"')[1]
    (tmp_path / "n1.conf").write_text(f"server_name: n1\nport: 4222\n\n{key}: 6060\n", encoding="utf-8")
    told = subprocess.run(
        [*command("jetraft"), "-t", "-c", "n1.conf"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment("jetraft")},
    ).stderr
    assert told.strip() == shown


def rows() -> list[dict[str, str]]:
    with (ROOT / "tools" / "configuration.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
