"""A group of format 2, before there was a ledger, is taken over when it is opened; and what a lost ledger leaves."""

import struct
from pathlib import Path
from random import Random

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import FileKind, Identity, Kind, pack_envelope
from jetraft.store.ledger.ledger import NAMES, Ledger
from jetraft.store.ledger.legacy import HARD_STATE_NAMES, TRIMMED_NAME
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState, HardStateLost
from tests.doubles.lossy_disk import LossyDisk

ROOT = Path("/store")
GROUP = ROOT / "groups" / "S-R1F-abcdefgh.7"
LOG = GROUP / "log-00000001"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
KEY = (IDENTITY.group_id, IDENTITY.incarnation)
VOTED = HardState(term=5, vote=NodeId("AAAAAAAA"))
SMALL = LogOptions(block_bytes_first=600, block_bytes_max=600, mode=RecoveryMode.SALVAGE)


def entry(index: int) -> Entry:
    record = _frame.make_record(b"a", b"", b"p" * 100, ts_ns=index)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=2, incarnation=7, body=record, first_seq=index, count=1)
    return Entry(index=index, term=2, kind=Kind.MESSAGES, frame=frame)


def opened(disk: LossyDisk, ledger: Ledger | None = None, *, accept: bool = False) -> FileLog:
    options = LogOptions(mode=RecoveryMode.SALVAGE, accept_lost_hard_state=accept)
    return open_log(ledger or Ledger.open(disk, ROOT), GROUP, IDENTITY, BlockCache(), options)


def put(disk: LossyDisk, path: Path, content: bytes) -> None:
    fd = disk.open_file(path, create=True)
    batch = disk.batch()
    batch.write(fd, [content], 0)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)


@pytest.fixture
def disk() -> LossyDisk:
    """Blocks of a few entries each, of which the first were trimmed; two checkpoints; term and vote in small files."""
    found = LossyDisk()
    ledger = Ledger.open(found, ROOT)
    log = open_log(ledger, GROUP, IDENTITY, BlockCache(), SMALL)
    for index in range(1, 21):
        log.append([entry(index)])
        log.submit()
        found.finish()
    for index in (9, 12):
        log.save_checkpoint(index, 2, b"m", b"s%d" % index)
        log.submit()
        found.finish()
    assert log.trim(10, 9)
    log.submit()
    found.finish()
    state = ledger.state(KEY)
    assert state is not None
    log.close()
    ledger.close()
    trimmed = b"".join(struct.pack("<QQ", *bounds) for bounds in state.dropped)
    put(found, LOG / TRIMMED_NAME, pack_envelope(FileKind.TRIMMED, IDENTITY, trimmed))
    for number, name in enumerate(HARD_STATE_NAMES):
        body = struct.pack("<QQ16s", 8 + number, VOTED.term, b"AAAAAAAA")
        put(found, GROUP / name, pack_envelope(FileKind.HARD_STATE, IDENTITY, body))
    remove(found, *(ROOT / name for name in NAMES))
    found.sync_names()
    return found


def remove(disk: LossyDisk, *paths: Path) -> None:
    batch = disk.batch()
    for path in paths:
        batch.unlink(bytes(path))
    disk.perform(batch)


def check(log: FileLog) -> None:
    assert log.hard_state == VOTED
    assert (log.last_index, log.damaged_entries) == (20, ())
    assert log.first_index > 4
    assert list(log.entries(log.first_index, 20, 1 << 20))[-1] == entry(20)
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.state == b"s12"


def test_a_group_of_format_2_is_taken_over_and_its_small_files_go(disk: LossyDisk) -> None:
    log = opened(disk)
    check(log)
    log.submit()
    disk.finish()
    log.close()
    assert not {*HARD_STATE_NAMES, TRIMMED_NAME} & {*disk.list_directory(GROUP), *disk.list_directory(LOG)}
    check(opened(disk))


@pytest.mark.parametrize("steps", range(12))
def test_a_crash_while_it_is_taken_over_changes_nothing(disk: LossyDisk, steps: int) -> None:
    log = opened(disk)
    log.append([entry(21)])
    log.submit()
    for _ in range(steps):
        disk.step()
    disk.crash(Random(steps))

    log = opened(disk)

    assert log.hard_state == VOTED
    assert log.last_index in {20, 21}
    assert log.damaged_entries == ()


def test_one_copy_of_term_and_vote_is_enough_and_none_is_lost(disk: LossyDisk) -> None:
    disk.flip_bit(GROUP / HARD_STATE_NAMES[1], 90)
    check(opened(disk))
    disk.kill()
    disk.flip_bit(GROUP / HARD_STATE_NAMES[0], 90)
    with pytest.raises(HardStateLost):
        opened(disk)


def test_without_a_ledger_a_lone_member_goes_on_with_what_its_files_prove(disk: LossyDisk) -> None:
    log = opened(disk)
    log.submit()
    disk.finish()
    log.close()
    disk.kill()
    remove(disk, *(ROOT / name for name in NAMES))
    lost = Ledger.open(disk, ROOT, [KEY])
    with pytest.raises(HardStateLost):
        opened(disk, lost)

    log = opened(disk, lost, accept=True)

    assert log.hard_state_lost
    assert log.hard_state == HardState(term=2, vote=None)
    assert (log.last_index, log.damaged_entries) == (20, ())
    log.submit()
    disk.finish()
    log.close()
    disk.kill()
    assert opened(disk).hard_state == HardState(term=2, vote=None)  # the ledger has it again


def test_without_a_ledger_no_block_is_taken_for_one_that_was_never_finished(disk: LossyDisk) -> None:
    log = opened(disk)
    log.submit()
    disk.finish()
    log.close()
    disk.kill()
    newest = max(name for name in disk.list_directory(LOG) if name.endswith(".blk"))
    for offset in (3, 20, 60):
        disk.flip_bit(LOG / newest, offset)
    remove(disk, *(ROOT / name for name in NAMES))

    log = opened(disk, Ledger.open(disk, ROOT, [KEY]), accept=True)

    assert newest in disk.list_directory(LOG)
    assert log.last_index == 20


def test_a_ledger_that_was_put_back_in_both_copies_is_found_by_the_blocks_that_it_does_not_know() -> None:
    disk = LossyDisk()
    ledger = Ledger.open(disk, ROOT)
    log = open_log(ledger, GROUP, IDENTITY, BlockCache(), SMALL)
    log.append([entry(1)])
    log.submit()
    disk.finish()
    old = {name: disk.read_whole(ROOT / name) for name in NAMES}
    for index in range(2, 12):
        log.append([entry(index)])
        log.submit()
        disk.finish()
    log.close()
    ledger.close()
    disk.kill()
    for name, content in old.items():
        put(disk, ROOT / name, content.ljust(len(disk.read_whole(ROOT / name)), b"\0"))
    blocks = [name for name in disk.list_directory(LOG) if name.endswith(".blk")]

    with pytest.raises(HardStateLost):
        opened(disk)
    log = opened(disk, accept=True)

    assert log.last_index == 11
    assert [name for name in disk.list_directory(LOG) if name.endswith(".blk")] == blocks
