"""Control groups with a memory limit, in which tests start a server. Making them needs root."""

import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from jetraft.store.disk.cgroup import MemoryGroup
from tests.harness.patience import PATIENCE_S

LOOK_S = 0.05
MOUNTS = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)


@contextmanager
def memory_group(name: str, limit_bytes: int) -> Iterator[Path]:
    """A group with this limit until the end of the block; skips the test where none can be made."""
    for mount, limit_file in MOUNTS:
        place = mount / f"jetraft-{name}-{os.getpid()}"
        if not (mount / "cgroup.procs").exists():  # the directory of the hierarchies of version 1 is none itself
            continue
        try:
            place.mkdir()
        except OSError:
            continue
        try:
            limited = False
            with suppress(OSError):
                (place / limit_file).write_text(str(limit_bytes), encoding="ascii")
                limited = True
            if limited:
                yield place
                return
        finally:
            _remove(place)
    pytest.skip("NOT TESTED: a memory limit; making control groups needs root and a writable hierarchy")


def _remove(place: Path) -> None:
    """Remove a group; the kernel's files in it need not be. A process that has just ended may still be counted."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            place.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_S)
        else:
            return


def command_within(place: Path) -> str:
    """The command that starts jetraft in that group, for JETRAFT_SERVER_CMD."""
    words = shlex.join([sys.executable, "-m", "jetraft"])
    script = f'echo $$ > {shlex.quote(str(place / "cgroup.procs"))} && exec {words} "$@"'
    return shlex.join(["sh", "-c", script, "sh"])


class Lowest:
    """`with Lowest(place, limit_bytes) as lowest:` looks all the time; `free_bytes` is the least that was left."""

    def __init__(self, place: Path, limit_bytes: int) -> None:
        kind = "cgroup2" if (place / "memory.max").exists() else "cgroup"
        self._group = MemoryGroup(directory=place, kind=kind, limit_bytes=limit_bytes)
        self.free_bytes = limit_bytes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.free_bytes = min(self.free_bytes, self._group.free_bytes())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


def was_killed(place: Path) -> bool:
    """Whether the kernel has ended a process of the group for its memory."""
    found = ""
    for name in ("memory.events", "memory.oom_control"):
        with suppress(OSError):
            found += (place / name).read_text(encoding="ascii")
    return any(line.split()[0] == "oom_kill" and line.split()[1] != "0" for line in found.splitlines())
