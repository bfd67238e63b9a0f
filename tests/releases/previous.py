"""Earlier versions, from the history of the repository: unpacked and compiled in build/releases, once per commit."""

import fcntl
import filecmp
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.harness.server import ROOT

RELEASES: Final = ROOT / "build" / "releases"
BUILT: Final = ".built"  # in a folder whose extensions are all compiled
BEFORE: Final = "52c49a8"  # a build from before there were levels and releases
CIMPORTED: Final = re.compile(r"^(?:from (jetraft\.[\w.]+) cimport|cimport (jetraft\.[\w.]+))", re.MULTILINE)
INCLUDED: Final = re.compile(r'cdef extern from "([^"]+)"')


class NoHistoryError(Exception):
    """The commit is not in this checkout: a shallow clone, or no repository."""


def released(version: str | None = None) -> tuple[str, str]:
    """A released version and its commit: the one before this tree if none is named."""
    lines = (ROOT / "docs" / "releases.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [(fields[0], fields[1]) for fields in (line.split("\t") for line in lines) if fields[1] != "-"]
    return rows[-1] if version is None else next(row for row in rows if row[0] == version)


def source(commit: str) -> Path:
    """The folder of a commit, unpacked. Raises NoHistoryError."""
    folder = RELEASES / commit[:7]
    with _locked():
        if not (folder / "setup.py").exists():
            git = ["git", "archive", "--format=tar", commit]
            archive = subprocess.run(git, cwd=ROOT, capture_output=True, check=False)
            if archive.returncode:
                raise NoHistoryError(archive.stderr.decode(errors="replace").strip())
            beside = folder.with_suffix(".new")
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            subprocess.run(["tar", "-x", "-C", str(beside)], input=archive.stdout, check=True)
            beside.rename(folder)
    return folder


def with_modules(commit: str, names: tuple[str, ...]) -> Path:
    """The folder, in which these extension modules can be imported.

    One whose sources are those of this tree is taken from here; others are compiled, half a minute each.
    """
    folder = source(commit)
    with _locked():
        for name in names:
            place = Path("src", *name.split("."))
            if list((folder / place).parent.glob(place.name + ".*.so")):
                continue
            if all(_is_same(folder / one, ROOT / one) for one in _sources(folder, place.with_suffix(".pyx"))):
                (compiled,) = (ROOT / place).parent.glob(place.name + ".*.so")
                shutil.copy2(compiled, (folder / place).parent)
            else:
                _compile(folder, str(place.with_suffix(".pyx")))
    return folder


def built(commit: str) -> Path:
    """The folder with all of its extensions compiled: some minutes, the first time."""
    folder = source(commit)
    with _locked():
        if not (folder / BUILT).exists():
            _compile(folder)
            (folder / BUILT).touch()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """What makes a Python of this environment import that version."""
    return {**os.environ, "PYTHONPATH": str(folder / "src")}


def ask(folder: Path, words: list[str], stdin: str = "") -> str:
    """What the probe says inside a version."""
    probe = [sys.executable, str(Path(__file__).with_name("probe.py")), *words]
    done = subprocess.run(
        probe, input=stdin, env=environment(folder), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _compile(folder: Path, pattern: str = "") -> None:
    words = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", "2"]
    env = {**environment(folder), "JETRAFT_EXT": pattern}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def _sources(folder: Path, path: Path) -> set[Path]:
    """The files that an extension is compiled from, relative to the folder."""
    found, waiting = set[Path](), [path]
    while waiting:
        one = waiting.pop()
        if one in found or not (folder / one).exists():
            continue
        found.add(one)
        text = (folder / one).read_text(encoding="utf-8")
        own = one.with_suffix(".pxd")
        headers = [one.parent / name for name in INCLUDED.findall(text)]
        modules = [Path("src", *(first or second).split(".")) for first, second in CIMPORTED.findall(text)]
        waiting += [own, *headers, *(module.with_suffix(".pxd") for module in modules)]
    return found


def _is_same(one: Path, other: Path) -> bool:
    return other.exists() and filecmp.cmp(one, other, shallow=False)


@contextmanager
def _locked() -> Iterator[None]:
    """One process at a time: tests run beside each other."""
    RELEASES.mkdir(parents=True, exist_ok=True)
    with (RELEASES / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
