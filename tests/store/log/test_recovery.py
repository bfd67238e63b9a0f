"""What an opening takes for a torn tail, what for damage, and what it refuses."""

import errno
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, MARK_BYTES, UNRECORDED_NAME, Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState, HardStateLost, StoreCorrupt, StoreError, StoreFailed
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import LEDGER_FILES, ledger_of, lose_records

GROUP = Path("/groups/S-R1F-abcdefgh")
LOG = GROUP / "log-00000001"
FIRST = LOG / "00000000000000000001-00000001.blk"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
FRAME_BYTES = 148


@pytest.fixture
def disk() -> LossyDisk:
    return LossyDisk()


def opened(disk: LossyDisk, **options: Any) -> FileLog:
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), attrs.evolve(LogOptions(), **options))


def entry(index: int, term: int = 1) -> Entry:
    frame = _frame.seal(Kind.NOOP, index=index, term=term, incarnation=7, body=b"%d" % term * 100)
    return Entry(index=index, term=term, kind=Kind.NOOP, frame=frame)


def written(disk: LossyDisk, *batches: list[int]) -> FileLog:
    """A log with one entry per index, one fsync per batch."""
    log = opened(disk)
    for batch in batches:
        log.append([entry(index) for index in batch])
        log.submit()
        disk.finish()
    return log


def leave_a_torn_tail(disk: LossyDisk) -> None:
    """Entries 1 to 3 are whole, 4 is damaged, 5 is whole; 3 to 5 were written and not fsynced."""
    log = written(disk, [1, 2])
    log.append([entry(3), entry(4), entry(5)])
    log.submit()
    assert disk.step()  # the write; neither fsync nor mark
    disk.flip_bit(FIRST, BLOCK_HEAD_BYTES + 2 * FRAME_BYTES + 32 + FRAME_BYTES + 60)
    disk.kill()


def test_tail_of_the_last_batch_without_a_mark_is_torn(disk: LossyDisk) -> None:
    leave_a_torn_tail(disk)

    log = opened(disk)

    assert log.last_index == 3
    assert log.recovery_report.torn_bytes > FRAME_BYTES
    assert log.entries(1, 3, 1 << 20) == [entry(1), entry(2), entry(3)]


def test_strict_opening_does_not_cut_a_torn_tail(disk: LossyDisk) -> None:
    leave_a_torn_tail(disk)
    with pytest.raises(StoreCorrupt, match="torn tail"):
        opened(disk, mode=RecoveryMode.STRICT)


@pytest.mark.parametrize("seed", range(24))
def test_an_opening_marks_an_end_that_is_durable(disk: LossyDisk, seed: int) -> None:
    """A process that was killed left an entry in the cache. A mark behind it says that it was durable: a power cut that
    keeps the mark and a part of the entry would make damage of an entry that was never acknowledged."""
    log = written(disk, [1])
    frame = _frame.seal(Kind.NOOP, index=2, term=1, incarnation=7, body=bytes(range(1, 251)) * 20)  # many sectors
    log.append([Entry(index=2, term=1, kind=Kind.NOOP, frame=frame)])
    log.submit()
    assert disk.step()  # the write; its fsync never comes
    disk.kill()
    operate = disk._operate

    def until_the_mark_is_written(name: str, arguments: tuple[object, ...]) -> None:
        operate(name, arguments)
        if name == "write":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "_operate", until_the_mark_is_written)
        with pytest.raises(KeyboardInterrupt):
            opened(disk)
    disk.crash(Random(seed))

    log = opened(disk)
    assert log.last_index in (1, 2)
    assert not log.damaged_entries


def test_frames_behind_a_tear_never_come_back(disk: LossyDisk) -> None:
    """The torn batch leaves sound frames at the very places where their successors would be written."""
    log = written(disk, [1])
    log.append([entry(2, term=5), entry(3, term=5), entry(4, term=5)])
    log.submit()
    disk.step()
    disk.flip_bit(FIRST, BLOCK_HEAD_BYTES + FRAME_BYTES + 32 + 60)  # entry 2 is torn, 3 and 4 are whole
    disk.kill()
    log = opened(disk)
    assert log.last_index == 1
    log.append([entry(2, term=5)])
    log.submit()
    disk.finish()
    log.close()

    assert opened(disk).last_index == 2


@pytest.mark.parametrize("place", [BLOCK_HEAD_BYTES + 60, BLOCK_HEAD_BYTES + FRAME_BYTES + 3, BLOCK_HEAD_BYTES])
def test_damage_before_a_mark_is_not_a_torn_tail(disk: LossyDisk, place: int) -> None:
    log = written(disk, [1, 2, 3])
    log.close()
    disk.flip_bit(FIRST, place)
    with pytest.raises(StoreCorrupt, match=r"entry \d at byte \d+ was durable and is damaged"):
        opened(disk)


