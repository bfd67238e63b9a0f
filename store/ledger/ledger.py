"""The ledger of a node: a journal, kept in two copies, of what must exist on disk for each of its groups.

`ledger.0` and `ledger.1` in the node's directory have the same records (store/ledger/ledger_records.py has their
meaning, store/ledger/file.py their bytes). Records that are appended while a batch is being written form the next
batch, so votes, new blocks and trims of any number of groups share two fsyncs. A batch is durable in the first copy
before it is written to the second, so a torn write can damage only one of them.

The journal is rewritten as a whole when it has grown to a multiple of its state, when a write has failed, or when an
opening found damage: new files are written under temporary names, fsynced, and renamed one after the other. A failed
fsync is final for the files concerned; the next generation has new files.

When both copies are damaged, the node does not know what it has promised. Its groups are then durably marked
`memory_lost` and come back as learners, or with what their files prove if this member is the only one. The damaged
files are kept beside the ledger for inspection.
"""

import errno
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakValueDictionary

import attrs

from jetraft.store.disk.files import TMP_SUFFIX
from jetraft.store.disk.io import Batch, Disk, outcome_of
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.file import Head, pack_batch, pack_head
from jetraft.store.ledger.ledger_records import GroupKey, GroupState, NodeState
from jetraft.store.ledger.reading import read_both
from jetraft.store.model.files.store_age import LedgerPlace

NAMES: Final = ("ledger.0", "ledger.1")
ALLOCATED_BYTES: Final = 256 << 10  # at a time: 3,000 votes; growing the file costs its fsync a journal commit
REWRITE_FACTOR: Final = 4  # times the size of the state: each record is then written 1.3 times on average
REWRITE_BYTES_MIN: Final = 1 << 20

log_ = logging.getLogger(__name__)

Done = Callable[[OSError | None], None]
_Waiting = Sequence[tuple[Sequence[bytes], Done]]  # records that are written together, and the callback of their writer


@attrs.frozen(kw_only=True, slots=True)
class LedgerStatistics:
    """A snapshot of the figures."""

    groups: int
    records: int  # in the current generation
    bytes_used: int  # of each copy
    generation: int
    batches: int
    rewrites: int
    failures: int


class OpenLog(Protocol):
    """The part of a group's log that writes. No two logs of a group write at the same time, even when one is closed."""

    on_durable: Callable[[], None] | None

    @property
    def is_busy(self) -> bool:
        """Whether anything is still being written."""
        ...


@attrs.define(eq=False, kw_only=True)
class _Files:
    """The two copies of a generation, open."""

    head: Head
    fds: tuple[int, int]
    end: int  # where the next record goes
    allocated: int
    next_number: int

    @property
    def place(self) -> LedgerPlace:
        """The last record in them."""
        return LedgerPlace(self.head.generation, self.next_number - 1)


