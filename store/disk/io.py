"""The interface to files (`Disk`) and its implementation with writer threads (`LocalDisk`, `Writer`).

Reads and directory operations happen in the calling thread. Changes to files are collected in a `Batch`, a list of
operations that are performed in order, either in the calling thread (`perform`, while a log is opened) or by a writer
thread (`submit`). Tests and the simulator use a disk that loses everything that was not fsynced.

`Writer` owns the threads. Its `fileno()` becomes readable when a batch is complete; `drain()` then calls the callbacks.
Nothing polls. Source: a file system behind a port (raft-engine).
"""

import contextlib
import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Final, Protocol, TypeVar

import attrs
import trio

from jetraft.store.disk._writer import Batch as FileBatch
from jetraft.store.disk._writer import WriterThreads
from jetraft.store.disk.latency import DiskLatency
from jetraft.store.model.files.file_modes import PRIVATE_DIRECTORY, PRIVATE_FILE

T = TypeVar("T")
Done = Callable[[OSError | None], None]

WRITER_THREADS: Final = 16  # at most; a kernel flushes a disk once for all waiting fsyncs (tests.bench.streams)
STAT_BLOCK_BYTES: Final = 512  # the unit of st_blocks, whatever the file system's is
BLOCKING_CALLS_MAX: Final = 4  # so that opening a thousand logs does not start a thousand threads


@attrs.frozen(kw_only=True, slots=True)
class DiskSize:
    """The size of a file system in bytes; `free` is what an unprivileged process may write."""

    free: int
    total: int


class Batch(Protocol):
    """Operations on files, performed in order until one fails. Buffers must not change until the batch is complete."""

    def __len__(self) -> int:
        """The number of operations."""
        ...

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        """Write `buffers` one after the other from `offset`."""
        ...

    def write_made(self, fd: int, make: Callable[[], bytes], offset: int) -> None:
        """Write what `make` returns, which is called in the thread that performs the batch."""
        ...

    def sync_data(self, fd: int) -> None:
        """Make the content durable, with the metadata that is needed to read it (fdatasync)."""
        ...

    def sync(self, fd: int) -> None:
        """Make content and metadata of a file, or the names in a directory, durable (fsync)."""
        ...

    def allocate(self, fd: int, size: int) -> None:
        """Allocate the first `size` bytes; bytes that were not written read as zeros."""
        ...

    def reserve(self, fd: int, choices: Sequence[tuple[int, bytes]], on_reserved: Callable[[int], None]) -> None:
        """Allocate a new file with the first of several sizes for which there is space; `choices` is (size, head)s.

        The head that belongs to the size is written at the start. `on_reserved` is called with the size in the thread
        that drains, before the batch is reported. If there is no space for any size the batch fails, with nothing
        allocated.
        """
        ...

    def truncate(self, fd: int, size: int) -> None:
        """Cut or extend to `size` bytes."""
        ...

    def rename(self, old: bytes, new: bytes) -> None:
        """Rename a file, replacing an existing one."""
        ...

    def unlink(self, path: bytes) -> None:
        """Remove a name. One that is gone already is no error: it was to go, and no data is lost by that."""
        ...