def test_damage_in_a_sealed_block_is_reported(disk: LossyDisk) -> None:
    written(disk, [1, 2, 3]).close()
    log = opened(disk)
    log.append([entry(4)])
    log.submit()
    disk.finish()
    log.close()
    disk.flip_bit(FIRST, BLOCK_HEAD_BYTES + FRAME_BYTES + 60)
    with pytest.raises(StoreCorrupt, match="entry 2"):
        opened(disk)


def test_damaged_head_is_reported(disk: LossyDisk) -> None:
    written(disk, [1, 2, 3]).close()
    disk.flip_bit(FIRST, 5)
    with pytest.raises(StoreCorrupt, match="the head is damaged"):
        opened(disk)


def test_missing_block_is_damage(disk: LossyDisk) -> None:
    written(disk, [1, 2, 3]).close()
    log = opened(disk)
    log.append([entry(4)])
    log.submit()
    disk.finish()
    log.close()
    batch = disk.batch()
    batch.unlink(bytes(FIRST))
    disk.perform(batch)
    with pytest.raises(StoreCorrupt, match="the block is missing"):
        opened(disk)


@pytest.mark.parametrize("left", [0, 64, BLOCK_HEAD_BYTES, BLOCK_HEAD_BYTES + FRAME_BYTES, 4096])
def test_a_block_that_has_lost_its_end_is_damaged(disk: LossyDisk, left: int) -> None:
    """It had its whole length, durably, before anybody was told of anything in it."""
    written(disk, [1]).close()
    fd = disk.open_file(FIRST)
    batch = disk.batch()
    batch.truncate(fd, left)
    disk.perform(batch)
    with pytest.raises(StoreCorrupt, match=f"the file has {left} bytes|head is damaged"):
        opened(disk)

    log = opened(disk, mode=RecoveryMode.SALVAGE)

    assert log.damaged_entries == ((1, 1),) if left < BLOCK_HEAD_BYTES + FRAME_BYTES else ((2, 2),)
    assert log.damaged_blocks[0].end_lost


def test_a_block_that_no_record_names_was_never_finished(disk: LossyDisk) -> None:
    log = written(disk, [1, 2])
    log.roll_early()
    log.append([entry(3)])
    log.submit()
    while len([name for name in disk.list_directory(LOG) if name.endswith(".blk")]) < 2:
        disk.step()
    for _ in range(3):
        disk.step()  # head and frame are written, the file is fsynced
    disk.kill()

    log = opened(disk)

    assert log.last_index == 2
    assert disk.list_directory(LOG) == [FIRST.name]


def test_log_shorter_than_its_checkpoint_is_damage(disk: LossyDisk) -> None:
    log = written(disk, [1, 2, 3])
    log.save_checkpoint(3, 1, b"", b"")
    log.submit()
    disk.finish()
    log.close()
    batch = disk.batch()
    batch.unlink(bytes(FIRST))
    disk.perform(batch)
    with pytest.raises(StoreCorrupt, match="the block is missing"):
        opened(disk)


def test_lost_log_beside_a_vote_is_damage(disk: LossyDisk) -> None:
    written(disk, [1]).close()
    disk.remove_directory(LOG)
    with pytest.raises(StoreCorrupt, match="the block is missing"):
        opened(disk)


def test_cut_entries_do_not_come_back_when_the_block_that_cut_them_is_trimmed(disk: LossyDisk) -> None:
    """The head of a block voids what older blocks hold; the record of the trim must go on doing so."""
    log = written(disk, [1, 2, 3, 4])
    log.append([])
    log.cut_from(3)
    log.append([entry(3, term=2), entry(4, term=2)])
    log.submit()
    disk.finish()
    log.close()
    log = opened(disk)
    log.roll_early()
    log.append([message(5, seq=9)])
    log.submit()
    disk.finish()
    log.save_checkpoint(4, 2, b"", b"")
    log.submit()
    disk.finish()
    assert log.trim(1, 4) == 2
    log.submit()
    disk.finish()
    log.close()

    log = opened(disk)

    assert [found.index for _, found in log.frames(1, 9)] == [5]
    assert log.boundary == (4, 2)


def message(index: int, *, seq: int, term: int = 2) -> Entry:
    record = _frame.make_record(b"a", b"", b"p", ts_ns=1)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=term, incarnation=7, body=record, first_seq=seq, count=1)
    return Entry(index=index, term=term, kind=Kind.MESSAGES, frame=frame)


