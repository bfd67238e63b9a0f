"""The disk of one machine, as the process of now has it; what a process that has ended does to it is void."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from jetraft.store.disk.io import Batch, DiskSize, Done
from tests.doubles.lossy_disk import LossyBatch
from tests.doubles.lossy_tree import LossyDirectory, LossyFile
from tests.simulator.disk import SimDisk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.lossy_tree import LossyNode
    from tests.simulator.nodes.virtual import VirtualWorld


Guard = Callable[[Callable[[], None]], None]  # calls in a turn of the process, if it still runs


LARGE = DiskSize(free=1 << 40, total=2 << 40)
TIGHT = DiskSize(free=20 << 20, total=64 << 20)  # messages are taken; a block gets no more than 64 KiB


class _Nowhere(dict[int, "LossyNode"]):
    """Descriptors of a process that has ended."""

    def __missing__(self, fd: int) -> "LossyNode":
        return LossyFile()


class LifeDisk(SimDisk):
    """One process's disk over the machine's tree. Implements Disk."""

    def __init__(self, world: "VirtualWorld", root: LossyDirectory, guard: Guard, size: DiskSize = LARGE) -> None:
        super().__init__(world)
        self._root = root
        self._guard = guard
        self._size = size
        self._is_void = False
        self._cut: int | None = None
        self.on_cut: Callable[[], None] = lambda: None
        self.free_bytes: int | None = None

    def submit(self, batch: Batch, done: Done, *, background: bool = False, ahead: bool = False) -> None:
        if not self._is_void:
            super().submit(batch, self._in_turn(done), background=background, ahead=ahead)

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        if not self._is_void:
            super().follow(batch, self._in_turn(done), before)

    def _in_turn(self, done: Done) -> Done:
        def finished(error: OSError | None) -> None:
            self._world.mark("disk")  # type: ignore[attr-defined]
            self._guard(lambda: done(error))

        return finished

    def close_file(self, fd: int) -> None:
        self._open.pop(fd, None)

    def set_room(self, free_bytes: int | None) -> None:
        """From now on only so much is free, and no file can be as large as that."""
        self.free_bytes = free_bytes
        self.available_bytes = None if free_bytes is None else 0

    def space(self, path: "Path") -> DiskSize:
        del path
        return DiskSize(free=self._size.free if self.free_bytes is None else self.free_bytes, total=self._size.total)

    def die(self, random: Random, *, power: bool) -> None:
        """The process ends: what is on its way is done in part, and with `power` what was not fsynced is lost."""
        if self._is_void:
            return
        for queue in (self._background, self._queue):
            for batch, _ in list(queue):
                done = random.randint(0, len(batch.operations))
                if not self._do_some(batch.operations[:done]) or done < len(batch.operations):
                    break
        if power:
            self._root.crash(random)
        self._is_void = True
        self._root = LossyDirectory()
        for queue in (self._background, self._queue):
            queue.clear()
        self._open = _Nowhere()
        self._faults.clear()

    def cut_after(self, count: int | None) -> None:
        """Call `on_cut` after so many operations more of those that somebody waits for: of openings, installations."""
        self._cut = count

    def perform(self, batch: Batch) -> None:
        assert isinstance(batch, LossyBatch)
        while batch.operations and not self._is_void:
            self._operate(*batch.operations.pop(0))
            if self._cut is not None:
                self._cut -= 1
                if self._cut <= 0:
                    self._cut = None
                    self.on_cut()
