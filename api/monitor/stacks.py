"""/stacksz: where the threads and the tasks of this process are, as text."""

import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Final

import trio

TASKS_MAX: Final = 1000
FRAMES_MAX: Final = 40  # of one task or thread


def tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    """A task and all that run in its nurseries."""
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from tasks_below(child)


def lines() -> Iterator[str]:
    """Each thread with its stack, then each task with its own."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001  documented in sys
        yield f"thread {names.get(ident, ident)}:\n"
        yield from traceback.format_stack(frame, limit=-FRAMES_MAX)
        yield "\n"
    root = trio.lowlevel.current_root_task()
    for number, task in enumerate(tasks_below(root) if root is not None else ()):
        if number == TASKS_MAX:
            yield f"only {TASKS_MAX} tasks are shown\n"
            return
        yield f"task {task.name}:\n"
        stack = traceback.StackSummary.extract(task.iter_await_frames(), limit=FRAMES_MAX)
        yield from stack.format()
        yield "\n"


def stacks() -> bytes:
    """The page."""
    return "".join(lines()).encode(errors="replace")
