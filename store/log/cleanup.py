"""Deletes what a durable change has made superfluous, while the log goes on.

The next opening does the same where this does not finish, so no batch waits for it.
"""

from collections.abc import Callable, Iterator
from functools import partial

from jetraft.store.disk.io import Disk
from jetraft.store.log._growth import WriteQueue
from jetraft.store.log.write_queue import clean_up


class Cleanup:
    """The clean-ups of one log that are in progress."""

    __slots__ = ("_disk", "_queues")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._queues: list[WriteQueue] = []  # durable; their files are being removed or shortened

    def __iter__(self) -> Iterator[WriteQueue]:
        return iter(self._queues)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def start(self, queue: WriteQueue, done: Callable[[OSError | None], None]) -> None:
        """Begin, and call `done` in the trio thread at the end. Raises OSError when a file cannot be opened."""
        batch, fds = self._disk.batch(), list[int]()
        try:
            clean_up(batch, queue, self._disk, fds)
        except OSError:
            self._close_files(fds)
            raise
        self._queues.append(queue)
        self._disk.submit(batch, partial(self._finish, queue, fds, done), background=True)

    def _finish(
        self, queue: WriteQueue, fds: list[int], done: Callable[[OSError | None], None], error: OSError | None
    ) -> None:
        self._queues.remove(queue)
        self._close_files(fds)
        done(error)

    def _close_files(self, fds: list[int]) -> None:
        for fd in fds:
            self._disk.close_file(fd)
