"""The members with which a log begins: kept by the ledger, without a file, and as good as any other checkpoint."""

from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from random import Random

import attrs
import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind, checkpoint_name
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, Entry, HardState
from tests.doubles.lossy_disk import LossyBatch, LossyDisk
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R1F-abcdefgh")
LOG = GROUP / "log-00000001"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
FOUNDING = Checkpoint(index=0, term=0, members=b"members", state=b"")


def opened(disk: LossyDisk) -> FileLog:
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache())


def founded(disk: LossyDisk) -> FileLog:
    """A log as a group begins it, durable, before its first entry."""
    log = opened(disk)
    log.set_hard_state(HardState(term=1, vote=IDENTITY.node_id))
    log.save_checkpoint(0, 0, FOUNDING.members, b"")
    settle(disk, log)
    return log


def append(disk: LossyDisk, log: FileLog) -> None:
    index = log.last_index + 1
    frame = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=7, body=b"body")
    log.append([Entry(index=index, term=1, kind=Kind.NOOP, frame=frame)])
    settle(disk, log)


def save(disk: LossyDisk, log: FileLog) -> None:
    log.save_checkpoint(log.last_index, 1, b"other members", b"state %d" % log.last_index)
    settle(disk, log)


def settle(disk: LossyDisk, log: FileLog) -> None:
    log.submit()
    disk.finish()
    assert log.durable_token == log.token()


@pytest.mark.parametrize("seed", range(20))
def test_the_members_are_there_after_a_power_cut_without_a_file_or_a_directory(seed: int) -> None:
    disk = LossyDisk()
    assert founded(disk).load_checkpoint() == FOUNDING
    disk.crash(Random(seed))
    assert disk.list_directory(LOG) == []
    log = opened(disk)
    assert log.load_checkpoint() == FOUNDING
    assert log.hard_state == HardState(term=1, vote=IDENTITY.node_id)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_entry_is_there_after_a_power_cut_with_its_directories(seed: int) -> None:
    disk = LossyDisk()
    append(disk, founded(disk))
    disk.crash(Random(seed))
    log = opened(disk)
    assert (log.last_index, log.load_checkpoint()) == (1, FOUNDING)
    append(disk, log)
    assert log.last_index == 2


@pytest.mark.parametrize("seed", range(20))
def test_the_members_are_not_durable_before_the_ledger_has_them(seed: int) -> None:
    disk = LossyDisk()
    log = opened(disk)
    log.save_checkpoint(0, 0, FOUNDING.members, b"")
    assert log.load_checkpoint() == FOUNDING
    disk.crash(Random(seed))
    assert opened(disk).load_checkpoint() is None


def test_the_members_stand_in_for_the_only_checkpoint_that_has_a_file_when_that_is_damaged() -> None:
    disk = LossyDisk()
    log = founded(disk)
    for _ in range(4):
        append(disk, log)
    save(disk, log)
    assert log.trim(1 << 62, 4) == 0, "everything can be replayed from the older checkpoint"
    log.close()
    disk.flip_bit(LOG / checkpoint_name(4), 100)
    assert opened(disk).load_checkpoint() == FOUNDING


@pytest.mark.parametrize("reopens", [False, True])
def test_the_members_are_forgotten_with_the_second_checkpoint_after_them(*, reopens: bool) -> None:
    disk = LossyDisk()
    log = founded(disk)
    for _ in range(3):
        append(disk, log)
        save(disk, log)
        if reopens:
            log.close()
            log = opened(disk)
    checkpoints = [name for name in disk.list_directory(LOG) if name.endswith(".ckpt")]
    assert checkpoints == [checkpoint_name(2), checkpoint_name(3)]
    state = log.place.ledger.state(log.place.key)
    assert state is not None
    assert state.founding is None
    assert log.failed is None


def test_a_state_before_the_first_entry_has_a_file() -> None:
    disk = LossyDisk()
    log = founded(disk)
    log.save_checkpoint(0, 0, b"members", b"state")
    settle(disk, log)
    log.close()
    assert disk.list_directory(LOG) == [checkpoint_name(0)]
    assert opened(disk).load_checkpoint() == Checkpoint(index=0, term=0, members=b"members", state=b"state")


def test_the_ledger_keeps_the_members_when_it_is_written_anew() -> None:
    disk = LossyDisk()
    log = founded(disk)
    ledger = log.place.ledger
    ledger._rewrite_at = 0
    ledger.commit_now()
    ledger.close()
    assert ledger.statistics().rewrites >= 1
    assert opened(disk).load_checkpoint() == FOUNDING


@pytest.mark.parametrize("seed", range(20))
def test_the_way_to_all_groups_is_durable_before_a_second_log_counts(seed: int) -> None:
    """The first log of a store makes the directory above all groups, and may be slower than the next to write."""
    disk = LossyDisk()
    ledger = ledger_of(disk, GROUP)
    open_log(ledger, GROUP, IDENTITY, BlockCache())
    other, identity = GROUP.with_name("other"), attrs.evolve(IDENTITY, group_id=GroupId("other"))
    log = open_log(ledger, other, identity, BlockCache())
    log.set_hard_state(HardState(term=1, vote=None))
    append(disk, log)
    disk.crash(Random(seed))
    assert open_log(ledger_of(disk, other), other, identity, BlockCache()).last_index == 1


def test_a_log_costs_eight_syncs_with_its_first_entry_and_four_of_them_are_the_ledgers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = LossyDisk()
    append(disk, opened(disk))  # the way to all groups is there
    other, identity = GROUP.with_name("other"), attrs.evolve(IDENTITY, group_id=GroupId("other"))
    log = open_log(ledger_of(disk, GROUP), other, identity, BlockCache())
    synced: list[str] = []
    for kind in ("sync", "sync_data"):
        original = getattr(LossyBatch, kind)
        monkeypatch.setattr(LossyBatch, kind, partialmethod(_noted, kind, original, synced))
    log.set_hard_state(HardState(term=1, vote=None))
    log.save_checkpoint(0, 0, FOUNDING.members, b"")
    settle(disk, log)
    assert synced == ["sync_data"] * 2, "the copies of the ledger"
    append(disk, log)
    assert synced[2:] == ["sync"] * 4 + ["sync_data"] * 2, "two directories, the block, its name; the ledger"


def _noted(
    batch: LossyBatch, kind: str, original: Callable[[LossyBatch, int], None], synced: list[str], fd: int
) -> None:
    synced.append(kind)
    original(batch, fd)