def test_blocks_between_live_ones_go_and_first_index_moves_behind_the_hole(disk: LossyDisk) -> None:
    """Block 1 has a message and a cut tail, block 2 only other entries, block 3 grows."""
    log = opened(disk)
    log.append([message(1, seq=1), message(2, seq=2), entry(3, term=2)])
    log.submit()
    disk.finish()
    log.cut_from(3)
    log.append([entry(3, term=3), entry(4, term=3)])
    log.submit()
    disk.finish()
    log.close()
    log = opened(disk)
    log.roll_early()
    log.append([entry(5, term=3)])
    log.save_checkpoint(4, 3, b"", b"")
    log.submit()
    disk.finish()

    assert log.trim(1, 4) == 1
    log.submit()
    disk.finish()

    for _ in range(2):
        assert [found.index for _, found in log.frames(1, 9)] == [1, 2, 5]
        assert (log.first_index, log.boundary) == (5, (4, 3))
        assert log.locate(3) is None
        log.close()
        log = opened(disk)


def test_the_files_of_another_node_are_not_believed(disk: LossyDisk) -> None:
    written(disk, [1]).close()
    with pytest.raises(StoreCorrupt, match="the head is damaged"):
        open_log(ledger_of(disk, GROUP), GROUP, attrs.evolve(IDENTITY, node_id=NodeId("N7654321")), BlockCache())


@pytest.mark.parametrize("change", [{"group_id": GroupId("S-R1F-hgfedcba")}, {"incarnation": 8}])
def test_a_log_that_the_ledger_does_not_know_is_kept_and_not_believed(disk: LossyDisk, change: dict[str, Any]) -> None:
    written(disk, [1]).close()
    log = open_log(ledger_of(disk, GROUP), GROUP, attrs.evolve(IDENTITY, **change), BlockCache())
    assert log.last_index == 0
    assert disk.list_directory(GROUP / UNRECORDED_NAME) == [FIRST.name]


def test_two_damaged_copies_of_the_ledger_forbid_voting(disk: LossyDisk) -> None:
    written(disk, [1]).close()
    lose_records(disk, GROUP.parent.parent, (IDENTITY.group_id, IDENTITY.incarnation))
    with pytest.raises(HardStateLost, match="ledger"):
        opened(disk)

    log = opened(disk, accept_lost_hard_state=True)

    assert log.hard_state_lost
    assert log.hard_state == HardState(term=1, vote=None)


def test_damaged_checkpoint_falls_back_to_the_one_before(disk: LossyDisk) -> None:
    log = written(disk, [1, 2, 3])
    for index in (1, 2, 3):
        log.save_checkpoint(index, 1, b"", b"state %d" % index)
        log.submit()
        disk.finish()
    log.close()
    disk.flip_bit(LOG / "00000000000000000003.ckpt", 110)
    log = opened(disk)
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.state == b"state 2"
    disk.flip_bit(LOG / "00000000000000000002.ckpt", 110)
    with pytest.raises(StoreCorrupt, match=r"00002\.ckpt"):
        log.load_checkpoint()


def test_damaged_frame_is_never_read(disk: LossyDisk) -> None:
    written(disk, [1, 2, 3]).close()
    log = opened(disk)
    ref = log.locate(2)
    assert ref is not None
    disk.flip_bit(FIRST, ref.offset + 70)
    for read in (lambda: log.entries(1, 3, 1 << 20), lambda: log.frame_at(ref.block, ref.offset)):
        with pytest.raises(StoreCorrupt, match="entry 2"):
            read()
    assert log.frame_at(ref.block, BLOCK_HEAD_BYTES) == entry(1).frame


@pytest.mark.parametrize("operation", ["write", "sync", "allocate", "open"])
def test_failed_write_is_final(disk: LossyDisk, operation: str) -> None:
    log = opened(disk)
    log.submit()
    disk.finish()  # the ledger has what it needs
    before = log.durable_token
    told: list[Exception | None] = []
    log.on_durable = lambda: told.append(log.failed)
    log.append([entry(1)])
    disk.fail_next(operation, 5)
    log.submit()
    disk.finish()

    assert log.durable_index == 0
    assert log.durable_token == before
    assert [type(error) for error in told] == [OSError]
    with pytest.raises(StoreFailed, match="ordered to fail"):
        log.append([entry(2)])
    log.submit()
    assert not disk.step()
    log.close()
    assert disk.open_files == LEDGER_FILES


def test_a_batch_follows_the_one_on_its_way_and_the_rest_is_the_next(disk: LossyDisk) -> None:
    log = written(disk, [1])
    before = log.durable_token
    log.append([entry(2)])
    log.submit()
    first = log.token()
    log.append([entry(3)])
    log.submit()
    second = log.token()
    log.append([entry(4)])
    log.submit()
    while log.durable_token == before:
        disk.step()
    assert (log.durable_token, log.durable_index) == (first, 2)
    while log.durable_token == first:
        disk.step()
    assert (log.durable_token, log.durable_index) == (second, 3)
    disk.finish()
    assert (log.durable_token, log.durable_index) == (log.token(), 4)


