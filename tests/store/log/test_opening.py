"""Opening a log after a failed write: the device decides what is there, not the page cache."""

import errno
from pathlib import Path

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState, StoreFailed
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import LEDGER_FILES, ledger_of

GROUP = Path("/groups/S-R3F-abcdefgh")
OPTIONS = LogOptions(block_bytes_first=64 << 10)  # 40 entries end in the second block, 99 in the third
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R3F-abcdefgh"), incarnation=7)


def entry(index: int) -> Entry:
    frame = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=7, body=b"x" * 5000)
    return Entry(index=index, term=1, kind=Kind.NOOP, frame=frame)


def written(disk: LossyDisk, count: int) -> FileLog:
    """A log with so many durable entries."""
    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), OPTIONS)
    log.append([entry(index) for index in range(1, count + 1)])
    log.submit()
    disk.finish()
    assert log.durable_index == count
    return log


def test_after_a_failed_fsync_the_log_is_what_the_device_has() -> None:
    disk = LossyDisk()
    log = written(disk, 3)
    log.append([entry(4)])
    disk.fail_next("sync", errno.EIO)
    log.submit()
    disk.finish()
    assert isinstance(log.failed, OSError)
    assert log.durable_index == 3
    with pytest.raises(StoreFailed):
        log.append([entry(5)])

    log.close()
    log = log.reopen_cold()

    assert (log.last_index, log.failed) == (3, None)
    log.append([entry(4), entry(5)])
    log.submit()
    disk.finish()
    assert log.durable_index == 5
    log.close()
    assert open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache()).last_index == 5


def test_a_vote_whose_fsync_has_failed_is_not_read_back_from_the_cache() -> None:
    disk = LossyDisk()
    log = written(disk, 1)
    log.set_hard_state(HardState(term=9, vote=NodeId("AAAAAAAA")))
    disk.fail_next("sync", errno.EIO)
    log.submit()
    disk.finish()
    assert log.failed is not None

    disk.kill()  # the process ends; its successor opens the log as always
    found = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache()).hard_state

    assert found == HardState(term=0, vote=None)


@pytest.mark.parametrize("operation", ["open", "write", "allocate"])
def test_a_full_disk_costs_nothing_that_was_durable_and_the_log_goes_on_when_there_is_room(operation: str) -> None:
    disk = LossyDisk()
    log = written(disk, 40)
    log.append([entry(index) for index in range(41, 100)])  # into another block
    disk.fail_next(operation, errno.ENOSPC)
    log.submit()
    disk.finish()
    assert isinstance(log.failed, OSError)
    assert log.failed.errno == errno.ENOSPC
    log.close()
    assert disk.open_files == LEDGER_FILES

    log = log.reopen_cold()

    assert 40 <= log.last_index < 100
    log.append([entry(index) for index in range(log.last_index + 1, 121)])
    log.submit()
    disk.finish()
    assert log.durable_index == 120
    assert [found.index for found in log.entries(1, 120, 1 << 30)] == list(range(1, 121))


def test_a_block_that_goes_on_growing_is_opened_once_for_reads_and_writes() -> None:
    disk = LossyDisk()
    written(disk, 1).close()
    disk.kill()
    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache())
    log.entries(1, 1, 1 << 20)
    log.append([entry(2)])
    log.submit()
    disk.finish()
    assert disk.open_files == LEDGER_FILES + 1

    log.roll_early()
    log.append([entry(3)])
    log.submit()
    disk.finish()
    log.entries(1, 1, 1 << 20)
    assert disk.open_files == LEDGER_FILES + 2, "the older one for reads"
    log.close()
    assert disk.open_files == LEDGER_FILES
