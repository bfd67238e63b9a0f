"""The only door to files and to the writer threads.

A store works on a `Disk`: reads and directory work happen at once, in the calling thread; everything that changes a
file goes into a `Batch`, a list of operations done in order, either here and now (`perform`, while a log is opened) or
by a writer thread (`submit`). Tests and the simulator hand in a disk that loses what was not fsynced.

`Writer` owns the threads. Its `fileno()` becomes readable when a batch is done; whoever waits for that calls `drain()`,
which calls the callbacks. Nothing polls. Source of the idea: a file system behind a port (raft-engine).
"""

import fcntl
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

import attrs
import trio

from jetraft.store._writer import Batch as FileBatch
from jetraft.store._writer import WriterThreads

T = TypeVar("T")
Done = Callable[[OSError | None], None]

WRITER_THREADS: Final = 16  # at most; a kernel flushes a disk once for all fsyncs that wait (tests.bench.streams)
BRISK_NS: Final = 500_000  # an fdatasync of a good disk takes 40 to 200 us, a thread's wake-up and back 50 to 100
SLOW_NS: Final = 20_000_000  # one stall counts as this much at most, so that the way back is not too long
BRISK_WEIGHT: Final = 0.1  # of the newest batch in the moving average
FILE_MODE: Final = 0o600  # messages are nobody else's business; as nats-server
DIRECTORY_MODE: Final = 0o700
STAT_BLOCK_BYTES: Final = 512  # the unit of st_blocks, whatever the file system's is
BLOCKING_CALLS_MAX: Final = 4  # opening a thousand logs must not start a thousand threads


@attrs.frozen(kw_only=True, slots=True)
class DiskSize:
    """Bytes of a file system: `free` is what an unprivileged process may still write."""

    free: int
    total: int


class Batch(Protocol):
    """Operations on files, done in order until one fails. Buffers must not change until the batch is done."""

    def __len__(self) -> int:
        """How many operations."""
        ...

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        """Write `buffers` one after the other from `offset`."""
        ...

    def sync_data(self, fd: int) -> None:
        """Make the content durable, and of the metadata what reading it needs (fdatasync)."""
        ...

    def sync(self, fd: int) -> None:
        """Make content and metadata of a file, or the names in a directory, durable (fsync)."""
        ...

    def allocate(self, fd: int, size: int) -> None:
        """Reserve the first `size` bytes; what was not written reads as zeros."""
        ...

    def reserve(self, fd: int, choices: Sequence[tuple[int, bytes]], took: Callable[[int], None]) -> None:
        """The same for a new file, as much as there is room for: (size, head) in the order in which they are tried.

        The head of the size that was had is written at the start. `took` hears of that size in the thread that drains,
        before the batch is reported. When there is no room for any of them the batch fails, with nothing allocated.
        """
        ...

    def truncate(self, fd: int, size: int) -> None:
        """Cut or extend to `size` bytes."""
        ...

    def rename(self, old: bytes, new: bytes) -> None:
        """Give a file another name, replacing what had it."""
        ...

    def unlink(self, path: bytes) -> None:
        """Remove a name."""
        ...


class Disk(Protocol):
    """What a log needs of a file system. Errors are OSError."""

    def make_directory(self, path: Path) -> list[Path]:
        """Create a directory and its parents where they are missing; return the directories to `sync` for that."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory of this name."""
        ...

    def list_directory(self, path: Path) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove a directory and everything in it, if it is there."""
        ...

    def sync_way_to(self, path: Path) -> None:
        """Make the names of the directories that lead here durable: else a power cut may take all that is below.

        On this file system, as far as this process may read it.
        """
        ...

    def lock(self, path: Path) -> int:
        """Have a file for this process alone, until it is closed. Raises BlockingIOError when another has it."""
        ...

    def room(self, path: Path) -> DiskSize:
        """How large the file system of `path` is, and what is free."""
        ...

    def used_bytes(self, path: Path) -> int:
        """What a file, or all files below a directory, take of the device; 0 when there is nothing."""
        ...

    def open_file(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; `create` makes it when it is missing and leaves its content alone."""
        ...

    def open_directory(self, path: Path) -> int:
        """Open for `sync`."""
        ...

    def close_file(self, fd: int) -> None:
        """Give the descriptor back."""
        ...

    def size(self, fd: int) -> int:
        """Bytes, with what is preallocated."""
        ...

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def forget_cached(self, fd: int) -> None:
        """Drop clean cached pages, so that the next read comes from the device (after a failed fsync they lie)."""
        ...

    def batch(self) -> Batch:
        """An empty batch for this disk."""
        ...

    def perform(self, batch: Batch) -> None:
        """Do a batch now, in this thread. Raises the OSError of the operation that failed."""
        ...

    def submit(
        self, batch: Batch, done: Done, *, may_block: bool = False, aside: bool = False, ahead: bool = False
    ) -> None:
        """Do a batch in the background; `done` is called once, later, in the thread that drains.

        With `may_block` a disk that has been quick lately may do it here and now, and call `done` before it returns.
        Nobody waits for one `aside`: how long it takes says nothing about how quick the disk is. One that goes `ahead`
        of those that wait is for many logs at once, so that a thousand of them do not wait for each other's.
        """
        ...

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        """Do a batch right after `before`, which was submitted and has not called back yet.

        When `before` fails, this one does nothing and fails with the same error.
        """
        ...


