"""Zeros are written where frames will come, and never upon frames."""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import MARK_BYTES, Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.preallocate import BATCH_BYTES_MAX, PieceSizes
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, StoreFailed
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import LEDGER_FILES, ledger_of

if TYPE_CHECKING:
    from jetraft.store.disk.io import Batch

GROUP = Path("/store/groups/S-R1F-abcdefgh")
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
SIZES = PieceSizes(after_batches=4, piece_bytes=2048, piece_batches_min=1, step_bytes=512, aligned_bytes=64)
BLOCK_BYTES = 64 << 10


def opened(disk: LossyDisk) -> FileLog:
    options = LogOptions(block_bytes_first=BLOCK_BYTES, block_bytes_max=4 * BLOCK_BYTES, pieces=SIZES)
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(bytes_max=2000), options)


class Operations:
    """A batch that only notes what it is asked for."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, int]] = []
        self.order = ""

    def write(self, _fd: int, buffers: Sequence[bytes], offset: int) -> None:
        self.order += "w"
        self.writes.append((offset, sum(map(len, buffers))))

    def sync_data(self, _fd: int) -> None:
        self.order += "s"


@pytest.fixture
def disk() -> LossyDisk:
    found = LossyDisk()
    found.make_directory(GROUP.parent.parent)
    found.sync_names()
    return found


def entry(index: int, size: int = 100) -> Entry:
    record = _frame.make_record(b"s", b"", b"p" * size, ts_ns=index)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=1, incarnation=7, body=record, first_seq=index, count=1)
    return Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)


def write(log: FileLog, disk: LossyDisk, first: int, last: int, size: int = 100) -> None:
    for index in range(first, last + 1):
        log.append([entry(index, size)])
        log.submit()
        disk.finish()


def test_a_quiet_block_is_not_prepared(disk: LossyDisk) -> None:
    log = opened(disk)
    write(log, disk, 1, SIZES.after_batches - 1)
    assert log.statistics().pieces_prepared == 0


def test_pieces_stay_ahead_of_a_growing_block_and_leave_every_frame_alone(disk: LossyDisk) -> None:
    log = opened(disk)
    write(log, disk, 1, 200)
    statistics = log.statistics()
    assert statistics.bytes_used // SIZES.piece_bytes <= statistics.pieces_prepared <= 40
    log.close()
    disk.kill()
    again = opened(disk)
    assert [found.frame for found in again.entries(1, 200, 1 << 30)] == [entry(index).frame for index in range(1, 201)]
    assert again.recovery_report is not None
    assert again.recovery_report.torn_bytes == 0


def test_large_batches_are_not_worth_writing_twice(disk: LossyDisk) -> None:
    log = opened(disk)
    write(log, disk, 1, 40, size=BATCH_BYTES_MAX * 3)
    assert log.statistics().pieces_prepared == 0


def test_a_batch_that_reaches_the_piece_waits_until_it_is_on_disk(disk: LossyDisk) -> None:
    log = opened(disk)
    write(log, disk, 1, SIZES.after_batches - 1)
    log.append([entry(SIZES.after_batches)])
    log.submit()  # hands over a batch, and a piece with it
    piece = log.durability._preparation.piece
    assert piece is not None
    used = log.statistics().bytes_used
    large = entry(SIZES.after_batches + 1, piece.start - used + MARK_BYTES)
    while log.durable_index < SIZES.after_batches:
        disk.step()
    assert log.durability._preparation.piece is piece
    log.append([large])
    log.submit()
    assert not log.durability._in_flight
    disk.finish()
    assert log.durable_index == SIZES.after_batches + 1
    log.close()
    disk.kill()
    again = opened(disk)
    assert again.entries(1, again.last_index, 1 << 30)[-1].frame == large.frame


def test_a_block_is_not_given_back_while_zeros_are_on_their_way_to_it(disk: LossyDisk) -> None:
    log = opened(disk)
    write(log, disk, 1, SIZES.after_batches - 1)
    log.append([entry(SIZES.after_batches)])
    log.submit()
    while log.durable_index < SIZES.after_batches:
        disk.step()
    assert log.durability._preparation.piece is not None
    log.cut_from(SIZES.after_batches)  # the log goes on in another block
    log.append([entry(SIZES.after_batches)])
    log.submit()
    assert not log.durability._in_flight
    disk.finish()
    assert log.durable_index == SIZES.after_batches
    log.close()
    assert disk.open_files == LEDGER_FILES


def test_an_error_of_the_zeros_is_one_of_the_log(disk: LossyDisk) -> None:
    log = opened(disk)
    write(log, disk, 1, SIZES.after_batches - 1)
    log.append([entry(SIZES.after_batches)])
    log.submit()
    while log.durable_index < SIZES.after_batches:
        disk.step()
    disk.fail_next("sync", 5)
    disk.finish()
    with pytest.raises(StoreFailed):
        log.append([entry(SIZES.after_batches + 1)])
    log.close()
    assert disk.open_files == LEDGER_FILES


def test_a_piece_whose_file_cannot_be_opened_is_not_taken_for_prepared(
    disk: LossyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(disk)
    write(log, disk, 1, SIZES.after_batches - 1)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "open_file", refuse)
        write(log, disk, SIZES.after_batches, SIZES.after_batches)
    assert log.failed is None
    assert log.statistics().pieces_prepared == 0
    assert log.durability._preparation.piece is None
    write(log, disk, SIZES.after_batches + 1, 2 * SIZES.after_batches - 1)
    assert log.statistics().pieces_prepared == 0
    write(log, disk, 2 * SIZES.after_batches, 2 * SIZES.after_batches)
    assert log.statistics().pieces_prepared == 1


def refuse(path: Path) -> int:
    raise OSError(errno.EMFILE, "Too many open files", str(path))


def test_no_more_than_a_step_of_zeros_is_ever_waiting_for_the_disk(disk: LossyDisk) -> None:
    log = opened(disk)
    write(log, disk, 1, SIZES.after_batches - 1)
    log.append([entry(SIZES.after_batches)])
    log.submit()
    while log.durable_index < SIZES.after_batches:
        disk.step()
    preparation = log.durability._preparation
    piece = preparation.piece
    assert piece is not None
    batch = Operations()

    preparation.fill(cast("Batch", batch), 7)  # it writes and syncs, nothing else

    assert sum(size for _, size in batch.writes) == piece.end - piece.start
    assert max(size for _, size in batch.writes) == SIZES.step_bytes
    assert batch.order == "ws" * len(batch.writes)
    disk.finish()
    log.close()