class Ledger:
    """See the module. Made by `open`; belongs to the one trio thread, except for `state`, which any thread may call."""

    is_outdated = False  # an opening has found a log that knows more: nothing follows from what the ledger lacks

    def __init__(self, disk: Disk, root: Path, state: NodeState, head: Head | None, files: _Files | None) -> None:
        self.disk = disk
        self.root = root
        self._state = state
        self._files = files  # None: to be rewritten before anything else
        self._identity = _drawn_identity() if head is None else head.ledger
        self._generation = 0 if head is None else head.generation
        self._place = LedgerPlace(0, 0) if files is None else files.place
        self._rewrite_at = REWRITE_BYTES_MIN
        self.logs: WeakValueDictionary[GroupKey, OpenLog] = WeakValueDictionary()  # the one that was opened last
        self._waiting: list[tuple[Sequence[bytes], Done]] = []
        self._noted: list[bytes] = []
        self._assumed = self._assumed_durable = 0  # how many calls of `assume` there were, and are durable
        self._is_busy = self._is_closed = self._is_blocking = False
        self._is_in_doubt = False
        self._batches = self._rewrites = self._failures = 0

    @classmethod
    def open(
        cls,
        disk: Disk,
        root: Path,
        known: Sequence[GroupKey] = (),
        begins_with: Sequence[bytes] = (),
        is_own: Callable[[NodeState], bool] = lambda _: True,
    ) -> "Ledger":
        """Read both copies, and repair them. Blocking.

        `known` are groups that have directories, `begins_with` what a new ledger has from the start. `is_own` decides
        when the two files are of different ledgers: one was put there by mistake.

        When records are missing, every group that is known here or there is marked as without memory, and it is
        another ledger from then on. Raises StoreRefused for a newer format, OSError.
        """
        found = read_both(disk, root, NAMES, known, is_own)
        state, merged = found.state, found.merged
        head = None if merged is None else merged.head
        if merged is not None and found.may_continue:
            fds = disk.open_file(root / NAMES[0]), disk.open_file(root / NAMES[1])
            allocated = min(disk.size(fd) for fd in fds)
            number = len(merged.records) + 1
            files = _Files(head=merged.head, fds=fds, end=merged.end, allocated=allocated, next_number=number)
            ledger = cls(disk, root, state, head, files)
            ledger._rewrite_at = max(REWRITE_BYTES_MIN, merged.end)  # to be known after the next rewriting
            return ledger
        ledger = cls(disk, root, state, head, None)
        if merged is not None and not merged.is_whole:
            # What others remember of it may be among what is missing: they would take it for an older copy.
            ledger._identity = _drawn_identity()
        ledger.commit_now(*(begins_with if merged is None else ()))
        return ledger

    @property
    def identity(self) -> int:
        """The ledger's own number. A store that begins empty has another one."""
        return self._identity

    @property
    def place(self) -> LedgerPlace:
        """The last durable record. It never goes back, except with an older copy of the store."""
        return self._place

    @property
    def values(self) -> dict[str, bytes]:
        """The node's own small values, by name."""
        return self._state.values

    def erased_in(self, key: GroupKey) -> frozenset[int]:
        """The serials of a group's blocks that still have the subject of something that was erased."""
        name = ledger_records.erased_name(key)
        older = ledger_records.erased_serials(self._state.values.get(name))
        return older.union(self._state.erased.get(name, ()))

    def state(self, key: GroupKey) -> GroupState | None:
        """The durable state of a group; None when nothing is recorded."""
        return self._state.groups.get(key)

    def groups(self) -> list[GroupKey]:
        """The groups with a record."""
        return list(self._state.groups)

    def append(self, records: Sequence[bytes], done: Done) -> None:
        """Queue records, in order; `done` is called once, later, when they are durable or have failed."""
        if self._is_closed:
            return
        self._waiting.append((records, done))
        if not self._is_busy:
            self._start()

    @property
    def is_in_doubt(self) -> bool:
        """Whether a failed batch may reappear after a crash, although its writers were told that it failed.

        Not while the files of a rewriting get their names: that is a batch on its way, as any other.
        """
        return self._is_in_doubt

    async def complete_pending(self) -> None:
        """Wait until the files have no record that `state` lacks. Raises OSError.

        Before that, nothing may rely on the absence of a failed batch: a block in it would void what the log writes.
        """
        if self.is_in_doubt or self._is_busy:
            await self.commit()

    def note(self, record: bytes) -> None:
        """Write a record with the next batch, whenever there is one. Its success is not reported."""
        self._noted.append(record)

    def assume(self, records: Sequence[bytes]) -> int:
        """Let records count from now on that follow from something else that is durable, and note them.

        A crash may take them until `has_written` says otherwise of the number that is returned; every later record is
        durable after them or with them.
        """
        for record in records:
            self._state.apply(record)
        self._noted += records
        self._assumed += 1
        return self._assumed

    def has_written(self, number: int) -> bool:
        """Whether what was assumed under this number is durable."""
        return number <= self._assumed_durable

    def write_noted(self) -> None:
        """Begin to write what was noted, if no batch is being written: the next one takes it otherwise."""
        if self._noted and not self._is_busy and not self._is_closed:
            self._start()

    async def commit(self, *records: bytes) -> None:
        """Append records; they are durable when this returns. Raises OSError."""
        if self._is_closed:
            raise OSError(errno.EBADF, "the ledger is closed", str(self.root))
        await outcome_of(partial(self.append, records))

    def commit_now(self, *records: bytes) -> None:
        """The same, blocking, while nothing is being written: at start, and offline. Raises OSError."""
        assert not self._is_busy
        assert not self._waiting
        errors: list[OSError | None] = []
        self._is_blocking = True
        try:
            self.append(records, errors.append)
        finally:
            self._is_blocking = False
        if errors[0] is not None:
            raise errors[0]

    def renew(self) -> None:
        """Make it another ledger with the same content, durably, for an operator who vouches for it. Blocking.

        Other nodes take its store for one that they have not met before. Raises OSError.
        """
        self._close_files()
        self._identity = _drawn_identity()
        self.commit_now()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for it or is being written."""
        return not self._is_busy and not self._waiting

    def statistics(self) -> LedgerStatistics:
        """Figures for monitoring and tests."""
        files = self._files
        return LedgerStatistics(
            groups=len(self._state.groups),
            records=0 if files is None else files.next_number - 1,
            bytes_used=0 if files is None else files.end,
            generation=self._generation,
            batches=self._batches,
            rewrites=self._rewrites,
            failures=self._failures,
        )

    def close(self) -> None:
        """Close the files. A batch that is being written still finishes, without a callback."""
        self._is_closed = True
        self._waiting.clear()
        if not self._is_busy:
            self._close_files()

    def _close_files(self) -> None:
        if self._files is not None:
            for fd in self._files.fds:
                self.disk.close_file(fd)
            self._files = None

    # Batches. One at a time: what is appended meanwhile is the next.

    def _start(self) -> None:
        """Start a batch of the records that wait."""
        waiting, self._waiting = self._waiting, []
        if self._noted:
            waiting.insert(0, self._with_noted())
        self._is_busy = True
        if self._files is None or self._files.end > self._rewrite_at:
            self._rewrite(waiting)
        else:
            self._append(self._files, waiting)

    def _with_noted(self) -> tuple[Sequence[bytes], Done]:
        """The noted records, as part of a batch; they are noted again if it fails."""
        noted, self._noted = self._noted, []
        assumed = self._assumed

        def done(error: OSError | None) -> None:
            if error is None:
                self._assumed_durable = assumed
            else:
                self._noted[:0] = noted

        return noted, done

    def _hand_over(self, batch: Batch, done: Done) -> None:
        """Hand a batch to the writer, or perform it here in `commit_now`."""
        if not self._is_blocking:
            self.disk.submit(batch, done, ahead=True)  # the votes of many groups, say, that no log may hold up
            return
        try:
            self.disk.perform(batch)
        except OSError as error:
            done(error)
        else:
            done(None)

    def _append(self, files: _Files, waiting: _Waiting) -> None:
        bodies = [body for records, _ in waiting for body in records]
        data = pack_batch(files.head, files.next_number, bodies)
        end = files.end + len(data)
        batch = self.disk.batch()
        grows = end > files.allocated
        allocated = -(-end // ALLOCATED_BYTES) * ALLOCATED_BYTES if grows else files.allocated
        for fd in files.fds:
            if grows:
                batch.allocate(fd, allocated)
            batch.write(fd, [data], files.end)
            batch.sync_data(fd)

        def done(error: OSError | None) -> None:
            if error is None:
                files.end, files.allocated = end, allocated
                files.next_number += len(bodies)
                self._place = files.place
            else:
                self._close_files()  # what follows `end` in them is unknown
                self._is_in_doubt = True
            self._end(waiting, error)

        self._hand_over(batch, done)

    def _rewrite(self, waiting: _Waiting) -> None:
        """Write both copies under temporary names, then rename them. Until then the current ones remain usable."""
        bodies = [*self._state.records(), *(body for records, _ in waiting for body in records)]
        head = Head(ledger=self._identity, generation=self._generation + 1, begins_with=len(bodies))
        data = pack_head(head) + pack_batch(head, 1, bodies)
        allocated = -(-len(data) // ALLOCATED_BYTES) * ALLOCATED_BYTES
        fds: list[int] = []
        batch = self.disk.batch()
        try:
            for name in NAMES:
                fds.append(self.disk.open_file(self.root / (name + TMP_SUFFIX), create=True))
                batch.truncate(fds[-1], 0)
                batch.allocate(fds[-1], allocated)
                batch.write(fds[-1], [data], 0)
                batch.sync(fds[-1])
            directory = self.disk.open_directory(self.root)
        except OSError as error:
            self._rewriting_failed(waiting, fds, error)
            return
        files = _Files(
            head=head,
            fds=(fds[0], fds[1]),
            end=len(data),
            allocated=allocated,
            next_number=len(bodies) + 1,
        )

        def written(error: OSError | None) -> None:
            if error is not None:
                self._rewriting_failed(waiting, [*fds, directory], error)
                return
            self._close_files()  # from here on they may not be what their names lead to
            renames = self.disk.batch()
            for name in NAMES:
                renames.rename(bytes(self.root / (name + TMP_SUFFIX)), bytes(self.root / name))
            renames.sync(directory)
            self._generation = head.generation
            self._hand_over(renames, renamed)

        def renamed(error: OSError | None) -> None:
            self.disk.close_file(directory)
            self._is_in_doubt = error is not None
            if error is None:
                self._files = files
                self._place = files.place
                self._rewrites += 1
                self._rewrite_at = max(REWRITE_BYTES_MIN, REWRITE_FACTOR * files.end)
            else:
                for fd in fds:
                    self.disk.close_file(fd)
            self._end(waiting, error)

        self._hand_over(batch, written)

    def _rewriting_failed(self, waiting: _Waiting, fds: Sequence[int], error: OSError) -> None:
        """Keep the current files, if there are any: there was no room, for instance."""
        for fd in fds:
            self.disk.close_file(fd)
        if self._files is None:
            self._end(waiting, error)
        else:
            self._failures += 1
            self._rewrite_at = 2 * self._files.end
            self._append(self._files, waiting)

    def _end(self, waiting: _Waiting, error: OSError | None) -> None:
        """A batch is complete: its records count from now on if they are durable."""
        self._is_busy = False
        self._batches += 1
        self._failures += error is not None
        if error is None:
            for records, _ in waiting:
                for record in records:
                    self._state.apply(record)
        if self._is_closed:
            self._close_files()
            return
        for _, done in waiting:
            done(error)
        if self._waiting and not self._is_busy:
            self._start()


def _drawn_identity() -> int:
    """Not 0, which stands for a ledger that an operator has given up (store/model/files/store_age.py)."""
    return int.from_bytes(os.urandom(8), "little") or 1
