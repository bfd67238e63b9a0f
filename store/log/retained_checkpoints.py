"""The checkpoints of a log: the newest, the one before it, and one that is not written yet.

A start uses the newest sound checkpoint. So nothing that the older one needs is removed before there is another. The
founding checkpoint of a log has members and no state. It has no file, because the ledger keeps it; otherwise it is a
checkpoint like any other.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from jetraft.store.disk.copies import FAILURES, verdict
from jetraft.store.disk.files import read_file
from jetraft.store.frames import checkpoint as checkpoint_file
from jetraft.store.frames.checkpoint import CHECKPOINTS_KEPT
from jetraft.store.frames.format import checkpoint_name
from jetraft.store.log._growth import WriteQueue
from jetraft.store.log.write_queue import LogPlace
from jetraft.store.port import AnyCheckpoint, Checkpoint

log_ = logging.getLogger(__name__)


class RetainedCheckpoints:
    """At most two, and one that waits to be written."""

    __slots__ = ("_founding", "_indexes", "_place", "_unwritten")

    def __init__(self, place: LogPlace, indexes: Sequence[int], founding: bytes | None) -> None:
        self._place = place
        self._founding = None if founding is None else Checkpoint(index=0, term=0, members=founding, state=b"")
        self._indexes = [*([] if founding is None else [0]), *indexes]  # kept or being written, ascending
        self._unwritten: AnyCheckpoint | None = None

    @property
    def oldest_index(self) -> int:
        """The index of the oldest one, kept or being written; 0 when there is none."""
        return self._indexes[0] if self._indexes else 0

    @property
    def newest_index(self) -> int:
        """The index of the newest one, likewise."""
        return self._indexes[-1] if self._indexes else 0

    @property
    def floor(self) -> int:
        """The index that both checkpoints kept are at or above, durably; 0 while there are not two."""
        is_complete = self._unwritten is None and len(self._indexes) == CHECKPOINTS_KEPT
        return self._indexes[0] if is_complete else 0

    def add(self, checkpoint: AnyCheckpoint, write_queue: WriteQueue) -> None:
        """Queue a checkpoint, in place of one that still waits in the queue; the oldest one is removed."""
        waiting, indexes = write_queue.checkpoint, self._indexes
        is_founding = isinstance(checkpoint, Checkpoint) and checkpoint.index == 0 and not checkpoint.state
        if is_founding and not indexes:
            indexes.append(0)
            self._founding = write_queue.founding = self._unwritten = checkpoint.whole()
            return
        if waiting is not None and indexes and indexes[-1] == waiting.index:
            indexes.pop()
        assert not indexes or checkpoint.index >= indexes[-1]
        if checkpoint.index == 0:
            self._founding = write_queue.founding = None  # from now on there is a file
        if not indexes or indexes[-1] != checkpoint.index:
            indexes.append(checkpoint.index)
        while len(indexes) > CHECKPOINTS_KEPT:
            oldest = indexes.pop(0)
            if self._founding is None:
                write_queue.unlink.append(self._place.log / checkpoint_name(oldest))
            self._founding = None
        write_queue.checkpoint = self._unwritten = checkpoint

    def forget(self) -> None:
        """Forget all of them, because none can be read: the next one is the first."""
        assert self._unwritten is None
        self._indexes.clear()

    @property
    def durable(self) -> tuple[int, ...]:
        """The indexes of those that have a file, ascending."""
        unwritten = None if self._unwritten is None else self._unwritten.index
        without_file = {unwritten} if self._founding is None else {unwritten, 0}
        return tuple(index for index in self._indexes if index not in without_file)

    def written(self, checkpoint: AnyCheckpoint) -> None:
        """Note that a checkpoint is on disk."""
        if checkpoint is self._unwritten:
            self._unwritten = None

    def newest(self) -> Checkpoint | None:
        """The newest that is sound, written or not. Raises as `newest_durable` does."""
        return self._unwritten.whole() if self._unwritten is not None else self.newest_durable()

    def newest_durable(self) -> Checkpoint | None:
        """The newest sound one on disk: one that is damaged, foreign or unreadable is skipped.

        Raises StoreCorrupt, or another error that store/disk/copies.py chooses, when there are some and none is usable.
        """
        return self.reader()()

    def reader(self) -> Callable[[], Checkpoint | None]:
        """A function that reads what is the newest durable one now, for any thread; it raises as above.

        The file stays until two newer checkpoints have been saved.
        """
        unwritten = None if self._unwritten is None else self._unwritten.index
        indexes = tuple(index for index in reversed(self._indexes) if index != unwritten)
        return partial(_newest_of, self._place, indexes, self._founding)


def _newest_of(place: LogPlace, indexes: Sequence[int], founding: Checkpoint | None) -> Checkpoint | None:
    failures: list[Exception] = []
    for index in indexes:
        try:
            found = founding if index == 0 and founding is not None else _read(place, index)
        except FAILURES as error:
            failures.append(error)
            continue
        if failures:
            log_.error("%s; the checkpoint before it, at entry %d, is used", "; ".join(map(str, failures)), index)
        return found
    if failures:
        raise verdict(failures)
    return None


def _read(place: LogPlace, index: int) -> Checkpoint:
    path = place.log / checkpoint_name(index)
    data = read_file(place.disk, path)
    return checkpoint_file.unpack(data, place.identity, what=str(path), cipher=place.cipher, index=index)
