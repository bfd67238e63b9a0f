"""The checkpoints that a log keeps: the newest, the one before it, and the one that no file has yet.

A start begins with the newest that is sound, so nothing that the older one needs may go before there is another. What a
log begins with has members and no state: it has no file, the ledger keeps it, and it counts like any other.
"""

from collections.abc import Callable, Sequence
from functools import partial

from jetraft.store import checkpoint as checkpoint_file
from jetraft.store.backlog import Backlog, LogPlace
from jetraft.store.checkpoint import CHECKPOINTS_KEPT
from jetraft.store.copies import FAILURES, verdict
from jetraft.store.format import checkpoint_name
from jetraft.store.port import Checkpoint
from jetraft.store.recovery import read_file


class KeptCheckpoints:
    """Two at most, apart from one that waits to be written."""

    __slots__ = ("_founding", "_indexes", "_place", "_unwritten")

    def __init__(self, place: LogPlace, indexes: Sequence[int], founding: bytes | None) -> None:
        self._place = place
        self._founding = None if founding is None else Checkpoint(index=0, term=0, members=founding, state=b"")
        self._indexes = [*([] if founding is None else [0]), *indexes]  # kept or on their way to disk, ascending
        self._unwritten: Checkpoint | None = None

    @property
    def oldest_index(self) -> int:
        """Of those kept or on their way; 0 when there is none."""
        return self._indexes[0] if self._indexes else 0

    @property
    def newest_index(self) -> int:
        """The same of the newest."""
        return self._indexes[-1] if self._indexes else 0

    @property
    def floor(self) -> int:
        """The index that both checkpoints kept are at or above, durably; 0 while there are not two."""
        settled = self._unwritten is None and len(self._indexes) == CHECKPOINTS_KEPT
        return self._indexes[0] if settled else 0

    def add(self, checkpoint: Checkpoint, backlog: Backlog) -> None:
        """Have it written with the backlog, in place of one that still waits there; the oldest goes."""
        waiting, indexes = backlog.checkpoint, self._indexes
        if checkpoint.index == 0 and not checkpoint.state and not indexes:
            indexes.append(0)
            self._founding = backlog.founding = self._unwritten = checkpoint
            return
        if waiting is not None and indexes and indexes[-1] == waiting.index:
            indexes.pop()
        assert not indexes or checkpoint.index >= indexes[-1]
        if checkpoint.index == 0:
            self._founding = backlog.founding = None  # from now on there is a file
        if not indexes or indexes[-1] != checkpoint.index:
            indexes.append(checkpoint.index)
        while len(indexes) > CHECKPOINTS_KEPT:
            oldest = indexes.pop(0)
            if self._founding is None:
                backlog.unlink.append(self._place.log / checkpoint_name(oldest))
            self._founding = None
        backlog.checkpoint = self._unwritten = checkpoint

    def forget(self) -> None:
        """None of those kept can be used: the next one is the first."""
        assert self._unwritten is None
        self._indexes.clear()

    def written(self, checkpoint: Checkpoint) -> None:
        """It is on disk."""
        if checkpoint is self._unwritten:
            self._unwritten = None

    def newest(self) -> Checkpoint | None:
        """The newest that is sound, written or not. Raises as `newest_durable` does."""
        return self._unwritten or self.newest_durable()

    def newest_durable(self) -> Checkpoint | None:
        """The same among those on disk: one that is damaged, not ours, or not readable falls to the one before it.

        When there are some and none can be used: StoreCorrupt, or what else store/copies.py makes of their failures.
        """
        return self.reader()()

    def reader(self) -> Callable[[], Checkpoint | None]:
        """What reads the newest durable one of now; it may be called in any thread, and raises as above.

        Two newer ones have to be saved before the file of the newest of now goes.
        """
        unwritten = None if self._unwritten is None else self._unwritten.index
        indexes = tuple(index for index in reversed(self._indexes) if index != unwritten)
        return partial(_newest_of, self._place, indexes, self._founding)


def _newest_of(place: LogPlace, indexes: Sequence[int], founding: Checkpoint | None) -> Checkpoint | None:
    failures: list[Exception] = []
    for index in indexes:
        try:
            return founding if index == 0 and founding is not None else _read(place, index)
        except FAILURES as error:
            failures.append(error)
    if failures:
        raise verdict(failures)
    return None


def _read(place: LogPlace, index: int) -> Checkpoint:
    path = place.log / checkpoint_name(index)
    data = read_file(place.disk, path)
    return checkpoint_file.unpack(data, place.identity, what=str(path), cipher=place.cipher, index=index)