@attrs.frozen(kw_only=True, slots=True)
class WriterStatistics:
    """A snapshot of a writer's figures."""

    threads: int
    batches_done: int
    batches_failed: int
    batches_in_flight: int


class Writer:
    """The node's writer threads, as many as there is work for, `threads` at most.

    Batches of one log must follow each other; those of different logs may overlap.
    """

    def __init__(self, threads: int = WRITER_THREADS) -> None:
        self._threads = WriterThreads(threads)
        self._callbacks: dict[FileBatch, Done] = {}
        self._batches_done = 0
        self._batches_failed = 0
        self._stopping = False

    def fileno(self) -> int:
        """Readable while `drain` has something to do."""
        return self._threads.event_fd

    def submit(self, batch: FileBatch, done: Done, *, ahead: bool = False) -> None:
        """Queue a batch, `ahead` of those that wait.

        `done(error)` is called by `drain`, exactly once; never when the writer stops already.
        """
        if self._stopping:
            return
        self._callbacks[batch] = done
        self._threads.submit(batch, ahead)

    def follow(self, batch: FileBatch, done: Done, before: FileBatch) -> None:
        """Queue a batch behind one that is not drained yet: it is done next, or fails when that one does."""
        if self._stopping:
            return
        self._callbacks[batch] = done
        self._threads.follow(batch, before)

    def drain(self) -> None:
        """Call the callbacks of all batches that were finished. Callbacks may submit."""
        for batch in self._threads.drain():
            error = batch.error
            batch.tell()
            self._batches_done += 1
            self._batches_failed += error is not None
            self._callbacks.pop(batch)(error)

    def stop(self) -> None:
        """Finish what is queued, call the callbacks, end the threads. Blocks until then.

        What callbacks submit now is dropped: a log goes on with its next batch, which was promised to nobody yet.
        """
        self._stopping = True
        self._threads.stop()
        self.drain()
        self._threads.close()

    def statistics(self) -> WriterStatistics:
        """Figures for monitoring and tests."""
        return WriterStatistics(
            threads=self._threads.count,
            batches_done=self._batches_done,
            batches_failed=self._batches_failed,
            batches_in_flight=len(self._callbacks),
        )


class Briskness:
    """Whether the disk has been so quick lately that waiting for it costs less than a thread's wake-up and back.

    A moving average of how long batches take, from all of them: those done here, and those done by the threads. After a
    slow one it takes a row of quick ones until batches are done here again.
    """

    def __init__(self) -> None:
        self._average_ns = float(BRISK_NS)

    def note(self, elapsed_ns: int) -> None:
        """A batch took this long."""
        self._average_ns += (min(elapsed_ns, SLOW_NS) - self._average_ns) * BRISK_WEIGHT

    @property
    def is_brisk(self) -> bool:
        """True when a batch may be waited for."""
        return self._average_ns < BRISK_NS


