"""A disk that keeps a prefix: what was fsynced survives a power cut, what was written after it may or may not.

A `SimLog` is a log in memory whose changes are also an ordered list of operations on a `SimDisk`. A restart replays the
operations that survived. At most one batch is in flight, as in the real writer.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from jetraft.store.mem_log import MemLog
from jetraft.store.port import Checkpoint, Entry, HardState
from tests.simulator.world import MS, US, World

BLOCK_BYTES = 500  # small blocks, so that trimming has something to drop
Operation = Callable[[MemLog], object]


class SimDisk:
    """The operations of one group's log on one node, and how many of them are durable."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.operations: list[Operation] = []
        self.submitted = 0
        self.durable = 0
        self.stall_ns = 0  # an fsync takes so much longer now
        self.broken = False  # the next fsync fails

    def crash(self, *, power: bool) -> None:
        """Lose what a power cut (or a kill: what was not handed to the kernel) takes."""
        keep = self.durable
        if power:
            if self._world.chance(0.5):
                keep = self._world.rng.randint(self.durable, len(self.operations))
        else:
            keep = self._world.rng.randint(self.durable, self.submitted)
        del self.operations[keep:]
        self.submitted = self.durable = keep
        self.broken = False

    def wipe(self) -> None:
        """Everything is gone, as on a new disk."""
        self.operations.clear()
        self.submitted = self.durable = 0

    def fsync_ns(self) -> int:
        """How long the next fsync takes."""
        usual = self._world.chance(0.97)
        low, high = (500 * US, 8 * MS) if usual else (50 * MS, 400 * MS)
        return self._world.between(low, high) + self.stall_ns


class SimLog(MemLog):
    """A log over a SimDisk; opened anew after each crash."""

    def __init__(
        self, world: World, disk: SimDisk, is_alive: Callable[[], bool], on_append: Callable[..., None]
    ) -> None:
        super().__init__(block_bytes=BLOCK_BYTES, durable_on_submit=False)
        self._world = world
        self._disk = disk
        self._is_alive = is_alive
        self._on_append: Callable[..., None] | None = None
        self._in_flight = False
        self._again = False
        for operation in disk.operations:
            operation(self)
        MemLog.submit(self)
        self.complete()
        self._replayed = True
        self._opened_with = (is_alive, on_append)
        self._on_append = on_append

    _replayed = False

    def _keep(self, operation: Operation) -> None:
        if self._replayed:
            self._disk.operations.append(operation)

    def append(self, entries: Sequence[Entry]) -> None:
        if self._on_append is not None:
            for entry in entries:
                self._on_append(self, entry, entries[0])
        super().append(entries)
        self._keep(lambda log: log.append(entries))

    def cut_from(self, index: int) -> None:
        super().cut_from(index)
        self._world.counts["cuts"] += 1
        self._keep(lambda log: log.cut_from(index))

    def set_hard_state(self, hard_state: HardState) -> None:
        super().set_hard_state(hard_state)
        self._keep(lambda log: log.set_hard_state(hard_state))

    def save_checkpoint(self, index: int, term: int, members: bytes, state: bytes) -> None:
        super().save_checkpoint(index, term, members, state)
        self._keep(lambda log: log.save_checkpoint(index, term, members, state))

    def trim(self, first_live_seq: int, index: int) -> int:
        dropped = super().trim(first_live_seq, index)
        if dropped:
            self._world.counts["trims"] += 1
            self._token += 1
            self._keep(lambda log: log.trim(first_live_seq, index))
        return dropped

    def adopt(self, parts: Any, checkpoint: Checkpoint) -> "SimLog":
        """A snapshot replaces the log, on disk by one rename: all at once, or not."""
        plain = super().adopt(parts, checkpoint)

        def become(log: MemLog) -> None:
            assert isinstance(log, SimLog)
            log._become(plain)

        self._disk.operations = [become]
        self._disk.submitted = self._disk.durable = 1
        assert self._opened_with is not None
        return SimLog(self._world, self._disk, *self._opened_with)

    def _become(self, plain: MemLog) -> None:
        for name in ("_blocks", "_frames", "_checkpoints"):
            setattr(self, name, copy.deepcopy(getattr(plain, name)))
        super().set_hard_state(plain.hard_state)

    def submit(self) -> None:
        if self._in_flight:
            self._again = True
            return
        if self.durable_token == self.token():
            return
        self._in_flight = True
        self._disk.submitted = len(self._disk.operations)
        super().submit()
        self._world.after(self._disk.fsync_ns(), self._fsynced)

    def _fsynced(self) -> None:
        if not self._is_alive():
            return
        if self._disk.broken:
            self.failed = OSError(5, "simulated fsync error")
            if self.on_durable is not None:
                self.on_durable()
            return
        self._in_flight = False
        self._disk.durable = self._disk.submitted
        again, self._again = self._again, False
        self.complete()
        if again:
            self.submit()
