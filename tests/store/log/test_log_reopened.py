"""A log that is opened again in the same process goes on in its newest block: nothing of its old self may get there.

The old self may have left a batch that failed half-way, so that a crash brings it back; and zeros that were to go ahead
of its frames.
"""

import errno
from collections import deque
from pathlib import Path
from random import Random

import attrs
import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.preallocate import PieceSizes
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState, StoreFailed
from tests.doubles.lossy_disk import LossyDisk

ROOT = Path("/store")
GROUP = ROOT / "groups" / "S-R1F-abcdefgh.7"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
SALVAGE = LogOptions(mode=RecoveryMode.SALVAGE)
PIECES = PieceSizes(after_batches=1, piece_bytes=4096, piece_batches_min=1, step_bytes=4096, aligned_bytes=32)


def entry(index: int, payload: bytes) -> Entry:
    body = _frame.make_record(b"k", b"", payload, ts_ns=index)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=1, incarnation=7, body=body, first_seq=index, count=1)
    return Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)


def payloads(log: FileLog) -> list[bytes]:
    return [_frame.records(item.frame)[0][4] for _, item in log.frames(1, log.last_index)]


def opened(disk: LossyDisk, options: LogOptions = SALVAGE) -> tuple[Ledger, FileLog]:
    ledger = Ledger.open(disk, ROOT)
    log = open_log(ledger, GROUP, IDENTITY, BlockCache(), options)
    if not log.hard_state.term:
        log.set_hard_state(HardState(term=1, vote=None))
    return ledger, log


def append(disk: LossyDisk, log: FileLog, first: int, last: int, payload: bytes) -> None:
    log.append([entry(index, payload) for index in range(first, last + 1)])
    log.submit()
    disk.finish()


def finish_all_but_zeros(disk: LossyDisk) -> None:
    """The thread that writes zeros is slow."""
    held, disk._background = disk._background, deque()
    while disk._queue:
        disk.step()
        held += disk._background
        disk._background.clear()
    disk._background = held


@pytest.mark.parametrize(
    ("operation", "steps"),
    [("write", 0), ("write", 1), ("write", 2), ("sync", 0), ("sync", 1), ("sync", 2), ("sync", 3)],
)
def test_a_block_whose_record_has_failed_does_not_void_what_is_written_later(operation: str, steps: int) -> None:
    """The record may be whole in the first copy of the ledger when the second one fails, and so come back."""
    disk = LossyDisk()
    ledger, log = opened(disk)
    append(disk, log, 1, 5, b"first")
    log.roll_early()
    log.append([entry(6, b"failed")])
    log.submit()
    while ledger.is_idle:
        disk.step()
    for _ in range(steps):
        disk.step()
    disk.fail_next(operation, errno.EIO)
    disk.finish()
    assert log.failed is not None
    log.close()

    with pytest.raises(StoreFailed, match="ledger"):
        log.reopen_cold()
    done: list[OSError | None] = []
    ledger.append([], done.append)  # as `settle` does
    disk.finish()
    assert done == [None]
    log = log.reopen_cold()
    append(disk, log, 6, 9, b"second")
    assert log.durable_index == 9
    log.close()

    disk.crash(Random(1))
    _, log = opened(disk)
    assert payloads(log) == [b"first"] * 5 + [b"second"] * 4
    assert not log.damaged_blocks


def test_a_closed_log_is_busy_until_its_zeros_are_written() -> None:
    """They would fall on the frames of its next self, which goes on in the same block."""
    disk = LossyDisk()
    ledger, log = opened(disk, attrs.evolve(SALVAGE, pieces=PIECES))
    while log.durable_index < 200 and not disk._background:
        log.append([entry(log.last_index + 1, b"x")])
        log.submit()
        finish_all_but_zeros(disk)
    assert disk._background
    assert log.durable_index == log.last_index
    told: list[bool] = []
    log.close()
    assert log.durability.is_busy
    assert ledger.logs[IDENTITY.group_id, IDENTITY.incarnation].is_busy
    log.on_durable = lambda: told.append(log.durability.is_busy)
    disk.finish()
    assert told == [False]


def test_nothing_of_a_log_goes_to_the_ledger_after_it_has_failed() -> None:
    """The fsync of zeros may fail while a block is on its way, and what it was to make durable is lost with it."""
    disk = LossyDisk()
    ledger, log = opened(disk, attrs.evolve(SALVAGE, pieces=PIECES))
    log.append([entry(1, b"x")])
    log.submit()
    while not disk._background:
        disk.step()
    disk.fail_next("sync", errno.EIO)
    while disk._background:
        disk._background_next = False
        disk.step()
    assert log.failed is not None
    disk.finish()
    log.close()
    state = ledger.state((IDENTITY.group_id, IDENTITY.incarnation))
    assert state is not None
    assert not state.births
    assert not log.reopen_cold().damaged_blocks
