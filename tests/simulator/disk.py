"""The disk of one simulated node: the store's own lossy disk, whose writer takes time.

The real log (store/log/file_log.py) writes its real files on it, operation by operation. A crash can come between any
two of a batch; a power cut then keeps, of what was not fsynced, any subset, torn at any sector
(tests/doubles/lossy_disk.py has the model). A kill keeps what was written.
"""

import errno
from collections import deque
from itertools import pairwise
from pathlib import Path

from jetraft.store.blocks.proofs import indexes_of
from jetraft.store.disk.files import TMP_SUFFIX
from jetraft.store.disk.io import Batch, Done
from jetraft.store.frames._frame import find_mark, scan
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    BLOCK_SUFFIX,
    CHECKPOINT_SUFFIX,
    FRAME_HEADER_BYTES,
    GENERATION_PREFIX,
    Identity,
    unpack_block_head,
)
from jetraft.store.ledger.ledger import NAMES
from jetraft.store.model.ids import GroupId
from jetraft.store.port import StoreCorrupt, StoreRefused
from tests.doubles.lossy_disk import LossyBatch, LossyDisk
from tests.simulator.world import MS, US, World

PAGE_BYTES = 4096
ENDS = 0.6  # of all damaged entries are near the end of a log, where elections look


class SimDisk(LossyDisk):
    """Implements Disk."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.stall_ns = 0  # an fsync takes so much longer now
        self.broken = False  # the next fsync fails

    def submit(self, batch: Batch, done: Done, *, background: bool = False, ahead: bool = False) -> None:
        del ahead
        assert isinstance(batch, LossyBatch)
        queue = self._background if background else self._queue
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
        for queue in (self._background, self._queue):
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
        tail, and is one where a member's word counts (store/log/recovery.py).
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

    def damage_entries(self, group: Path, last_index: int, identity: Identity) -> list[int]:
        """Damage one to three entries up to `last_index` of any blocks, also of the newest one; returns their indexes.

        Only such as something proves that they were there: a mark behind them (store/log/recovery.py).
        """
        log = self._log_in(group)
        places = [] if log is None else proven_places(self, log, identity)
        places = [place for place in places if place[0] <= last_index]
        rng = self._world.rng
        chosen = rng.sample(places[-8:] if rng.random() < ENDS else places, min(len(places), rng.choice((1, 2, 3))))
        for _, path, at in chosen:
            self.flip_bit(path, at + rng.randrange(FRAME_HEADER_BYTES))
        return sorted(index for index, _, _ in chosen)

    def zero_newest_block(self, group: Path) -> str | None:
        """Zero the first page of the newest block, or all that it holds; returns its name, None without one.

        What the ledger has noted of it is not looked at: the last entries may be such as only other members know of.
        """
        log = self._log_in(group)
        names = [] if log is None else [name for name in self.list_directory(log) if name.endswith(BLOCK_SUFFIX)]
        if log is None or not names:
            return None
        name = max(names, key=_serial)
        size = len(self.read_whole(log / name))
        self.zero(log / name, size if self._world.chance(0.5) else min(size, PAGE_BYTES))
        return name

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


def proven_places(disk: LossyDisk, log: Path, identity: Identity) -> list[tuple[int, Path, int]]:
    """(index, block, offset) of the entries in a log's files that have a mark behind them."""
    names = [name for name in disk.list_directory(log) if name.endswith(BLOCK_SUFFIX)]
    places: list[tuple[int, Path, int]] = []
    for name in sorted(names, key=_serial):
        data = disk.read_whole(log / name)
        try:
            head = unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what=name)
        except (StoreCorrupt, StoreRefused):
            continue
        found = scan(
            data,
            offset=BLOCK_HEAD_BYTES,
            incarnation=identity.incarnation,
            next_index=head.first_index,
            term=head.boundary_term,
        )
        for index, at in zip(indexes_of(found), found.offsets, strict=True):
            if find_mark(data, offset=at, incarnation=identity.incarnation, tag=head.tag) >= 0:
                places.append((index, log / name, at))
    return places
