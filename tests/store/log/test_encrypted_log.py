"""A log with a key: nothing that a client sent is readable on disk, all else is as without, and keys can change."""

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import settings

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.cipher import CipherKind
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.erasure import erased
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log, repair
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.scrub import verify
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState, StoreCorrupt, StoreRefused
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of
from tests.store.log.test_log_model import FileLogModel

pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")

GROUP = Path("/groups/S-R1F-abcdefgh")
OTHER = Path("/groups/S-R1F-other")
OTHER_IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-other"), incarnation=7)
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
OLD = Secrets(key=b"old", cipher=CipherKind.AES)
NEW = Secrets(key=b"new", prev_key=b"old")
SECRET = b"a secret that nobody else may read"


class PowerCutError(Exception):
    """The machine is off."""


class DyingDisk(LossyDisk):
    """Loses power before an operation that is counted down to."""

    operations_left = 1 << 30

    def _operate(self, name: str, arguments: tuple[object, ...]) -> None:
        if self.operations_left == 0:
            raise PowerCutError
        self.operations_left -= 1
        super()._operate(name, arguments)


class EncryptedLogModel(FileLogModel):
    """Every rule of the log in files, with cuts, crashes, checkpoints and trims, when there is a key."""

    options = LogOptions(block_bytes_first=1024, block_bytes_max=4096, secrets=Secrets(key=b"k"))


TestEncryptedLog = EncryptedLogModel.TestCase
TestEncryptedLog.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.fixture(params=CipherKind)
def secrets(request: pytest.FixtureRequest) -> Secrets:
    return Secrets(key=b"old", cipher=request.param)


@pytest.fixture
def disk() -> LossyDisk:
    return LossyDisk()


def opened(disk: LossyDisk, secrets: Secrets | None, group: Path = GROUP, **options: Any) -> FileLog:
    return open_log(ledger_of(disk, group), group, IDENTITY, BlockCache(), LogOptions(secrets=secrets, **options))


def entry(index: int, payload: bytes = SECRET) -> Entry:
    record = _frame.make_record(b"private.subject", b"NATS/1.0\r\nA: header-secret\r\n\r\n", payload, ts_ns=index)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=1, incarnation=7, body=record, first_seq=index, count=1)
    return Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)


def written(disk: LossyDisk, secrets: Secrets | None, count: int = 5, **options: Any) -> FileLog:
    log = opened(disk, secrets, **options)
    log.set_hard_state(HardState(term=1, vote=None))
    for index in range(1, count + 1):
        log.append([entry(index)])
        log.submit()
        disk.finish()
    return log


def everything(disk: LossyDisk) -> dict[Path, bytes]:
    """Every file below the group's directory."""
    found = {}
    directories = [GROUP]
    while directories:
        directory = directories.pop()
        for name in disk.list_directory(directory):
            path = directory / name
            if name.startswith(("log-", "quarantine")):
                directories.append(path)
            else:
                found[path] = disk.read_whole(path)
    return found


def test_nothing_that_a_client_sent_is_readable_on_disk(disk: LossyDisk, secrets: Secrets) -> None:
    log = written(disk, secrets)
    log.save_checkpoint(4, 1, b"members", b"state with " + SECRET)
    log.submit()
    disk.finish()
    files = everything(disk)
    assert any(path.suffix == ".blk" for path in files)
    assert any(path.suffix == ".ckpt" for path in files)
    for data in files.values():
        assert SECRET not in data
        assert b"private.subject" not in data
        assert b"header-secret" not in data


def test_entries_and_checkpoint_come_back_after_a_restart(disk: LossyDisk, secrets: Secrets) -> None:
    log = written(disk, secrets)
    log.save_checkpoint(4, 1, b"members", b"state")
    log.submit()
    disk.finish()
    log.close()

    log = opened(disk, secrets)

    assert log.entries(1, 5, 1 << 20) == [entry(index) for index in range(1, 6)]
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    assert (checkpoint.index, checkpoint.members, checkpoint.state) == (4, b"members", b"state")


@pytest.mark.parametrize("configured", [None, Secrets(key=b"wrong"), Secrets(key=b"wrong", prev_key=b"wrong too")])
def test_a_key_that_does_not_fit_is_refused_and_nothing_is_changed(disk: LossyDisk, configured: Secrets | None) -> None:
    written(disk, OLD).close()
    before = everything(disk)
    with pytest.raises(StoreRefused, match="is encrypted"):
        opened(disk, configured)
    assert everything(disk) == before
    assert opened(disk, OLD).last_index == 5


