"""`jetraft quarantine`: what a store keeps of groups that could not be used is listed, and removed by its operator."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.harness.server import command, environment

NAME = "S-R3F-abcdefgh.7"


def quarantine(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command("jetraft"), "quarantine", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment("jetraft")},
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for place in (f"quarantine/{NAME}/log-00000001", f"groups/{NAME}/quarantine"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "bytes").write_bytes(b"x" * 5000)
    return tmp_path


def test_what_is_kept_is_listed(store: Path) -> None:
    listed = quarantine(store)
    assert listed.returncode == 0
    header, *rows = listed.stdout.splitlines()
    assert header.split() == ["GROUP", "KIND", "BYTES", "SINCE", "PATH"]
    assert [row.split()[0] for row in rows] == [NAME, NAME]
    found = json.loads(quarantine(store, "--json").stdout)
    assert [(row["group"], row["kind"], row["since"]) for row in found] == [
        (NAME, "log", None),
        (NAME, "damaged bytes", None),
    ]
    assert {row["path"] for row in found} == {
        str(store / f"quarantine/{NAME}"),
        str(store / f"groups/{NAME}/quarantine"),
    }


@pytest.mark.parametrize("words", [("--remove", NAME), ("--remove-all",)])
def test_what_its_operator_names_is_removed(store: Path, words: tuple[str, ...]) -> None:
    done = quarantine(store, *words)
    assert (done.returncode, done.stdout.count("removed ")) == (0, 2)
    assert quarantine(store).stdout == "nothing is kept\n"
    assert (store / "groups" / NAME).is_dir()


def test_a_group_of_which_nothing_is_kept_and_a_place_that_is_no_store_are_errors(store: Path) -> None:
    other = quarantine(store, "--remove", "S-R3F-ijklmnop.9")
    assert (other.returncode, other.stderr) == (1, "jetraft quarantine: nothing is kept of S-R3F-ijklmnop.9\n")
    nowhere = quarantine(store / "nowhere")
    assert (nowhere.returncode, nowhere.stderr) == (
        2,
        f"jetraft quarantine: {store}/nowhere is not a store directory\n",
    )
    assert quarantine(store, "--remove", NAME, "--remove-all").returncode == 2
