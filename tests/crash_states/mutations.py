"""Rules of the store, broken one at a time: does the explorer notice, and how soon?

A mutation says what is done instead, and within how many states it must be noticed. The first ones are of the disk, and
know nothing of the store; the others reach into it, and go with what they reach into.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from jetraft.store.frames._frame import scan
from jetraft.store.frames.format import Identity, Stop
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.ledger.ledger_records import Born, GroupState
from jetraft.store.log import compaction, durability, erasure, recovery, staging
from jetraft.store.log import write_queue as write_queue_module
from jetraft.store.log._growth import Segment, WriteQueue
from jetraft.store.log.retained_checkpoints import RetainedCheckpoints
from jetraft.store.log.write_queue import LogPlace
from tests.crash_states.exploration import Outcome, explore
from tests.doubles.lossy_disk import LossyBatch, LossyDisk
from tests.doubles.lossy_tree import LossyFile
from tests.simulator.mutations import everything_is_durable

Patch = pytest.MonkeyPatch


@attrs.frozen
class Mutation:
    """One rule broken: `instead` happens. Noticed within `states` states, by the crashes after an operation first."""

    instead: str
    switch: Callable[[Patch], None]
    states: int
    found: tuple[int, int] | None = None  # seed and operation, for what takes seconds to find


def is_noticed_at_once(mutation: Mutation) -> bool:
    """Whether the crashes after the operation that the table names still show it; any change may move that."""
    if mutation.found is None:
        return False
    seed, operation = mutation.found
    return bool(explore(seed, at=operation, is_one_enough=True).violations)


def first_noticed(seeds: Sequence[int]) -> tuple[int, Outcome] | None:
    """(states judged until then, the outcome that has violations); None when no seed notices."""
    judged = 0
    for seed in seeds:
        outcome = explore(seed, is_one_enough=True)
        judged += outcome.states.total()
        if outcome.violations:
            return judged, outcome
    return None


# The disk.


def files_are_not_synced(patch: Patch) -> None:
    def sync(disk: LossyDisk, fd: int) -> None:
        if not isinstance(disk._open[fd], LossyFile):
            disk._open[fd].sync()

    patch.setattr(LossyDisk, "_do_sync", sync)


def directories_are_not_synced(patch: Patch) -> None:
    def sync(disk: LossyDisk, fd: int) -> None:
        if isinstance(disk._open[fd], LossyFile):
            disk._open[fd].sync()

    patch.setattr(LossyDisk, "_do_sync", sync)


def renames_come_before_fsyncs(patch: Patch) -> None:
    """What is written aside takes its place without an fsync."""
    rename = LossyBatch.rename

    def careless(batch: LossyBatch, old: bytes, new: bytes) -> None:
        if batch.operations and batch.operations[-1][0] == "sync":
            batch.operations.pop()
        rename(batch, old, new)

    patch.setattr(LossyBatch, "rename", careless)


def blocks_go_first(patch: Patch) -> None:
    """The files of dropped blocks go before the ledger knows that they were dropped."""
    fill = write_queue_module.fill

    def hasty(batch: LossyBatch, write_queue: WriteQueue, place: LogPlace, opened: list[int]) -> None:
        fill(batch, write_queue, place, opened)
        for path in write_queue.unlink:
            batch.unlink(bytes(path))
        write_queue.unlink.clear()

    patch.setattr(durability, "fill", hasty)


# The ledger.


def blocks_are_not_recorded(patch: Patch) -> None:
    """The ledger is not told of what the log has made."""
    patch.setattr(durability, "records", lambda _write_queue, _place: [])


def records_count_at_once(patch: Patch) -> None:
    """What the ledger is given counts before it is durable."""
    append = Ledger.append

    def careless(ledger: Ledger, records: Sequence[bytes], done: Callable[[OSError | None], None]) -> None:
        append(ledger, records, lambda _error: None)
        done(None)

    patch.setattr(Ledger, "append", careless)


def first_entries_are_not_recorded(patch: Patch) -> None:
    """What goes to no block goes nowhere."""
    promise = write_queue_module.promise

    def careless(write_queue: WriteQueue, place: LogPlace) -> list[bytes]:
        begun, write_queue.begun = write_queue.begun, ()
        found = promise(write_queue, place)
        write_queue.begun = begun
        return found

    patch.setattr(durability, "promise", careless)


def assumed_records_are_not_written(patch: Patch) -> None:
    """What counts because of something else never reaches the disk, and what comes next does."""
    assume = Ledger.assume

    def careless(ledger: Ledger, records: Sequence[bytes]) -> int:
        number = assume(ledger, records)
        ledger._noted.clear()
        return number

    patch.setattr(Ledger, "assume", careless)


def first_blocks_lack_what_the_ledger_had(patch: Patch) -> None:
    """The block goes on behind what the ledger keeps, and its birth voids that."""
    begin = write_queue_module.begin_in_ledger

    def careless(write_queue: WriteQueue, place: LogPlace, bytes_max: int) -> list[Segment]:
        kept = begin(write_queue, place, bytes_max)
        for segment in kept:
            segment.frames[:] = [bytes(len(frame)) for frame in segment.frames]
        return kept

    patch.setattr(durability, "begin_in_ledger", careless)


# The log.


def checkpoints_count_at_once(patch: Patch) -> None:
    """Blocks are compacted for a checkpoint that is not durable, and that has none before it."""
    patch.setattr(RetainedCheckpoints, "floor", RetainedCheckpoints.newest_index)


def compacted_blocks_are_not_synced(patch: Patch) -> None:
    def careless(disk: LossyDisk, tmp: Path, data: bytes) -> None:
        fd = disk.open_file(tmp, create=True)
        batch = disk.batch()
        batch.truncate(fd, 0)
        batch.write(fd, [data], 0)
        disk.perform(batch)
        disk.close_file(fd)

    patch.setattr(compaction, "write_aside", careless)


# The opening.


def erasures_are_not_redone(patch: Patch) -> None:
    def careless(disk: LossyDisk, journal: Path, _data: bytes, _identity: Identity) -> int:
        batch = disk.batch()
        batch.unlink(bytes(journal))
        disk.perform(batch)
        return 0

    patch.setattr(erasure, "finish", careless)


def cut_entries_count(patch: Patch) -> None:
    """A block voids nothing of what earlier ones hold."""

    def careless(state: GroupState, block: Born) -> GroupState:
        return attrs.evolve(state, births=(*state.births, block))

    patch.setattr(GroupState, "with_birth", careless)


def a_torn_tail_takes_the_entry_before_it(patch: Patch) -> None:
    def harsh(data: bytes, **given: Any) -> Any:
        walk = scan(data, **given)
        if walk.stop in {Stop.END, Stop.ZERO} or len(walk.offsets) < 2 or walk.indexes:
            return walk
        last = walk.offsets.pop()
        return walk._replace(next_index=walk.next_index - 1, end=last)

    patch.setattr(recovery, "scan", harsh)


def installed_logs_are_not_synced(patch: Patch) -> None:
    patch.setattr(staging.FileStaging, "_verify", lambda *_: None)


MUTATIONS = (
    Mutation("fsync of a file does nothing", files_are_not_synced, 500),
    Mutation("fsync of a directory does nothing", directories_are_not_synced, 500),
    Mutation("what is written aside takes its place before it is fsynced", renames_come_before_fsyncs, 1000),
    Mutation("dropped blocks go before the record of it", blocks_go_first, 1000, (9, 354)),
    Mutation("a batch makes durable what was appended while it ran", everything_is_durable, 1000),
    Mutation("blocks are compacted for a checkpoint that is not durable", checkpoints_count_at_once, 1000, (5, 271)),
    Mutation("a compacted block is not fsynced", compacted_blocks_are_not_synced, 1000, (5, 478)),
    Mutation("the journal of erasures is not redone", erasures_are_not_redone, 1000, (9, 158)),
    Mutation("cut entries count", cut_entries_count, 1000, (9, 202)),
    Mutation("the ledger is not told of blocks", blocks_are_not_recorded, 1000),
    Mutation("records of the ledger count at once", records_count_at_once, 1000),
    Mutation("the ledger is not told of first entries", first_entries_are_not_recorded, 1000),
    Mutation("what is assumed is never recorded", assumed_records_are_not_written, 4000, (21, 18)),
    Mutation("a first block lacks what the ledger had", first_blocks_lack_what_the_ledger_had, 1000),
    Mutation("a torn tail takes the entry before it along", a_torn_tail_takes_the_entry_before_it, 1000),
    Mutation("an installed log is not fsynced", installed_logs_are_not_synced, 1000, (9, 126)),
)
