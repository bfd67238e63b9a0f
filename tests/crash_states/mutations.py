"""Rules of the store, broken one at a time: does the explorer notice, and how soon?

A mutation says what is done instead, and within how many states it must be noticed. The first ones are of the disk, and
know nothing of the store; the others reach into it, and go with what they reach into.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from jetraft.store import compaction, erasure, hard_state, log_open, recovery, staging
from jetraft.store._frame import scan
from jetraft.store.format import Stop
from jetraft.store.kept_checkpoints import KeptCheckpoints
from jetraft.store.log import FileLog
from jetraft.store.lossy_disk import LossyBatch, LossyDisk
from jetraft.store.lossy_tree import LossyFile
from tests.crash_states.exploration import Outcome, explore
from tests.crash_states.product import is_block

Patch = pytest.MonkeyPatch


@attrs.frozen
class Mutation:
    """One rule broken: `instead` happens. Noticed within `states` states."""

    instead: str
    switch: Callable[[Patch], None]
    states: int


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
    """The files of dropped blocks go before it is on disk that they were dropped."""
    unlink = LossyBatch.unlink

    def hasty(batch: LossyBatch, path: bytes) -> None:
        if is_block(Path(path.decode())):
            batch.operations.insert(0, ("unlink", (Path(path.decode()),)))
        else:
            unlink(batch, path)

    patch.setattr(LossyBatch, "unlink", hasty)


# The log.


def everything_counts_as_durable(patch: Patch) -> None:
    """The end of a batch counts for what was appended meanwhile, too."""
    settle = FileLog._settle

    def careless(log: FileLog, done: Any) -> None:
        settle(log, done)
        log.durable_token, log.durable_index = log.token(), log.last_index

    patch.setattr(FileLog, "_settle", careless)


def checkpoints_count_at_once(patch: Patch) -> None:
    """Blocks are compacted for a checkpoint that is not durable, and that has none before it."""
    patch.setattr(KeptCheckpoints, "floor", KeptCheckpoints.newest_index)


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
    patch.setattr(erasure, "_rewrite", lambda *_: False)


def cut_entries_count(patch: Patch) -> None:
    """Blocks of a higher serial void nothing."""
    limit = recovery._NO_LIMIT
    patch.setattr(recovery, "_without_void", lambda heads, _dropped: ([(head, limit) for head in heads], []))


def one_copy_of_the_vote_is_read(patch: Patch) -> None:
    newest = hard_state.newest
    patch.setattr(hard_state, "newest", lambda files, identity: newest(files[:1], identity))


def what_is_found_is_not_synced(patch: Patch) -> None:
    """An opening counts on what a process that was killed has left in the cache."""
    read_block = recovery._read_block
    patch.setattr(recovery, "_read_block", lambda disk, path, **_: read_block(disk, path, newest=False))


def a_torn_tail_takes_the_entry_before_it(patch: Patch) -> None:
    def harsh(data: bytes, **given: Any) -> Any:
        walk = scan(data, **given)
        if walk.stop in {Stop.END, Stop.ZERO} or len(walk.offsets) < 2 or walk.indexes:
            return walk
        last = walk.offsets.pop()
        return walk._replace(next_index=walk.next_index - 1, end=last)

    patch.setattr(recovery, "scan", harsh)


def names_and_votes_are_not_synced(patch: Patch) -> None:
    """An opening counts on the names and the vote that a process that was killed has left in the cache."""
    patch.setattr(log_open, "_sync_names", lambda _place: None)


def installed_logs_are_not_synced(patch: Patch) -> None:
    patch.setattr(staging.FileStaging, "_verify", lambda *_: None)


MUTATIONS = (
    Mutation("fsync of a file does nothing", files_are_not_synced, 500),
    Mutation("fsync of a directory does nothing", directories_are_not_synced, 500),
    Mutation("what is written aside takes its place before it is fsynced", renames_come_before_fsyncs, 1000),
    Mutation("dropped blocks go before the record of it", blocks_go_first, 1000),
    Mutation("a batch makes durable what was appended while it ran", everything_counts_as_durable, 1000),
    Mutation("blocks are compacted for a checkpoint that is not durable", checkpoints_count_at_once, 1000),
    Mutation("a compacted block is not fsynced", compacted_blocks_are_not_synced, 1000),
    Mutation("the journal of erasures is not redone", erasures_are_not_redone, 1000),
    Mutation("cut entries count", cut_entries_count, 1000),
    Mutation("one copy of term and vote is read", one_copy_of_the_vote_is_read, 1000),
    Mutation("what an opening finds is not fsynced", what_is_found_is_not_synced, 3000),
    Mutation("a torn tail takes the entry before it along", a_torn_tail_takes_the_entry_before_it, 1000),
    Mutation("names and vote that are found are not fsynced", names_and_votes_are_not_synced, 1000),
    Mutation("an installed log is not fsynced", installed_logs_are_not_synced, 1000),
)
