"""Progress bars of long work, on a terminal only: a pipe, a log and `--json` see the result alone.

A bar goes to the standard error stream, so the standard output can be piped on while it is shown.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from jetraft.api.cli.client.output import clean
from jetraft.api.cli.client.units import shown_count, shown_size

SHOWN_PER_S: Final = 8


class AmountColumn(ProgressColumn):
    """How much is done of how much, and how fast."""

    def __init__(self, *, of_bytes: bool) -> None:
        self._shown = shown_size if of_bytes else shown_count
        super().__init__()

    def render(self, task: Task) -> Text:
        """Of one bar."""
        total = "" if task.total is None else f" of {self._shown(int(task.total))}"
        speed = f"  {self._shown(int(task.speed))}/s" if task.speed else ""
        return Text(f"{self._shown(int(task.completed))}{total}{speed}")


@attrs.define(eq=False)
class Bar:
    """One bar; without a terminal its calls do nothing."""

    progress: Progress | None = None
    task: TaskID | None = None

    def at(self, done: int, total: int | None = None) -> None:
        """So much is done."""
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, completed=done, total=total)

    def add(self, done: int) -> None:
        """So much more is done."""
        if self.progress is not None and self.task is not None:
            self.progress.advance(self.task, done)


@contextmanager
def bars(*names: str, total: int | None = None, of_bytes: bool = False, shown: bool = True) -> Iterator[list[Bar]]:
    """A bar for each name, with the same total; `shown`: whether there should be any."""
    if not (shown and sys.stderr.isatty()):
        yield [Bar() for _ in names]
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), AmountColumn(of_bytes=of_bytes))
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, refresh_per_second=SHOWN_PER_S
    ) as progress:
        yield [Bar(progress, progress.add_task(clean(name), total=total)) for name in names]
