"""Every file of a store, and of which kind it is: found by walking, so that a new kind is found by itself.

A kind is what a file is called with everything taken out that differs from store to store: "stream/*.blk last" is the
newest block of a stream's log, "meta/hard-state.#" one of the meta group's copies of term and vote. Nothing here knows
which kinds there are.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import attrs

GROUPS = "groups"
META = "meta"
STREAM = "stream"
_NUMBER = re.compile(r"\d+")


class Tree(Protocol):
    """Files by their path from the root: of a directory, or of a simulated disk."""

    def names(self) -> list[str]:
        """The paths of all files."""
        ...

    def read(self, name: str) -> bytes:
        """The content of one."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Replace the content of one."""
        ...

    def remove(self, name: str) -> None:
        """Delete one."""
        ...


@attrs.frozen
class FileTree:
    """A directory."""

    root: Path

    def names(self) -> list[str]:
        """See Tree."""
        return [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()]

    def read(self, name: str) -> bytes:
        """See Tree."""
        return (self.root / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """See Tree."""
        (self.root / name).write_bytes(content)

    def remove(self, name: str) -> None:
        """See Tree."""
        (self.root / name).unlink()


@attrs.frozen(kw_only=True)
class Place:
    """A file of a store."""

    kind: str
    name: str


def places(tree: Tree) -> list[Place]:
    """All files, in an order that is the same for two stores with the same life."""
    names = sorted(tree.names(), key=natural)
    return [Place(kind=kind, name=name) for name, kind in zip(names, kinds(names), strict=True)]


def kinds(names: Sequence[str]) -> Iterator[str]:
    """The kind of each file; of numbered ones the newest in its directory is a kind by itself, and a lone one too."""
    patterns = [_pattern(name) for name in names]
    for number, (name, pattern) in enumerate(zip(names, patterns, strict=True)):
        alike = [
            other
            for other, name_of_other in enumerate(names)
            if patterns[other] == pattern and _folder(name_of_other) == _folder(name)
        ]
        age = "" if not _is_series(name) else " only" if len(alike) == 1 else " last" if number == alike[-1] else ""
        yield pattern + age


def natural(name: str) -> list[tuple[int, str]]:
    """A key that orders by the numbers in a path; of a group's name only its incarnation counts."""
    parts = name.split("/")
    if GROUPS in parts[:-1]:
        at = parts.index(GROUPS) + 1
        group, _, incarnation = parts[at].rpartition(".")
        parts[at] = "0" if group == META else incarnation
    return [(int(digits or 0), text) for text, digits in re.findall(r"(\D*)(\d*)", "/".join(parts))]


def group_of(name: str) -> str:
    """The id of the group to which a file belongs, "" when it belongs to the node."""
    parts = name.split("/")
    return parts[parts.index(GROUPS) + 1].partition(".")[0] if GROUPS in parts[:-2] else ""


def meta_groups(tree: FileTree) -> set[str]:
    """The directories of meta groups in a store: more than one means that another one was founded."""
    return {path.name for path in tree.root.rglob(f"{GROUPS}/{META}.*") if path.is_dir()}


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _is_series(name: str) -> bool:
    """Whether files of this kind are numbered, and so the last one is the newest."""
    stem = name.rpartition("/")[2].rpartition(".")[0]
    return bool(stem) and not stem.strip("0123456789-")


def _pattern(name: str) -> str:
    file = name.rpartition("/")[2]
    group = group_of(name)
    owner = f"{META if group == META else STREAM}/" if group else ""
    if _is_series(name):
        return f"{owner}*.{file.rpartition('.')[2]}"
    return owner + _NUMBER.sub("#", file)