def test_nothing_follows_a_batch_that_the_ledger_must_hear_of(disk: LossyDisk) -> None:
    """A block does not count before its record does, so nor does what is written to it."""
    log = opened(disk)
    log.append([entry(1)])
    log.submit()
    first = log.token()
    log.append([entry(2)])
    log.submit()
    while log.durable_token == 0:
        disk.step()
    assert (log.durable_token, log.durable_index) == (first, 1)


def test_a_batch_that_follows_a_failed_one_is_not_done(disk: LossyDisk) -> None:
    log = opened(disk)
    log.append([entry(1)])
    log.submit()
    disk.finish()
    log.append([entry(2)])
    log.submit()
    log.append([entry(3)])
    log.submit()
    disk.fail_next("sync", errno.EIO)
    disk.finish()
    assert log.failed is not None
    assert log.durable_index == 1
    log.close()
    disk.kill()
    assert opened(disk).last_index <= 2


def test_cut_lowers_what_a_batch_in_flight_makes_durable(disk: LossyDisk) -> None:
    log = opened(disk)
    log.append([entry(1), entry(2), entry(3)])
    log.submit()
    log.cut_from(2)
    log.append([entry(2, term=2), entry(3, term=2)])
    while log.durable_token == 0:
        disk.step()
    assert log.durable_index == 1


def test_every_error_of_an_opening_is_a_store_error(disk: LossyDisk) -> None:
    """Any single flipped bit: the log opens with all its entries, or the opening says what is wrong."""
    log = written(disk, [1, 2], [3])
    log.close()
    size = BLOCK_HEAD_BYTES + 3 * FRAME_BYTES + 64
    random = Random(1)
    for offset in random.sample(range(size), 150):
        disk.flip_bit(FIRST, offset)
        try:
            found = opened(disk)
        except StoreError:
            pass
        else:
            assert found.last_index == 3
            found.close()
        disk.flip_bit(FIRST, offset)


def test_an_opening_proves_that_what_it_found_is_durable(disk: LossyDisk) -> None:
    log = written(disk, [1])
    log.append([entry(2)])
    log.submit()
    second = BLOCK_HEAD_BYTES + FRAME_BYTES + MARK_BYTES
    while not _frame.verify(disk.read_whole(FIRST), second):
        disk.step()  # until it is written, and not marked
    disk.kill()
    opened(disk).close()

    disk.flip_bit(FIRST, second + 60)

    with pytest.raises(StoreCorrupt, match=f"entry 2 at byte {second} was durable"):
        opened(disk)


def test_sound_frame_at_the_wrong_place_is_never_read(disk: LossyDisk) -> None:
    """A write that the device put elsewhere: the checksum holds, the entry is another."""
    written(disk, [1, 2, 3]).close()
    log = opened(disk)
    ref = log.locate(2)
    assert ref is not None
    fd = disk.open_file(FIRST)
    batch = disk.batch()
    batch.write(fd, [entry(3).frame], ref.offset)
    disk.perform(batch)
    with pytest.raises(StoreCorrupt, match="entry 2"):
        log.frame_at(ref.block, ref.offset)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("opens", [0, 1, 2])
def test_too_few_descriptors_are_no_failure_of_the_disk(
    disk: LossyDisk, monkeypatch: pytest.MonkeyPatch, number: int, opens: int
) -> None:
    """A block is rolled when no file can be opened: what waits is written when that is possible again."""
    log = written(disk, [1, 2])
    log.roll_early()
    log.append([entry(3)])
    log.save_checkpoint(2, 1, b"", b"")
    left = opens
    open_file, open_directory = disk.open_file, disk.open_directory

    def scarce(opening: Any) -> Any:
        def open_it(path: Path, **options: Any) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(number, "too many open files", str(path))
            return int(opening(path, **options))

        return open_it

    before = log.durable_token
    with monkeypatch.context() as patch:
        patch.setattr(disk, "open_file", scarce(open_file))
        patch.setattr(disk, "open_directory", scarce(open_directory))
        log.submit()
        disk.finish()
        assert (log.failed, log.is_starved, log.durable_token) == (None, True, before)
        log.append([entry(4)])

    log.submit()
    disk.finish()

    assert (log.failed, log.is_starved, log.durable_index) == (None, False, 4)
    log.close()
    assert disk.open_files == LEDGER_FILES
    assert [found.index for found in opened(disk).entries(1, 4, 1 << 20)] == [1, 2, 3, 4]
