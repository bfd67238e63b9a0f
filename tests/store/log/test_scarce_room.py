"""Blocks of a log where room is short: small ones, and the head says what the file really has."""

import errno

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.space import BLOCK_SHARE
from jetraft.store.frames import _frame
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, Kind, unpack_block_head
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import BLOCK_GROWTH, LogOptions
from jetraft.store.model.files.block_sizes import BLOCK_BYTES_FIRST, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN
from jetraft.store.port import Entry, StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of
from tests.store.log.test_recovery import GROUP, IDENTITY, LOG

PLENTY = BLOCK_BYTES_MAX * BLOCK_SHARE
FRAME_BYTES = 8 << 10
FIRST_BYTES = BLOCK_BYTES_MIN * 4  # so that a small one can be told from it


def opened(disk: LossyDisk, room: list[int] | None = None) -> FileLog:
    options = (
        LogOptions() if room is None else LogOptions(available_bytes=lambda: room[0], block_bytes_first=FIRST_BYTES)
    )
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), options)


def large(index: int) -> Entry:
    frame = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=IDENTITY.incarnation, body=bytes(FRAME_BYTES))
    return Entry(index=index, term=1, kind=Kind.NOOP, frame=frame)


def write(disk: LossyDisk, log: FileLog, count: int) -> None:
    """Append so many entries, one batch each."""
    for index in range(log.last_index + 1, log.last_index + 1 + count):
        log.append([large(index)])
        log.submit()
        disk.finish()
    assert log.failed is None
    assert log.durable_index == log.last_index


def sizes(disk: LossyDisk) -> list[int]:
    """What the heads of the blocks say that their files have, in order."""
    names = [name for name in disk.list_directory(LOG) if name.endswith(".blk")]
    heads = [disk.read_whole(LOG / name)[:BLOCK_HEAD_BYTES] for name in names]
    return [unpack_block_head(head, IDENTITY, what="").reserved_bytes for head in heads]


def newest_size(disk: LossyDisk) -> int:
    names = [name for name in disk.list_directory(LOG) if name.endswith(".blk")]
    return len(disk.read_whole(LOG / names[-1]))


@pytest.fixture
def disk() -> LossyDisk:
    found = LossyDisk()
    found.make_directory(GROUP.parent)
    found.sync_names()
    return found


def test_blocks_grow_where_there_is_room(disk: LossyDisk) -> None:
    log = opened(disk, [PLENTY])
    write(disk, log, 40)
    assert sizes(disk) == [FIRST_BYTES, FIRST_BYTES * BLOCK_GROWTH]


def test_a_stream_with_a_few_messages_reserves_little_and_grows_to_large_blocks(disk: LossyDisk) -> None:
    """The options that a server has, where there is room: a first block of 24 KiB, the largest after five more."""
    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(available_bytes=lambda: PLENTY))
    write(disk, log, 1)
    assert sizes(disk) == [BLOCK_BYTES_FIRST]
    expected = [BLOCK_BYTES_FIRST * BLOCK_GROWTH**step for step in range(3)]
    write(disk, log, sum(expected[:2]) // FRAME_BYTES)
    assert sizes(disk) == expected
    assert BLOCK_BYTES_FIRST * BLOCK_GROWTH**5 < BLOCK_BYTES_MAX < BLOCK_BYTES_FIRST * BLOCK_GROWTH**6


def test_blocks_are_small_where_there_is_none_and_grow_again_later(disk: LossyDisk) -> None:
    room = [0]
    log = opened(disk, room)
    write(disk, log, 16)
    assert sizes(disk) == [BLOCK_BYTES_MIN] * len(sizes(disk))
    room[0] = PLENTY
    write(disk, log, 40)
    assert sizes(disk)[-2:] == [FIRST_BYTES, FIRST_BYTES * BLOCK_GROWTH]


def test_an_allocation_that_finds_no_room_is_tried_again_small_and_the_log_goes_on(disk: LossyDisk) -> None:
    log = opened(disk, [PLENTY])
    write(disk, log, 1)
    disk.available_bytes = BLOCK_BYTES_MIN
    write(disk, log, 40)

    assert sizes(disk)[0] == FIRST_BYTES
    assert set(sizes(disk)[1:]) == {BLOCK_BYTES_MIN}
    assert newest_size(disk) == BLOCK_BYTES_MIN, "what the head says"
    log.close()
    again = opened(disk)
    assert [found.index for found in again.entries(1, 41, 1 << 30)] == list(range(1, 42))
    assert again.damaged_entries == ()


def test_frames_that_were_placed_before_the_room_was_known_to_be_less_are_kept(disk: LossyDisk) -> None:
    disk.available_bytes = BLOCK_BYTES_MIN
    log = opened(disk, [PLENTY])
    log.append([large(1)])
    log.submit()
    log.append([large(index) for index in range(2, 20)])  # more than BLOCK_BYTES_MIN, while the first is on its way
    log.submit()
    disk.finish()
    assert log.durable_index == 19
    log.append([large(20)])
    log.submit()
    disk.finish()
    assert sizes(disk) == [BLOCK_BYTES_MIN, BLOCK_BYTES_MIN]
    log.close()
    assert [found.index for found in opened(disk).entries(1, 20, 1 << 30)] == list(range(1, 21))


def test_an_end_that_is_lost_is_missed_in_a_block_that_had_to_be_small(disk: LossyDisk) -> None:
    disk.available_bytes = BLOCK_BYTES_MIN
    log = opened(disk, [PLENTY])
    write(disk, log, 3)
    log.close()
    name = next(name for name in disk.list_directory(LOG) if name.endswith(".blk"))
    fd = disk.open_file(LOG / name)
    batch = disk.batch()
    batch.truncate(fd, BLOCK_BYTES_MIN // 2)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)
    with pytest.raises(StoreCorrupt, match=f"bytes, expected {BLOCK_BYTES_MIN}"):
        opened(disk)


def test_no_room_even_for_what_is_to_be_written_is_a_failed_write(disk: LossyDisk) -> None:
    log = opened(disk, [0])
    disk.available_bytes = BLOCK_BYTES_MIN - 1
    log.append([large(1)])
    log.submit()
    disk.finish()
    assert isinstance(log.failed, OSError)
    assert log.failed.errno == errno.ENOSPC
    assert log.durable_index == 0


def test_room_is_asked_for_once_for_each_block(disk: LossyDisk) -> None:
    asked: list[int] = []

    def available_bytes() -> int:
        asked.append(1)
        return PLENTY

    options = LogOptions(available_bytes=available_bytes, block_bytes_first=BLOCK_BYTES_MIN)
    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), options)
    write(disk, log, 20)
    assert len(asked) == len(sizes(disk)) == 2
