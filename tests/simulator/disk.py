"""The disk of one simulated node: the store's own lossy disk, whose writer takes time.

The real log (store/log.py) writes its real files on it, operation by operation. A crash can come between any two of a
batch; a power cut then keeps, of what was not fsynced, any subset, torn at any sector (store/lossy_disk.py has the
model). A kill keeps what was written.
"""

import errno
from collections import deque
from itertools import pairwise
from pathlib import Path

from jetraft.store.format import (
    BLOCK_HEAD_BYTES,
    BLOCK_SUFFIX,
    CHECKPOINT_SUFFIX,
    GENERATION_PREFIX,
    TMP_SUFFIX,
)
from jetraft.store.io import Batch, Done
from jetraft.store.ledger import NAMES
from jetraft.store.lossy_disk import LossyBatch, LossyDisk
from jetraft.store.model.ids import GroupId
from tests.simulator.world import MS, US, World


class SimDisk(LossyDisk):
    """Implements Disk."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.stall_ns = 0  # an fsync takes so much longer now
        self.broken = False  # the next fsync fails

    def submit(self, batch: Batch, done: Done, *, may_block: bool = False, aside: bool = False) -> None:
        del may_block
        assert isinstance(batch, LossyBatch)
        queue = self._asides if aside else self._queue
        entry = (batch, done)
        queue.append(entry)
        self._world.after(self._fsync_ns(), lambda: self._write(queue, entry))

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        super().follow(batch, done, before)  # `_write` goes on with it

    def _fsync_ns(self) -> int:
        """How long the next batch takes."""
        usual = self._world.chance(0.97)
        low, high = (500 * US, 8 * MS) if usual else (50 * MS, 400 * MS)
        return self._world.between(low, high) + self.stall_ns

    def _write(self, queue: deque[tuple[LossyBatch, Done]], entry: tuple[LossyBatch, Done]) -> None:
        """A batch is done, unless its process has ended; then comes the one that follows it."""
        if entry not in queue:
            return
        batch, done = entry
        if self.broken:
            self.fail_next("sync", errno.EIO)
        error = self._doomed.pop(batch, None)
        while error is None and batch.operations:
            try:
                self._operate(*batch.operations.pop(0))
            except OSError as failure:
                error = failure
        queue.remove(entry)
        follower = self._followers.pop(batch, None)
        if follower is not None:
            next_entry = next(waiting for waiting in queue if waiting[0] is follower)
            self._world.after(self._fsync_ns(), lambda: self._write(queue, next_entry))
            if error is not None:
                self._doomed[follower] = error
        done(error)

    def stop(self, *, power: bool) -> None:
        """The process ends: of what is on its way a part is done; `power` also takes what was not fsynced."""
        rng = self._world.rng
        for queue in (self._asides, self._queue):
            for batch, _ in list(queue):
                done = rng.randint(0, len(batch.operations))
                if not self._do_some(batch.operations[:done]) or done < len(batch.operations):
                    break  # those behind it have not begun
        if power:
            self.crash(rng)
        else:
            self.kill()
        self.broken = False

    def _do_some(self, operations: list[tuple[str, tuple[object, ...]]]) -> bool:
        """Returns whether all went well."""
        try:
            for operation in operations:
                self._operate(*operation)
        except OSError:
            return False
        return True

    def wipe(self) -> None:
        """Everything is gone, as on a new disk."""
        super().__init__()

    # Damage, while nobody has the files open.

    def flip_bits(self, group: Path) -> str | None:
        """Damage one file of a group's log at rest; returns which, None when there is none to damage.

        The newest block is spared: of its end nothing proves that it was durable, so damage there looks like a torn
        tail, and is one where a member's word counts (store/recovery.py).
        """
        log = self._log_in(group)
        if log is None:
            return None
        checkpoints = [name for name in self.list_directory(log) if name.endswith(CHECKPOINT_SUFFIX)][:-1]
        files = [*self._blocks_at_rest(log), *(log / name for name in checkpoints)]
        files += [group.parent.parent / self._world.rng.choice(NAMES)]
        if not files:
            return None
        path = self._world.rng.choice(files)
        return str(path) if self._flip(path) else None

    def rot(self, group: Path, last_index: int) -> str | None:
        """Damage frames of a block that no longer grows, whoever has it open; returns which, None without one.

        It holds no entry above `last_index`.
        """
        log = self._log_in(group)
        files = [] if log is None else self._blocks_at_rest(log, last_index)
        if not files:
            return None
        path = self._world.rng.choice(files)
        return str(path) if self._flip(path, BLOCK_HEAD_BYTES) else None

    def _log_in(self, group: Path) -> Path | None:
        generations = [name for name in self.list_directory(group) if name.startswith(GENERATION_PREFIX)]
        return group / generations[-1] if generations and not generations[-1].endswith(TMP_SUFFIX) else None

    def _blocks_at_rest(self, log: Path, last_index: int = 1 << 62) -> list[Path]:
        names = sorted((name for name in self.list_directory(log) if name.endswith(BLOCK_SUFFIX)), key=_serial)
        return [log / name for name, after in pairwise(names) if _first_index(after) <= last_index + 1]

    def lose_hard_state(self, root: Path, group_id: GroupId) -> bool:
        """Damage a record of the ledger in both copies; returns whether both had it."""
        copies = [root / name for name in NAMES]
        places = [self.read_whole(path).find(group_id.encode()) for path in copies]
        if min(places) < 0:
            return False
        for path, place in zip(copies, places, strict=True):
            self.flip_bit(path, place)
        return True

    def _flip(self, path: Path, start: int = 0) -> bool:
        size = len(self.read_whole(path).rstrip(b"\0"))
        for _ in range(self._world.rng.choice((1, 2)) if size > start else 0):
            self.flip_bit(path, self._world.rng.randrange(start, size))
        return size > start


def _first_index(name: str) -> int:
    return int(name.partition("-")[0])


def _serial(name: str) -> int:
    return int(name.removesuffix(BLOCK_SUFFIX).rpartition("-")[2])