def test_the_previous_key_is_rotated_out_without_rewriting_a_block(disk: LossyDisk) -> None:
    written(disk, OLD).close()
    blocks = {path: data for path, data in everything(disk).items() if path.suffix == ".blk"}

    opened(disk, NEW).close()

    assert {path: data for path, data in everything(disk).items() if path.suffix == ".blk"} == blocks
    assert opened(disk, Secrets(key=b"new")).entries(1, 5, 1 << 20) == [entry(index) for index in range(1, 6)]
    with pytest.raises(StoreRefused, match="another key"):
        opened(disk, OLD)


@pytest.mark.parametrize("operations", range(14))
def test_a_power_cut_while_a_key_is_rotated_loses_nothing(operations: int) -> None:
    disk = DyingDisk()
    written(disk, OLD).close()
    disk.sync_names()
    disk.operations_left = operations
    with suppress(PowerCutError):
        opened(disk, NEW)
    disk.operations_left = 1 << 30
    disk.crash(Random(operations))

    log = opened(disk, NEW)

    assert log.entries(1, 5, 1 << 20) == [entry(index) for index in range(1, 6)]
    assert disk.read_whole(GROUP / "key.0") == disk.read_whole(GROUP / "key.1")


@pytest.mark.parametrize("operations", range(14))
def test_a_power_cut_while_a_key_is_made_leaves_a_log_that_can_be_started(operations: int) -> None:
    disk = DyingDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    disk.operations_left = operations
    with suppress(PowerCutError):
        opened(disk, OLD)
    disk.operations_left = 1 << 30
    disk.crash(Random(operations))

    log = written(disk, OLD)

    assert log.entries(1, 5, 1 << 20) == [entry(index) for index in range(1, 6)]


def test_one_damaged_copy_of_the_data_key_is_mended_from_the_other(disk: LossyDisk) -> None:
    written(disk, OLD).close()
    sound = disk.read_whole(GROUP / "key.1")
    disk.flip_bit(GROUP / "key.0", 100)
    opened(disk, OLD).close()
    assert disk.read_whole(GROUP / "key.0") == sound


def test_with_both_copies_damaged_the_log_is_not_opened_and_not_changed(disk: LossyDisk) -> None:
    written(disk, OLD).close()
    disk.flip_bit(GROUP / "key.0", 100)
    disk.flip_bit(GROUP / "key.1", 100)
    before = everything(disk)
    with pytest.raises(StoreCorrupt, match=r"key\.0.*key\.1"):
        opened(disk, OLD)
    assert everything(disk) == before


@pytest.mark.parametrize("sealed", ["blocks", "checkpoint"])
def test_a_log_whose_key_files_are_both_missing_gets_no_new_key(disk: LossyDisk, sealed: str) -> None:
    log = opened(disk, OLD)
    log.set_hard_state(HardState(term=1, vote=None))
    log.append([entry(1)])
    log.save_checkpoint(1, 1, b"members", b"state")
    log.submit()
    disk.finish()
    log.close()
    for name in disk.list_directory(GROUP):
        if name.startswith("key."):
            disk.unlink(GROUP / name)
    directory = GROUP / "log-00000001"
    for name in disk.list_directory(directory):
        if sealed == "checkpoint" and name.endswith(".blk"):
            disk.unlink(directory / name)
    with pytest.raises(StoreCorrupt, match="both files of its key are missing"):
        opened(disk, OLD)
    assert not any(name.startswith("key.") for name in disk.list_directory(GROUP))


def test_a_log_without_encryption_is_read_on_and_continued_with_it(disk: LossyDisk) -> None:
    written(disk, None, 2).close()
    log = opened(disk, OLD)
    log.append([entry(3, b"new " + SECRET)])
    log.submit()
    disk.finish()
    log.close()
    assert not any(b"new " + SECRET in data for data in everything(disk).values())
    assert opened(disk, OLD).entries(1, 3, 1 << 20) == [entry(1), entry(2), entry(3, b"new " + SECRET)]


def test_a_frame_that_was_moved_or_changed_with_its_checksum_does_not_open(disk: LossyDisk) -> None:
    log = written(disk, OLD, 3)
    log.close()
    path = next(path for path in everything(disk) if path.suffix == ".blk")
    data = disk.read_whole(path)
    first, second = (log.locate(index) for index in (1, 2))
    assert first is not None
    assert second is not None
    header = _frame.parse_header(data, first.offset)
    moved = bytearray(data[first.offset : first.offset + header.length])
    moved[60] ^= 1
    moved[4:8] = _frame.crc32c(memoryview(moved)[8:]).to_bytes(4, "little")
    fd = disk.open_file(path)
    batch = disk.batch()
    batch.write(fd, [bytes(moved)], first.offset)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)
    log = opened(disk, OLD)
    with pytest.raises(StoreCorrupt, match="does not decrypt"):
        log.entries(1, 1, 1 << 20)
    assert log.entries(2, 2, 1 << 20) == [entry(2)]


