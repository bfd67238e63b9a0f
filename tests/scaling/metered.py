"""A server that counts the processor time of its steps: `python -m tests.scaling.metered FILE FLAGS...`.

A step is what one task does until it waits: nobody else is served meanwhile. The figures are in a mapped file, where
whoever measures reads them and sets the longest step to zero. Processor time of the thread says the same on a busy
machine as on a quiet one, and a long step is told in the time of one machine: what a fixed piece of work takes right
after it says how fast this one is just then.
"""

import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from jetraft.__main__ import main
from jetraft.api.turns.reactor import Reactor

FIGURES: Final = struct.Struct("<qq64s")  # ns of all steps, ns of the longest, and the task that it was a step of
LONG_NS: Final = 1_000_000  # a step that the pace is measured for
PACE_COUNT: Final = 10_000
PACE_NS: Final = 170_000  # of `pace_ns` on the machine that the limits of the tests were found on
NOTHING: Final = FIGURES.pack(0, 0, b"")


@attrs.frozen
class Figures:
    """What the steps have cost."""

    total_ns: int
    longest_ns: int
    task: str


def mapped(path: Path) -> mmap.mmap:
    """The figures of the server that was started with this file, which exists."""
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), FIGURES.size)


def read(figures: mmap.mmap) -> Figures:
    """The figures now."""
    total_ns, longest_ns, task = FIGURES.unpack(figures[: FIGURES.size])
    return Figures(total_ns, longest_ns, task.rstrip(b"\0").decode())


class Meter(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self, figures: mmap.mmap) -> None:
        self._figures = figures
        self._began_ns = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        del task
        self._began_ns = time.thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        took_ns = time.thread_time_ns() - self._began_ns
        told_ns = took_ns * PACE_NS // pace_ns() if took_ns > LONG_NS else took_ns
        total_ns, longest_ns, name = FIGURES.unpack(self._figures[: FIGURES.size])
        if told_ns > longest_ns:
            longest_ns, name = told_ns, task.name.encode()[:64]
        self._figures[: FIGURES.size] = FIGURES.pack(total_ns + took_ns, longest_ns, name)


def pace_ns() -> int:
    """The processor time of a fixed piece of work."""
    began_ns, total = time.thread_time_ns(), 0
    for number in range(PACE_COUNT):
        total += number
    return time.thread_time_ns() - began_ns


def meter(path: Path) -> None:
    """Have the reactor of this process begin with a meter."""
    meter_of_all = Meter(mapped(path))
    run_sockets = Reactor.run_sockets

    async def run_metered(self: Reactor, next_deadline_ns: Callable[[], int]) -> Any:
        trio.lowlevel.add_instrument(meter_of_all)
        return await run_sockets(self, next_deadline_ns)

    Reactor.run_sockets = run_metered  # type: ignore[method-assign]


if __name__ == "__main__":
    meter(Path(sys.argv.pop(1)))
    raise SystemExit(main())
