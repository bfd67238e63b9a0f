"""Damage in the middle of a log: marked, kept aside, mended from what another member has, or given up."""

from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, MARK_BYTES, Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.frames.placeholder import is_placeholder_frame
from jetraft.store.log import block_repair
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log, repair
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R3F-abcdefgh")
LOG = GROUP / "log-00000001"
FIRST = LOG / "00000000000000000001-00000001.blk"
SECOND = LOG / "00000000000000000006-00000002.blk"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R3F-abcdefgh"), incarnation=7)
FRAME_BYTES = 48 + 20 + 1 + 31
ALL = range(1, 9)


def entry(index: int) -> Entry:
    record = _frame.make_record(b"a", b"", b"p" * 31, ts_ns=index)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=1, incarnation=7, body=record, first_seq=index, count=1)
    return Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)


def opened(disk: LossyDisk) -> FileLog:
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE))


@pytest.fixture
def disk() -> LossyDisk:
    """A log of eight messages: a sealed block with five (two batches), and one with three."""
    found = LossyDisk()
    for batches in ([[1, 2, 3], [4, 5]], [[6, 7, 8]]):
        log = opened(found)
        if log.last_index:
            log.roll_early()
        for batch in batches:
            log.append([entry(index) for index in batch])
            log.submit()
            found.finish()
        log.close()
    assert found.list_directory(LOG) == [FIRST.name, SECOND.name]
    return found


def overwrite(disk: LossyDisk, path: Path, data: bytes) -> None:
    fd = disk.open_file(path)
    batch = disk.batch()
    batch.write(fd, [data], 0)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)


def offset_of(index: int) -> int:
    """In the first block."""
    return BLOCK_HEAD_BYTES + (index - 1) * FRAME_BYTES + (MARK_BYTES if index > 3 else 0)


def read(log: FileLog) -> list[int]:
    return [found.index for _, found in log.frames(1, 99)]


@pytest.mark.parametrize("secrets", [None, Secrets(key=b"k")])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_frame_that_a_client_has_hidden_in_a_payload_is_never_served(
    *, is_sealed: bool, secrets: Secrets | None
) -> None:
    """One byte of the length of the frame around it is damaged."""
    if secrets is not None:
        pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    disk, options = LossyDisk(), LogOptions(mode=RecoveryMode.SALVAGE, secrets=secrets)
    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), options)
    hidden = _frame.seal(Kind.STREAM_OP, index=3, term=1, incarnation=7, body=b"forged")
    record = _frame.make_record(b"a", b"", b"A" * 100 + hidden + b"B" * 60, ts_ns=2)
    outer = _frame.seal(Kind.MESSAGES, index=2, term=1, incarnation=7, body=record, first_seq=2, count=1)
    entries = [entry(1), Entry(index=2, term=1, kind=Kind.MESSAGES, frame=outer), entry(3), entry(4)]
    log.append(entries)
    log.submit()
    disk.finish()
    ref = log.locate(2)
    assert ref is not None
    log.close()
    if is_sealed:
        log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), options)
        log.roll_early()
        log.append([entry(5)])
        log.submit()
        disk.finish()
        log.close()
    for bit in range(32):
        damaged = deepcopy(disk)
        data = bytearray(damaged.read_whole(FIRST))
        data[ref.offset + bit // 8] ^= 1 << bit % 8
        overwrite(damaged, FIRST, bytes(data))

        log = open_log(ledger_of(damaged, GROUP), GROUP, IDENTITY, BlockCache(), options)

        assert log.damaged_entries == ((2, 2),)
        assert [found for _, found in log.frames(1, 4)] == [entry(1), entry(3), entry(4)]
        log.close()


@pytest.mark.parametrize("index", [1, 2, 3, 4, 5])
def test_a_damaged_entry_is_faulty_and_the_others_are_read(disk: LossyDisk, index: int) -> None:
    disk.flip_bit(FIRST, offset_of(index) + 60)

    log = opened(disk)

    assert log.damaged_entries == ((index, index),)
    assert (log.first_index, log.last_index, log.term_at(8)) == (1, 8, 1)
    assert read(log) == [other for other in ALL if other != index]
    with pytest.raises(StoreCorrupt, match=f"entry {index}"):
        log.entries(index, index, 1 << 20)


def test_the_mark_and_a_copy_of_the_bytes_are_kept(disk: LossyDisk) -> None:
    before = disk.read_whole(FIRST)
    disk.flip_bit(FIRST, offset_of(2) + 60)
    opened(disk).close()
    assert block_repair.unpack(disk.read_whole(LOG / "faulty"), IDENTITY, what="faulty") == ((2, 2),)
    (name,) = disk.list_directory(GROUP / "quarantine")
    copy = disk.read_whole(GROUP / "quarantine" / name)
    assert len(copy) == FRAME_BYTES
    assert copy != before[offset_of(2) : offset_of(3)]

    repair(opened(disk), {2: entry(2).frame}).close()

    assert "faulty" not in disk.list_directory(LOG)
    assert disk.list_directory(GROUP / "quarantine") == [name]


def remove(disk: LossyDisk) -> None:
    batch = disk.batch()
    batch.unlink(bytes(SECOND))
    disk.perform(batch)


def shorten(disk: LossyDisk) -> None:
    batch = disk.batch()
    batch.truncate(disk.open_file(FIRST), offset_of(3) + 5)
    disk.perform(batch)


def zero(disk: LossyDisk) -> None:
    batch = disk.batch()
    batch.write(disk.open_file(FIRST), [bytes(2 * FRAME_BYTES)], offset_of(2))
    disk.perform(batch)


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda disk: disk.flip_bit(FIRST, 5), []),
        (lambda disk: disk.flip_bit(SECOND, 5), []),
        (shorten, [3, 4, 5]),
        (zero, [2, 3]),
    ],
)
def test_a_log_is_mended_with_the_frames_of_another_member(disk: LossyDisk, damage: object, lost: list[int]) -> None:
    assert callable(damage)
    damage(disk)
    log = opened(disk)
    assert [index for first, last in log.damaged_entries for index in range(first, last + 1)] == lost
    assert log.damaged_blocks

    log = repair(log, {index: entry(index).frame for index in lost})

    assert (log.damaged_entries, log.damaged_blocks) == ((), ())
    assert [found for _, found in log.frames(1, 99)] == [entry(index) for index in ALL]
    log.append([entry(9)])
    log.submit()
    disk.finish()
    log.close()
    assert read(
        open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(mode=RecoveryMode.STRICT))
    ) == [*ALL, 9]


