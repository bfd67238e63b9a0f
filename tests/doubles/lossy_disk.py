"""A disk in memory that forgets what was not fsynced: for tests and the simulator.

What a crash keeps is in lossy_tree.py. Batches are done when the owner says so, operation by operation, so a crash can
come between any two. Faults can be ordered for any kind of operation.
"""

import errno as errors
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from jetraft.store.disk.io import Batch, DiskSize, Done
from tests.doubles.lossy_tree import SECTOR_BYTES, LossyDirectory, LossyFile, LossyNode

FREE_BYTES: Final = 1 << 40  # where nobody says how much room there is


class LossyBatch:
    """Implements Batch by remembering the operations."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, tuple[object, ...]]] = []

    def __len__(self) -> int:
        """See Batch."""
        return len(self.operations)

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        """See Batch."""
        self.operations.append(("write", (fd, b"".join(buffers), offset)))

    def write_made(self, fd: int, make: Callable[[], bytes], offset: int) -> None:
        """See Batch."""
        self.operations.append(("write", (fd, make, offset)))

    def sync_data(self, fd: int) -> None:
        """See Batch."""
        self.operations.append(("sync", (fd,)))

    def sync(self, fd: int) -> None:
        """See Batch."""
        self.operations.append(("sync", (fd,)))

    def allocate(self, fd: int, size: int) -> None:
        """See Batch."""
        self.operations.append(("allocate", (fd, size)))

    def reserve(self, fd: int, choices: Sequence[tuple[int, bytes]], on_reserved: Callable[[int], None]) -> None:
        """See Batch."""
        self.operations.append(("reserve", (fd, tuple(choices), on_reserved)))

    def truncate(self, fd: int, size: int) -> None:
        """See Batch."""
        self.operations.append(("truncate", (fd, size)))

    def rename(self, old: bytes, new: bytes) -> None:
        """See Batch."""
        self.operations.append(("rename", (Path(old.decode()), Path(new.decode()))))

    def unlink(self, path: bytes) -> None:
        """See Batch."""
        self.operations.append(("unlink", (Path(path.decode()),)))


class LossyDisk:
    """Implements Disk. `step` and `finish` do what was submitted; `crash` forgets; `fail_next` orders an error."""

    def __init__(self) -> None:
        self._root = LossyDirectory()
        self._open: dict[int, LossyNode] = {}
        self._next_fd = 100
        self._queue: deque[tuple[LossyBatch, Done]] = deque()
        self._background: deque[tuple[LossyBatch, Done]] = deque()
        self._background_next = False
        self._doomed: dict[LossyBatch, OSError] = {}  # they follow one that failed
        self._followers: dict[LossyBatch, LossyBatch] = {}  # by the batch before them
        self._faults: dict[str, int] = {}
        self._lasting_faults: dict[str, int] = {}
        self.fast = False  # small batches may be performed in the thread of the caller
        self.available_bytes: int | None = None  # the largest file that can be reserved now; None: any

    # Disk

    def make_directory(self, path: Path) -> list[Path]:
        """See Disk."""
        at = self._root
        grown = []
        for depth, name in enumerate(path.parts[1:], start=1):
            if name not in at.names:
                at.set(name, LossyDirectory())
                grown.append(Path(*path.parts[:depth]))
            found = at.names[name]
            assert isinstance(found, LossyDirectory)
            at = found
        return grown

    def exists(self, path: Path) -> bool:
        """See Disk."""
        try:
            return path.name in self._directory(path.parent).names
        except FileNotFoundError:
            return False

    def list_directory(self, path: Path) -> list[str]:
        """See Disk."""
        try:
            return sorted(self._directory(path).names)
        except FileNotFoundError:
            return []

    def remove_directory(self, path: Path) -> None:
        """See Disk."""
        if self.exists(path):
            self._directory(path.parent).remove(path.name)

    def sync_parents(self, path: Path) -> None:
        """See Disk."""
        for parent in path.parents:
            self._directory(parent).sync()

    def lock(self, path: Path) -> int:
        """See Disk. There is one process."""
        return self.open_file(path, create=True)

    def lock_directory(self, path: Path) -> int:
        """See Disk. There is one process."""
        return self.open_directory(path)

    def space(self, path: Path) -> DiskSize:
        """See Disk."""
        del path
        free = FREE_BYTES if self.available_bytes is None else self.available_bytes
        return DiskSize(free=free, total=2 * FREE_BYTES)

    def used_bytes(self, path: Path) -> int:
        """See Disk."""
        return _used(self._directory(path.parent).names.get(path.name))

    def open_file(self, path: Path, *, create: bool = False) -> int:
        """See Disk."""
        self._raise_fault("open")
        parent = self._directory(path.parent)
        if path.name not in parent.names:
            if not create:
                raise FileNotFoundError(errors.ENOENT, "no such file", str(path))
            parent.set(path.name, LossyFile())
        return self._descriptor(parent.names[path.name])

    def open_directory(self, path: Path) -> int:
        """See Disk."""
        return self._descriptor(self._directory(path))

    def close_file(self, fd: int) -> None:
        """See Disk."""
        del self._open[fd]

    def size(self, fd: int) -> int:
        """See Disk."""
        return len(self._file(fd).data)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """See Disk."""
        self._raise_fault("read")
        file = self._file(fd)
        if file.unreadable and any(
            offset < (at + 1) * SECTOR_BYTES and at * SECTOR_BYTES < offset + size for at in file.unreadable
        ):
            raise OSError(errors.EIO, "read: a sector cannot be read")
        return bytes(file.data[offset : offset + size])

    def forget_cached(self, fd: int) -> None:
        """See Disk."""
        file = self._file(fd)
        if not file.pending:
            file.data = bytearray(file.durable)

    def batch(self) -> LossyBatch:
        """See Disk."""
        return LossyBatch()

    def perform(self, batch: Batch) -> None:
        """See Disk."""
        assert isinstance(batch, LossyBatch)
        while batch.operations:
            self._operate(*batch.operations.pop(0))

    @property
    def is_fast(self) -> bool:
        """See Disk. As the owner says, who then does not see the operations of these batches one by one."""
        return self.fast

    def perform_here(self, batch: Batch) -> OSError | None:
        """See Disk."""
        try:
            self.perform(batch)
        except OSError as error:
            return error
        return None

    def submit(self, batch: Batch, done: Done, *, background: bool = False, ahead: bool = False) -> None:
        """See Disk. Nothing happens before `step` or `finish`."""
        del ahead
        assert isinstance(batch, LossyBatch)
        (self._background if background else self._queue).append((batch, done))

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        """See Disk."""
        assert isinstance(batch, LossyBatch)
        assert isinstance(before, LossyBatch)
        assert any(waiting is before for waiting, _ in self._queue)
        self._followers[before] = batch
        self._queue.append((batch, done))

    # The owner's side

    def step(self) -> bool:
        """Do the next operation that was submitted; False when there is none. The last one of a batch reports it.

        Background batches and the others take turns.
        """
        self._background_next = bool(self._background) and (not self._background_next or not self._queue)
        queue = self._background if self._background_next else self._queue
        if not queue:
            return False
        batch, done = queue[0]
        error = self._doomed.pop(batch, None)
        if error is None and batch.operations:
            try:
                self._operate(*batch.operations.pop(0))
            except OSError as failure:
                error = failure
        if error is not None or not batch.operations:
            queue.popleft()
            follower = self._followers.pop(batch, None)
            if error is not None and follower is not None:
                self._doomed[follower] = error
            done(error)
        return True

    def finish(self) -> None:
        """Do everything that was submitted, and what is submitted meanwhile."""
        while self.step():
            pass

    def crash(self, random: Random) -> None:
        """Lose power: what was not fsynced is kept or lost as `random` has it, batches are forgotten."""
        self.kill()
        self._root.crash(random)

    def kill(self) -> None:
        """End the process: batches are forgotten, what was done stays readable, and is no more durable than before."""
        self._queue.clear()
        self._background.clear()
        self._doomed.clear()
        self._followers.clear()
        self._open.clear()
        self._faults.clear()

    def fail_next(self, operation: str, errno: int) -> None:
        """Let the next `open`, `read`, `write`, `sync`, `allocate`, `truncate`, `rename` or `unlink` fail."""
        self._faults[operation] = errno

    def fail_always(self, operation: str, errno: int) -> None:
        """Let all of these operations fail, until `recover`."""
        self._lasting_faults[operation] = errno

    def recover(self) -> None:
        """No operation fails any more."""
        self._faults.clear()
        self._lasting_faults.clear()

    def flip_bit(self, path: Path, offset: int) -> None:
        """Damage one bit of a file, on the device and in memory. What waited for a sync reaches the device first.

        Only memory has what a failed sync has lost (seed rot 11025).
        """
        file = self._directory(path.parent).names[path.name]
        assert isinstance(file, LossyFile)
        file.sync()
        if offset < len(file.durable):
            file.durable[offset] ^= 1
        file.data[offset] ^= 1

    def zero(self, path: Path, size: int) -> None:
        """Damage the beginning of a file in the same way: so many bytes are zeros."""
        file = self._directory(path.parent).names[path.name]
        assert isinstance(file, LossyFile)
        file.sync()
        for data in (file.durable, file.data):
            data[: min(size, len(data))] = bytes(min(size, len(data)))

    def cut(self, path: Path, size: int) -> None:
        """Damage a file in the same way: only its first bytes are left."""
        file = self._directory(path.parent).names[path.name]
        assert isinstance(file, LossyFile)
        file.sync()
        del file.durable[size:], file.data[size:]

    def make_unreadable(self, path: Path, offset: int) -> None:
        """Let every read that touches this sector of a file fail, until the sector is written again."""
        file = self._directory(path.parent).names[path.name]
        assert isinstance(file, LossyFile)
        file.unreadable.add(offset // SECTOR_BYTES)

    def replace(self, path: Path, content: bytes) -> None:
        """Put another file in the place of one, as an operator does."""
        file = LossyFile(data=bytearray(content), durable=bytearray(content))
        directory = self._directory(path.parent)
        directory.set(path.name, file)
        directory.sync()

    def create(self, path: Path) -> None:
        """Make an empty file, as a process that was killed has left it."""
        self.replace(path, b"")

    def unlink(self, path: Path) -> None:
        """Remove a file, as an operator does."""
        self._directory(path.parent).remove(path.name)

    def read_whole(self, path: Path) -> bytes:
        """A file as readers see it."""
        file = self._directory(path.parent).names[path.name]
        assert isinstance(file, LossyFile)
        return bytes(file.data)

    def sync_names(self) -> None:
        """Make every name that exists durable, as if the machine had been left alone for long."""
        waiting = [self._root]
        while waiting:
            directory = waiting.pop()
            directory.sync()
            waiting += [node for node in directory.names.values() if isinstance(node, LossyDirectory)]

    @property
    def open_files(self) -> int:
        """How many descriptors are open."""
        return len(self._open)

    def _operate(self, name: str, arguments: tuple[object, ...]) -> None:
        try:
            self._raise_fault(name)
        except OSError:
            node = self._open[arguments[0]] if name == "sync" and isinstance(arguments[0], int) else None
            if isinstance(node, LossyFile):
                node.lose()
            raise
        getattr(self, f"_do_{name}")(*arguments)

    def _do_write(self, fd: int, data: bytes | Callable[[], bytes], offset: int) -> None:
        self._file(fd).change(offset, data() if callable(data) else data)

    def _do_sync(self, fd: int) -> None:
        self._open[fd].sync()

    def _do_allocate(self, fd: int, size: int) -> None:
        file = self._file(fd)
        if size > len(file.data):
            file.change(size, None)

    def _do_reserve(self, fd: int, choices: Sequence[tuple[int, bytes]], on_reserved: Callable[[int], None]) -> None:
        self._raise_fault("allocate")
        for size, head in choices:
            if self.available_bytes is None or size <= self.available_bytes:
                self._do_allocate(fd, size)
                self._do_write(fd, head, 0)
                on_reserved(size)
                return
        raise OSError(errors.ENOSPC, "allocate: no room")

    def _do_truncate(self, fd: int, size: int) -> None:
        self._file(fd).change(size, None)

    def _do_rename(self, old: Path, new: Path) -> None:
        source, target = self._directory(old.parent), self._directory(new.parent)
        if source is target:
            source.rename(old.name, new.name)
        else:
            source.move(old.name, target, new.name)

    def _do_unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):  # gone already
            self._directory(path.parent).remove(path.name)

    def _raise_fault(self, name: str) -> None:
        errno = self._faults.pop(name, None) or self._lasting_faults.get(name)
        if errno is not None:
            raise OSError(errno, f"{name}: ordered to fail")

    def _directory(self, path: Path) -> LossyDirectory:
        at: LossyNode = self._root
        for name in path.parts[1:]:
            if not isinstance(at, LossyDirectory) or name not in at.names:
                raise FileNotFoundError(errors.ENOENT, "no such directory", str(path))
            at = at.names[name]
        assert isinstance(at, LossyDirectory)
        return at

    def _file(self, fd: int) -> LossyFile:
        node = self._open[fd]
        assert isinstance(node, LossyFile)
        return node

    def _descriptor(self, node: LossyNode) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = node
        return self._next_fd


def _used(node: LossyNode | None) -> int:
    if isinstance(node, LossyFile):
        return len(node.data)
    return 0 if node is None else sum(map(_used, node.names.values()))
