"""A page, the end or the whole of a block is lost after everything in it was durable: damage, never an early end.

Nothing in a block says that it was there at all, so an opening has to know it from elsewhere. Two cases: entries that a
new leader cut off must not come back when the block that replaced them is lost, and a log whose only block is lost must
not look like one that never began.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log, repair
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState, StoreError
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.lossy_tree import LossyDirectory, LossyFile
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R3F-abcdefgh.7")
LOG = GROUP / "log-00000001"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R3F-abcdefgh"), incarnation=7)
SALVAGE = LogOptions(mode=RecoveryMode.SALVAGE)
PAGE_BYTES = 4096

Damage = Callable[[LossyDirectory, str], None]


def file_of(directory: LossyDirectory, name: str) -> LossyFile:
    found = directory.names[name]
    assert isinstance(found, LossyFile)
    return found


def zero_first_page(directory: LossyDirectory, name: str) -> None:
    file_of(directory, name).change(0, bytes(PAGE_BYTES))


def cut_in_head(directory: LossyDirectory, name: str) -> None:
    file_of(directory, name).change(64, None)


def cut_behind_head(directory: LossyDirectory, name: str) -> None:
    file_of(directory, name).change(200, None)


def empty(directory: LossyDirectory, name: str) -> None:
    file_of(directory, name).change(0, None)


def delete(directory: LossyDirectory, name: str) -> None:
    directory.remove(name)


def flip_in_head(directory: LossyDirectory, name: str) -> None:
    file_of(directory, name).change(20, b"\xff")


def entry(index: int, term: int, tag: bytes) -> Entry:
    body = _frame.make_record(b"k", b"", tag, ts_ns=index)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=term, incarnation=7, body=body, first_seq=index, count=1)
    return Entry(index=index, term=term, kind=Kind.MESSAGES, frame=frame)


def opened(disk: LossyDisk) -> FileLog:
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), SALVAGE)


def append(disk: LossyDisk, log: FileLog, *entries: Entry) -> None:
    log.append(list(entries))
    log.submit()
    disk.finish()
    assert log.durable_index == entries[-1].index


def damage_block(disk: LossyDisk, damage: Damage, *, first_index: int) -> None:
    """What was fsynced long ago changes on the device while no process runs."""
    directory = disk._directory(LOG)
    (name,) = (name for name in directory.names if name.startswith(f"{first_index:020}") and name.endswith(".blk"))
    damage(directory, name)
    for node in directory.names.values():
        node.sync()
    directory.sync()


def readable(log: FileLog) -> dict[int, tuple[int, bytes]]:
    """Index to term and payload of what the log gives out."""
    found = {}
    faulty = {index for first, last in log.damaged_entries for index in range(first, last + 1)}
    for _, item in log.frames(1, log.last_index):
        if item.index not in faulty:
            found[item.index] = (item.term, _frame.records(item.frame)[0][4])
    return found


@pytest.mark.parametrize(
    "damage",
    [
        zero_first_page,
        cut_in_head,
        delete,
        flip_in_head,
    ],
)
def test_entries_that_were_cut_off_do_not_come_back_when_the_block_that_replaced_them_is_damaged(
    damage: Damage,
) -> None:
    disk = LossyDisk()
    log = opened(disk)
    append(disk, log, *(entry(index, 1, b"OLD") for index in range(1, 6)))
    log.cut_from(4)  # 4 and 5 of term 1 were never committed
    append(disk, log, entry(4, 2, b"NEW"), entry(5, 2, b"NEW"))
    log.close()
    log = opened(disk)
    log.roll_early()
    append(disk, log, entry(6, 2, b"NEW"))
    log.close()

    damage_block(disk, damage, first_index=4)

    try:
        log = opened(disk)
    except StoreError:
        return  # not served is right too: nothing wrong is given out
    found = readable(log)
    for index in (4, 5):
        assert found.get(index, (2, b"NEW")) == (2, b"NEW"), "an entry that was cut off is back"
    assert log.last_index >= 6, "the end of the log moved back"
    missing = [index for index in range(1, 7) if index not in found]
    assert not missing or log.damaged_entries or log.lost, "entries are gone and nothing says so"


@pytest.mark.parametrize(
    "damage",
    [
        zero_first_page,
        cut_behind_head,
        empty,
        delete,
        flip_in_head,
    ],
)
def test_a_log_that_has_lost_its_only_block_does_not_look_new(damage: Damage) -> None:
    disk = LossyDisk()
    log = opened(disk)
    log.set_hard_state(HardState(term=3, vote=NodeId("AAAAAAAA")))
    append(disk, log, *(entry(index, 3, b"x") for index in range(1, 9)))
    log.close()

    damage_block(disk, damage, first_index=1)

    try:
        log = opened(disk)
    except StoreError:
        return  # not served is right too
    assert log.damaged_entries or log.lost or len(readable(log)) == 8, (
        "eight durable entries are gone and nothing says so"
    )


@pytest.mark.parametrize("damage", [zero_first_page, cut_behind_head, empty, delete])
def test_how_many_entries_are_lost_is_known_when_the_floor_was_noted(damage: Damage) -> None:
    disk = LossyDisk()
    log = opened(disk)
    append(disk, log, *(entry(index, 3, b"x") for index in range(1, 9)))
    assert log.note_floor()
    assert not log.note_floor()
    disk.finish()
    log.close()

    damage_block(disk, damage, first_index=1)

    log = opened(disk)
    assert log.damaged_entries[-1][1] >= 8


def test_a_lost_last_page_is_damage_when_the_floor_was_noted() -> None:
    """A write that never reached the device: zeros, where frame and mark of the last batch were."""
    disk = LossyDisk()
    log = opened(disk)
    append(disk, log, *(entry(index, 3, b"x" * 500) for index in range(1, 9)))
    append(disk, log, entry(9, 3, b"x" * PAGE_BYTES))
    log.note_floor()
    disk.finish()
    place = log.locate(9)
    assert place is not None
    log.close()

    def zero_last_pages(directory: LossyDirectory, name: str) -> None:
        file_of(directory, name).change(place.offset, bytes(2 * PAGE_BYTES))

    damage_block(disk, zero_last_pages, first_index=1)

    assert opened(disk).damaged_entries == ((9, 9),)


def noted_to_4_of_8(disk: LossyDisk) -> None:
    """The first page of a block with eight entries is lost; the ledger has noted four."""
    log = opened(disk)
    append(disk, log, *(entry(index, 3, b"x") for index in range(1, 5)))
    assert log.note_floor()
    append(disk, log, *(entry(index, 3, b"x") for index in range(5, 9)))
    log.close()
    damage_block(disk, zero_first_page, first_index=1)


def test_how_far_a_log_went_is_not_known_when_nothing_sound_follows_the_damage() -> None:
    disk = LossyDisk()
    noted_to_4_of_8(disk)
    for _ in range(3):  # an opening leaves nothing that would prove an end
        log = opened(disk)
        assert (log.damaged_entries, log.repair.is_end_unknown, log.repair.end_known) == (((1, 4),), True, 4)
        log.close()


def test_a_mark_behind_the_damage_proves_the_end() -> None:
    disk = LossyDisk()
    log = opened(disk)
    append(disk, log, *(entry(index, 3, b"x" * 100) for index in range(1, 9)))
    place = log.locate(8)
    assert place is not None
    log.close()
    damage_block(disk, lambda directory, name: file_of(directory, name).change(place.offset, b"xx"), first_index=1)

    log = opened(disk)

    assert (log.damaged_entries, log.repair.is_end_unknown) == (((8, 8),), False)


def test_an_end_that_others_know_counts_until_the_log_is_mended() -> None:
    disk = LossyDisk()
    noted_to_4_of_8(disk)
    log = opened(disk)
    log.close()

    log = log.reopen(end_index=8)
    assert (log.damaged_entries, log.repair.end_known) == (((1, 8),), 4)
    assert not log.note_floor(), "what may have been there is not noted as if it had been"
    log.close()
    log = log.reopen(end_index=6)
    assert log.damaged_entries == ((1, 6),)
    log = repair(log, {index: entry(index, 3, b"x").frame for index in range(1, 7)})
    log.forget_end()

    assert (log.last_index, log.damaged_entries, log.repair.is_end_unknown) == (6, (), False)
    log.cut_from(3)
    append(disk, log, entry(3, 4, b"y"))
    log.close()
    log = log.reopen()
    assert (log.last_index, log.damaged_entries) == (3, ())


def test_a_cut_takes_the_floor_back() -> None:
    disk = LossyDisk()
    log = opened(disk)
    append(disk, log, *(entry(index, 1, b"OLD") for index in range(1, 9)))
    log.note_floor()
    disk.finish()
    log.cut_from(4)
    append(disk, log, entry(4, 2, b"NEW"))
    append(disk, log, entry(5, 2, b"NEW"))
    assert log.note_floor(), "though it was further before"
    log.close()

    log = opened(disk)

    assert (log.last_index, log.damaged_entries) == (5, ())