class LocalDisk:
    """The machine's file system. Implements Disk."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._asides: deque[tuple[FileBatch, Done]] = deque()  # the first is being done
        self.briskness = Briskness()

    def make_directory(self, path: Path) -> list[Path]:
        """See Disk."""
        missing = [parent for parent in (path, *path.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        return [parent.parent for parent in missing]

    def exists(self, path: Path) -> bool:
        """See Disk."""
        return path.exists()

    def list_directory(self, path: Path) -> list[str]:
        """See Disk."""
        try:
            return sorted(entry.name for entry in path.iterdir())
        except FileNotFoundError:
            return []

    def remove_directory(self, path: Path) -> None:
        """See Disk."""
        if path.exists():
            shutil.rmtree(path)

    def sync_way_to(self, path: Path) -> None:
        """See Disk."""
        place = path.resolve()
        device = place.stat().st_dev
        for parent in place.parents:
            if parent.stat().st_dev != device:
                return
            with suppress(PermissionError):
                sync_directory(self, parent)

    def lock(self, path: Path) -> int:
        """See Disk."""
        fd = self.open_file(path, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def room(self, path: Path) -> DiskSize:
        """See Disk."""
        status = os.statvfs(path)
        return DiskSize(free=status.f_bavail * status.f_frsize, total=status.f_blocks * status.f_frsize)

    def used_bytes(self, path: Path) -> int:
        """See Disk."""
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        return sum(each.stat().st_blocks * STAT_BLOCK_BYTES for each in files)

    def open_file(self, path: Path, *, create: bool = False) -> int:
        """See Disk."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags | (os.O_CREAT if create else 0), FILE_MODE)

    def open_directory(self, path: Path) -> int:
        """See Disk."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close_file(self, fd: int) -> None:
        """See Disk. What close says about earlier writes is of no use: only an fsync makes a promise."""
        with suppress(OSError):  # the descriptor is gone in any case
            os.close(fd)

    def size(self, fd: int) -> int:
        """See Disk."""
        return os.fstat(fd).st_size

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """See Disk."""
        data = os.pread(fd, size, offset)
        while len(data) < size:
            more = os.pread(fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def forget_cached(self, fd: int) -> None:
        """See Disk."""
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def batch(self) -> FileBatch:
        """See Disk."""
        return FileBatch()

    def perform(self, batch: Batch) -> None:
        """See Disk."""
        assert isinstance(batch, FileBatch)
        try:
            batch.perform()
        finally:
            batch.tell()

    def submit(
        self, batch: Batch, done: Done, *, may_block: bool = False, aside: bool = False, ahead: bool = False
    ) -> None:
        """See Disk."""
        assert isinstance(batch, FileBatch)
        if aside:
            self._asides.append((batch, done))
            if len(self._asides) == 1:
                self._next_aside()
            return
        begun_ns = time.monotonic_ns()
        if may_block and self.briskness.is_brisk:
            error: OSError | None = None
            try:
                self.perform(batch)
            except OSError as found:
                error = found
            self.briskness.note(time.monotonic_ns() - begun_ns)
            done(error)
            return

        def finished(error: OSError | None) -> None:
            self.briskness.note(time.monotonic_ns() - begun_ns)
            done(error)

        self._writer.submit(batch, finished, ahead=ahead)

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        """See Disk."""
        assert isinstance(batch, FileBatch)
        assert isinstance(before, FileBatch)
        self._writer.follow(batch, done, before)

    def _next_aside(self) -> None:
        """One at a time, so that a thread is left for what somebody waits for."""
        batch, done = self._asides[0]

        def finished(error: OSError | None) -> None:
            self._asides.popleft()
            if self._asides:
                self._next_aside()
            done(error)

        self._writer.submit(batch, finished)


def sync_directory(disk: Disk, directory: Path) -> None:
    """Make the names in a directory durable: who made them may have been killed before that. Blocking."""
    fd = disk.open_directory(directory)
    batch = disk.batch()
    batch.sync(fd)
    try:
        disk.perform(batch)
    finally:
        disk.close_file(fd)


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


async def outcome_of(begin: Callable[[Done], None]) -> None:
    """Begin something that calls back when it is done, and wait for that. Raises its error."""
    finished = trio.Event()
    errors: list[OSError] = []

    def done(error: OSError | None) -> None:
        errors.extend([] if error is None else [error])
        finished.set()

    begin(done)
    await finished.wait()
    if errors:
        raise errors[0]


_LIMITER: Final = trio.CapacityLimiter(BLOCKING_CALLS_MAX)


async def run_blocking(function: Callable[[], T]) -> T:
    """Call `function` in a thread: for opening logs, verifying snapshots and other long file work."""
    return await trio.to_thread.run_sync(function, limiter=_LIMITER)
