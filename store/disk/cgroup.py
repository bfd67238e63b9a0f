"""The memory that this process may use: limits of its control groups (versions 1 and 2), and what is left of them.

A process is killed when its group, or any group around it, exceeds its limit. What counts are anonymous memory, files
in tmpfs and buffers of sockets; pages of files on a disk are given back by the kernel when it needs them, so they are
left out of what is used.

Everything is read below a root directory, `/` except in tests. A file that is missing or not readable is no limit.
"""

from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path("/")
LIMIT_FILES: Final = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}  # by type of file system
USAGE_FILES: Final = {"cgroup2": "memory.current", "cgroup": "memory.usage_in_bytes"}
FILE_PAGES: Final = {
    "cgroup2": ("inactive_file", "active_file"),
    "cgroup": ("total_inactive_file", "total_active_file"),
}


@attrs.frozen(kw_only=True, slots=True)
class MemoryGroup:
    """A control group with a limit: its directory, the type of its file system, and the limit in bytes."""

    directory: Path
    kind: str
    limit_bytes: int

    def free_bytes(self) -> int:
        """The memory that is left, pages of files counted as free; below 0 for a limit that was lowered."""
        used = _number(self.directory / USAGE_FILES[self.kind])
        statistics = _words(self.directory / "memory.stat")
        file_pages = sum(int(statistics.get(name, "0")) for name in FILE_PAGES[self.kind])
        return self.limit_bytes - max(0, (used or 0) - file_pages)


def memory_groups(root: Path = ROOT) -> tuple[MemoryGroup, ...]:
    """The groups of this process and those around it which have a limit."""
    paths = _paths(root / "proc/self/cgroup")
    found: list[MemoryGroup] = []
    for inside, mounted_at, kind, options in _mounts(root / "proc/self/mountinfo"):
        if kind not in LIMIT_FILES or (kind == "cgroup" and "memory" not in options):
            continue
        path = paths.get("memory" if kind == "cgroup" else "")
        if path is not None:
            found += _with_limits(root / mounted_at.lstrip("/"), _below(path, inside), kind)
    return tuple(found)


def memory_limit_bytes(physical_bytes: int, root: Path = ROOT) -> int | None:
    """The smallest limit of the groups in bytes; None when none is below `physical_bytes`."""
    smallest = min((group.limit_bytes for group in memory_groups(root)), default=physical_bytes)
    return smallest if smallest < physical_bytes else None


def _with_limits(mount: Path, below: str, kind: str) -> list[MemoryGroup]:
    """The groups from `below` up to the mount, which is there even if a container does not see the others."""
    parts = [part for part in below.split("/") if part]
    places = [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    limits = ((place, _number(place / LIMIT_FILES[kind])) for place in places)
    return [MemoryGroup(directory=place, kind=kind, limit_bytes=limit) for place, limit in limits if limit is not None]


def _below(path: str, inside: str) -> str:
    """A group's path below a mount that shows the hierarchy from `inside` on."""
    prefix = inside.rstrip("/")
    if path == prefix or path.startswith(prefix + "/"):
        return path[len(prefix) :]
    return ""


def _paths(file: Path) -> dict[str, str]:
    """The process's group by controller; "" is version 2."""
    paths: dict[str, str] = {}
    for line in _text(file).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _mounts(file: Path) -> list[tuple[str, str, str, list[str]]]:
    """Of each mount: the directory of its file system that it shows, where, the type, the options (proc(5))."""
    found = []
    for line in _text(file).splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) > 4 and len(right) > 2:  # noqa: PLR2004  (the fields of the line that are used)
            found.append((left[3], left[4], right[0], right[2].split(",")))
    return found


def _words(file: Path) -> dict[str, str]:
    return {key: value for key, _, value in (line.partition(" ") for line in _text(file).splitlines())}


def _number(file: Path) -> int | None:
    """The number in a file; None if it is not there or is not a number (`max`)."""
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