class Disk(Protocol):
    """The file system, as a log uses it. Errors are OSError."""

    def make_directory(self, path: Path) -> list[Path]:
        """Create a directory and its missing parents; return the directories that must be synced for that."""
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

    def sync_parents(self, path: Path) -> None:
        """Make the directory entries of all parents durable: a power failure could remove the whole tree otherwise.

        Only parents on the same file system that this process may open.
        """
        ...

    def lock(self, path: Path) -> int:
        """Open and lock a file until it is closed. Raises BlockingIOError when another process has the lock."""
        ...

    def lock_directory(self, path: Path) -> int:
        """The same for a directory, without a lock where the file system has none."""
        ...

    def space(self, path: Path) -> DiskSize:
        """Size and free space of the file system of `path`."""
        ...

    def used_bytes(self, path: Path) -> int:
        """The bytes that a file, or all files below a directory, take on the device; 0 when there is none."""
        ...

    def open_file(self, path: Path, *, create: bool = False) -> int:
        """Open a file for reading and writing; `create` makes it if it is missing and does not truncate it."""
        ...

    def open_directory(self, path: Path) -> int:
        """Open a directory for `sync`."""
        ...

    def close_file(self, fd: int) -> None:
        """Close a descriptor."""
        ...

    def size(self, fd: int) -> int:
        """The length of a file in bytes, with preallocated ones."""
        ...

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def forget_cached(self, fd: int) -> None:
        """Drop clean cached pages, so that the next read is from the device: after a failed fsync they may differ."""
        ...

    def batch(self) -> Batch:
        """An empty batch for this disk."""
        ...

    def perform(self, batch: Batch) -> None:
        """Perform a batch in this thread. Raises the OSError of the operation that failed."""
        ...

    @property
    def is_fast(self) -> bool:
        """Whether waiting for a small batch costs this thread less than a writer thread's wake-up (decision 26)."""
        ...

    def perform_here(self, batch: Batch) -> OSError | None:
        """Perform a batch in this thread in place of `submit`, so that its duration counts; returns what failed."""
        ...

    def submit(self, batch: Batch, done: Done, *, background: bool = False, ahead: bool = False) -> None:
        """Queue a batch for a writer thread; `done` is called once, later, in the thread that drains.

        `background` batches are performed one at a time, and their duration does not count for the latency of the disk.
        An `ahead` batch precedes the waiting ones: it serves many logs at once.
        """
        ...

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        """Queue a batch to be performed right after `before`, which was submitted and is not complete yet.

        If `before` fails, this batch has no effect and fails with the same error.
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
    """The node's writer threads, at most `threads`.

    Batches of one log must not overlap; those of different logs may. Making one opens its eventfd; a thread starts with
    the first batch that finds none idle.
    """

    def __init__(self, threads: int = WRITER_THREADS) -> None:
        self._threads = WriterThreads(threads)
        self._callbacks: dict[FileBatch, tuple[Done, DiskLatency | None, int]] = {}  # the last: when it was submitted
        self._batches_done = 0
        self._batches_failed = 0
        self._stopping = False

    def fileno(self) -> int:
        """A descriptor that is readable while completed batches wait for `drain`."""
        return self._threads.event_fd

    def submit(
        self,
        batch: FileBatch,
        done: Done,
        *,
        ahead: bool = False,
        latency: DiskLatency | None = None,
        begun_ns: int = 0,
    ) -> None:
        """Queue a batch, `ahead` of the waiting ones if requested.

        `drain` calls `done(error)` exactly once; after `stop` it is never called. The time from `begun_ns` until then
        counts in `latency`.
        """
        if self._stopping:
            return
        self._callbacks[batch] = done, latency, begun_ns
        self._threads.submit(batch, ahead)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Queue what is submitted inside, but for what goes ahead, all at once at the end."""
        self._threads.gather()
        try:
            yield
        finally:
            self._threads.submit_gathered()

    def follow(self, batch: FileBatch, done: Done, before: FileBatch) -> None:
        """Queue a batch after one that is not drained yet: see Disk."""
        if self._stopping:
            return
        self._callbacks[batch] = done, None, 0
        self._threads.follow(batch, before)

    def drain(self) -> None:
        """Call the callbacks of all completed batches. Callbacks may submit."""
        now_ns = time.monotonic_ns()
        for batch in self._threads.drain():
            error = batch.error
            batch.report_reserved()
            self._batches_done += 1
            self._batches_failed += error is not None
            done, latency, begun_ns = self._callbacks.pop(batch)
            if latency is not None:
                latency.note(now_ns - begun_ns)
            done(error)

    def stop(self) -> None:
        """Perform the queued batches, call their callbacks, end the threads. Blocks until then.

        Batches that callbacks submit are dropped: a log reports nothing of its next batch before it is durable.
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


class LocalDisk:
    """The machine's file system. Implements Disk."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._background: deque[tuple[FileBatch, Done]] = deque()  # the first is being performed
        self.latency = DiskLatency()

    def make_directory(self, path: Path) -> list[Path]:
        """See Disk."""
        missing = list(takewhile(lambda parent: not parent.exists(), (path, *path.parents)))
        for parent in reversed(missing):
            parent.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
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
            import shutil  # noqa: PLC0415  it loads compression, and most servers remove nothing for a time

            shutil.rmtree(path)

    def sync_parents(self, path: Path) -> None:
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
        return _locked(self.open_file(path, create=True))

    def lock_directory(self, path: Path) -> int:
        """See Disk."""
        try:
            return _locked(self.open_directory(path))
        except BlockingIOError:
            raise
        except OSError:  # NFS takes locks of files only
            return self.open_directory(path)

    def space(self, path: Path) -> DiskSize:
        """See Disk."""
        status = os.statvfs(path)
        return DiskSize(free=status.f_bavail * status.f_frsize, total=status.f_blocks * status.f_frsize)

    def used_bytes(self, path: Path) -> int:
        """See Disk."""
        if path.is_file():
            return path.stat().st_blocks * STAT_BLOCK_BYTES
        blocks, directories = 0, [os.fspath(path)]
        while directories:  # with pathlib it took a quarter of a start with a thousand streams
            with contextlib.suppress(FileNotFoundError), os.scandir(directories.pop()) as found:
                for each in found:
                    if each.is_dir(follow_symlinks=False):
                        directories.append(each.path)
                    elif each.is_file():
                        blocks += each.stat().st_blocks
        return blocks * STAT_BLOCK_BYTES

    def open_file(self, path: Path, *, create: bool = False) -> int:
        """See Disk."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags | (os.O_CREAT if create else 0), PRIVATE_FILE)

    def open_directory(self, path: Path) -> int:
        """See Disk."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close_file(self, fd: int) -> None:
        """See Disk. Errors of close are ignored: only fsync reports whether writes are durable."""
        with suppress(OSError):  # the descriptor is closed in any case
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
            batch.report_reserved()

    @property
    def is_fast(self) -> bool:
        """See Disk."""
        return self.latency.is_fast

    def perform_here(self, batch: Batch) -> OSError | None:
        """See Disk."""
        begun_ns, error = time.monotonic_ns(), None
        try:
            self.perform(batch)
        except OSError as found:
            error = found
        self.latency.note(time.monotonic_ns() - begun_ns)
        return error

    def submit(self, batch: Batch, done: Done, *, background: bool = False, ahead: bool = False) -> None:
        """See Disk."""
        assert isinstance(batch, FileBatch)
        if background:
            self._background.append((batch, done))
            if len(self._background) == 1:
                self._next_background()
            return
        self._writer.submit(batch, done, ahead=ahead, latency=self.latency, begun_ns=time.monotonic_ns())

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        """See Disk."""
        assert isinstance(batch, FileBatch)
        assert isinstance(before, FileBatch)
        self._writer.follow(batch, done, before)

    def _next_background(self) -> None:
        """Submit the next background batch: one at a time, so that other threads are free for awaited batches."""
        batch, done = self._background[0]

        def finished(error: OSError | None) -> None:
            self._background.popleft()
            if self._background:
                self._next_background()
            done(error)

        self._writer.submit(batch, finished)


def sync_directory(disk: Disk, directory: Path) -> None:
    """Make the names in a directory durable. Blocking."""
    fd = disk.open_directory(directory)
    batch = disk.batch()
    batch.sync(fd)
    try:
        disk.perform(batch)
    finally:
        disk.close_file(fd)


def memory_bytes() -> int:
    """The size of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


async def outcome_of(begin: Callable[[Done], None]) -> None:
    """Call `begin` with a callback, and wait for the callback. Raises the error that it receives."""
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
    """Call `function` in a thread, for opening logs, verifying snapshots and other long file operations."""
    return await trio.to_thread.run_sync(function, limiter=_LIMITER)


def check_wanted() -> None:
    """Called by what runs in `run_blocking`, between its pieces: raises trio.Cancelled once the caller is cancelled."""
    trio.from_thread.check_cancelled()


def _locked(fd: int) -> int:
    """The descriptor, locked; it is closed when that fails."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd
