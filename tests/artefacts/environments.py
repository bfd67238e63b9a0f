"""Environments of Python with chosen packages and no others, made without a package index.

What a wheel depends on is taken from the packages that are installed where the tests run: by links, where an
environment is all that is wanted, or packed into wheels again, where a package installer is what is tested.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

INSTALL_S: Final = 600.0
PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"


def bare_environment(*left_out: str) -> dict[str, str]:
    """The variables of this process without those that would let the checkout, or a machine's pip settings, in."""
    unwanted = ("PYTHON", "PIP_", "JETRAFT", "COV_")
    settings = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return {name: value for name, value in settings.items() if name not in left_out} | {"PIP_CONFIG_FILE": os.devnull}


def requirements_in(wheel: Path, extra: str = "") -> list[Requirement]:
    """What a wheel says that it needs, with one of its extras or without."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    texts = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return [needed for needed in map(Requirement, texts) if applies(needed, extra)]


def applies(needed: Requirement, extra: str) -> bool:
    """Whether a requirement holds here."""
    return needed.marker is None or needed.marker.evaluate({"extra": extra})


def closure(wanted: Iterable[Requirement], without: Iterable[str] = ()) -> dict[str, Distribution]:
    """The installed packages that satisfy these requirements, and theirs, by canonical name."""
    found: dict[str, Distribution] = {}
    known = {*map(canonicalize_name, without)}
    waiting = list(wanted)
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        needed = waiting.pop()
        name = canonicalize_name(needed.name)
        if name in known or (name, frozenset(needed.extras)) in seen:
            continue
        seen.add((name, frozenset(needed.extras)))
        installed = found.setdefault(name, distribution(needed.name))
        assert needed.specifier.contains(installed.version, prereleases=True), f"{needed} is {installed.version} here"
        further = map(Requirement, installed.requires or ())
        waiting += [one for one in further if any(applies(one, extra) for extra in (needed.extras or {""}))]
    return found


def files_of(installed: Distribution) -> Iterator[tuple[str, Path]]:
    """Its files in site-packages: their names there, and where they are."""
    for file in installed.files or ():
        if file.parts[0] != ".." and "__pycache__" not in file.parts and file.name not in ("INSTALLER", "REQUESTED"):
            yield file.as_posix(), Path(str(file.locate()))


class Environment:
    """A virtual environment with links to packages of this one, in which wheels are installed with pip."""

    def __init__(self, directory: Path, *, is_there: bool = False) -> None:
        """Make an empty one, without pip; or take the one that is there."""
        self.directory = directory
        self.python = directory / "bin" / "python"
        self.site = directory / "lib" / PYTHON / "site-packages"
        if not is_there:
            venv.create(directory, with_pip=False, system_site_packages=False, symlinks=True)

    def link(self, packages: Iterable[Distribution]) -> list[Path]:
        """Let these be installed here, file by file, as some share a folder; returns the links."""
        made: list[Path] = []
        for installed in packages:
            for name, path in files_of(installed):
                made.append(self.site / name)
                made[-1].parent.mkdir(parents=True, exist_ok=True)
                made[-1].symlink_to(path)
        return made

    @contextmanager
    def linked(self, packages: Iterable[Distribution]) -> Iterator[None]:
        """The same for a while."""
        made = self.link(packages)
        try:
            yield
        finally:
            for path in made:
                path.unlink()
            for folder in sorted({path.parent for path in made}, reverse=True):
                shutil.rmtree(folder / "__pycache__", ignore_errors=True)
                while folder != self.site and folder.exists() and not any(folder.iterdir()):
                    folder.rmdir()  # an empty one would be a package without a file
                    folder = folder.parent  # noqa: PLW2901  upwards

    def install(self, *wheels: Path) -> None:
        """Install wheels as pip does, and nothing else."""
        words = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", *map(str, wheels)]
        self.pip(*words, check=True)

    def pip(self, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """A command of the pip of the tests, for this environment."""
        return subprocess.run(
            [sys.executable, "-m", "pip", "--python", str(self.python), *words],
            capture_output=True,
            text=True,
            check=check,
            timeout=INSTALL_S,
            env=bare_environment(),
        )

    def run(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Its Python with these words, somewhere else than in the checkout."""
        return subprocess.run(
            [str(self.python), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_S,
            env=bare_environment(),
            cwd=cwd,
        )


def packed(installed: Distribution, directory: Path) -> Path:
    """A wheel of an installed package."""
    tags = [
        line.partition(": ")[2] for line in (installed.read_text("WHEEL") or "").splitlines() if line[:5] == "Tag: "
    ]
    name = re.sub(r"[-_.]+", "_", installed.name).lower()
    tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*(each.split("-") for each in tags), strict=True))
    wheel = directory / f"{name}-{installed.version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        record: list[tuple[str, str, str]] = []
        record_name = ""
        for file_name, path in files_of(installed):
            if file_name.endswith(".dist-info/RECORD") and file_name.count("/") == 1:  # others are of vendored ones
                record_name = file_name
            elif not file_name.endswith(".dist-info/direct_url.json"):
                archive.write(path, file_name)
                record.append((file_name, "", ""))
        rows = [*record, (record_name, "", "")]
        archive.writestr(record_name, "".join(f"{','.join(row)}\n" for row in rows))
    return wheel


def pinned(wheels: Iterable[Path]) -> str:
    """Lines of requirements that name these files by hash."""
    lines: list[str] = []
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return "".join(lines)


def built_objects() -> tuple[str, str]:
    """The folders below build/ that `make build` fills, and setup.py looks in."""
    return "cython", f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