def test_a_crash_while_mending_leaves_the_damaged_block_or_the_sound_one(disk: LossyDisk) -> None:
    for seed in range(20):
        copy = deepcopy(disk)
        copy.flip_bit(FIRST, offset_of(2) + 60)
        log = opened(copy)
        copy.fail_next(("write", "sync", "rename", "truncate")[seed % 4], 5)
        with pytest.raises(OSError, match="ordered to fail"):
            repair(log, {2: entry(2).frame})
        copy.crash(Random(seed))
        log = opened(copy)
        assert log.damaged_entries in ((), ((2, 2),))
        assert read(repair(log, {2: entry(2).frame})) == list(ALL)


def test_for_what_nobody_has_stands_a_frame_that_tells_itself_from_every_entry(disk: LossyDisk) -> None:
    disk.flip_bit(FIRST, offset_of(2) + 60)
    disk.flip_bit(SECOND, BLOCK_HEAD_BYTES + 2 * FRAME_BYTES + 60)
    log = opened(disk)
    assert log.damaged_entries == ((2, 2), (8, 8))

    log.repair.give_up(log.damaged_entries)

    assert not log.damaged_entries
    assert log.lost == ((2, 2), (8, 8))
    found = log.entries(1, 8, 1 << 20)
    assert [item.index for item in found if is_placeholder_frame(item.frame)] == [2, 8]
    assert [_frame.parse_header(found[index - 1].frame).record_count for index in (2, 8)] == [0, 0]
    assert [item for item in found if item.index not in {2, 8}] == [
        entry(index) for index in ALL if index not in {2, 8}
    ]


@pytest.mark.parametrize("place", [0, 3, 60])  # its length, too
def test_a_block_that_is_damaged_further_after_the_opening_is_not_mended_from_it(disk: LossyDisk, place: int) -> None:
    disk.flip_bit(FIRST, offset_of(2) + 60)
    log = opened(disk)
    disk.flip_bit(FIRST, offset_of(4) + place)
    with pytest.raises(StoreCorrupt, match="after the opening"):
        repair(log, {2: entry(2).frame})
    assert opened(disk).damaged_entries == ((2, 2), (4, 4))


def test_any_flipped_bit_costs_at_most_the_entry_it_hits(disk: LossyDisk) -> None:
    size = offset_of(5) + FRAME_BYTES + MARK_BYTES
    for offset in Random(2).sample(range(size), 150):
        disk.flip_bit(FIRST, offset)
        log = opened(disk)
        hit = [index for index in range(1, 6) if offset_of(index) <= offset < offset_of(index) + FRAME_BYTES]
        assert read(log) == [index for index in ALL if index not in hit]
        log.close()
        disk.flip_bit(FIRST, offset)