def test_damage_is_found_without_the_key_and_mended_with_frames_of_others(disk: LossyDisk) -> None:
    log = written(disk, OLD, 3)
    place = log.locate(2)
    assert place is not None
    path = next(path for path in everything(disk) if path.suffix == ".blk")
    log.close()
    disk.flip_bit(path, place.offset + 60)
    damaged = opened(disk, OLD, mode=RecoveryMode.SALVAGE)
    assert damaged.damaged_entries == ((2, 2),)
    mended = repair(damaged, {2: entry(2).frame})
    assert mended.damaged_entries == ()
    assert mended.entries(1, 3, 1 << 20) == [entry(index) for index in range(1, 4)]
    assert not any(SECRET in data for data in everything(disk).values())


def test_an_erased_message_is_sealed_with_another_nonce(disk: LossyDisk) -> None:
    log = written(disk, OLD, 3)
    place = log.locate(2)
    assert place is not None
    path = next(path for path in everything(disk) if path.suffix == ".blk")
    span = slice(place.offset, place.offset + len(entry(2).frame) + 32)
    before = disk.read_whole(path)[span]
    log.erase_record(place.block, place.offset, 48)
    log.submit()
    disk.finish()
    after = disk.read_whole(path)[span]
    log.close()

    assert before[-16:-8] != after[-16:-8]  # the salt
    gone = bytes(a ^ b for a, b in zip(before, after, strict=True))
    assert SECRET not in gone  # what one key stream under both would show
    assert opened(disk, OLD).entries(2, 2, 1 << 20)[0].frame == erased(entry(2).frame, 48)


def test_an_erased_message_from_before_encryption_leaves_its_neighbours_alone(disk: LossyDisk) -> None:
    written(disk, None, 3).close()
    log = opened(disk, OLD)
    place = log.locate(2)
    assert place is not None
    log.erase_record(place.block, place.offset, 48)
    log.submit()
    disk.finish()
    log.close()
    expected = [entry(1).frame, erased(entry(2).frame, 48), entry(3).frame]
    assert [found.frame for found in opened(disk, OLD).entries(1, 3, 1 << 20)] == expected


def test_the_scrub_needs_no_key(disk: LossyDisk) -> None:
    log = written(disk, OLD, 8, block_bytes_first=512, block_bytes_max=512)
    targets = log.upkeep.scrub_targets()
    assert targets
    for target in targets:
        verify(disk, target)
    disk.flip_bit(targets[0].path, 128 + 60)
    with pytest.raises(StoreCorrupt):
        verify(disk, targets[0])


@pytest.mark.parametrize("sender", [None, OLD])
@pytest.mark.parametrize("receiver", [None, Secrets(key=b"its own")])
@pytest.mark.parametrize("piece_bytes", [100, 1 << 20])
def test_a_log_is_copied_between_members_with_and_without_keys(
    disk: LossyDisk, sender: Secrets | None, receiver: Secrets | None, piece_bytes: int
) -> None:
    source = written(disk, sender, 8, block_bytes_first=512, block_bytes_max=512)
    source.save_checkpoint(8, 1, b"", b"state")
    source.submit()
    disk.finish()
    found = source.manifest(1)
    assert found is not None
    manifest, checkpoint = found
    target = open_log(source.place.ledger, OTHER, OTHER_IDENTITY, BlockCache(), LogOptions(secrets=receiver))
    target.set_hard_state(HardState(term=1, vote=None))
    target.submit()
    disk.finish()
    staging = target.begin_install(manifest, checkpoint)
    while (wanted := staging.missing()) is not None:
        block, offset, size = wanted
        staging.put_chunk(block, offset, source.read_chunk(block, offset, min(size, piece_bytes)))
        if receiver is not None:
            assert not any(SECRET in data for data in files_below(disk, OTHER).values())
    target.close()

    copy = staging.finish()

    assert [found for _, found in copy.frames(1, 8)] == [entry(index) for index in range(1, 9)]
    assert any(SECRET in data for data in files_below(disk, OTHER).values()) == (receiver is None)


def files_below(disk: LossyDisk, group: Path) -> dict[Path, bytes]:
    found = {}
    for name in disk.list_directory(group):
        if name.startswith("log-"):
            for file in disk.list_directory(group / name):
                found[group / name / file] = disk.read_whole(group / name / file)
    return found


def test_sums_of_single_messages_are_not_asked_for_where_a_frame_can_be_opened_only_as_a_whole() -> None:
    assert not opened(LossyDisk(), Secrets(key=b"one")).sums_records
    assert opened(LossyDisk(), None).sums_records
