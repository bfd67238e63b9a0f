"""What is kept twice: whatever happens to one copy, the other is used; only when both are gone does it matter how."""

import errno
from pathlib import Path

import attrs
import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.copies import verdict
from jetraft.store.frames import _frame, keyring
from jetraft.store.frames.format import FORMAT_VERSION, FileKind, Identity, Kind, checkpoint_name, pack_envelope
from jetraft.store.frames.keyring import Secrets
from jetraft.store.inspection.inspect import inspect
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, Entry, HardState, StoreCorrupt, StoreMisplaced, StoreNewer, StoreRefused
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R1F-abcdefgh")
LOG = GROUP / "log-00000001"
BLOCK = LOG / "00000000000000000001-00000001.blk"
OLDER, NEWER = LOG / checkpoint_name(2), LOG / checkpoint_name(4)
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
FOREIGN = attrs.evolve(IDENTITY, node_id=NodeId("NOTHER00"))


def overwrite(disk: LossyDisk, path: Path, data: bytes) -> None:
    fd = disk.open_file(path)
    batch = disk.batch()
    batch.truncate(fd, 0)
    batch.write(fd, [data], 0)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)


def written(disk: LossyDisk, secrets: Secrets | None = None) -> FileLog:
    """A log of four entries with checkpoints at 2 and 4."""
    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(secrets=secrets))
    log.set_hard_state(HardState(term=1, vote=None))
    for index in range(1, 5):
        frame = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=7, body=b"body %d" % index)
        log.append([Entry(index=index, term=1, kind=Kind.NOOP, frame=frame)])
        log.submit()
        disk.finish()
        if index % 2 == 0:
            log.save_checkpoint(index, 1, b"members", b"state %d" % index)
            log.submit()
            disk.finish()
    log.close()
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(secrets=secrets))


def newer_version(monkeypatch: pytest.MonkeyPatch, kind: FileKind) -> bytes:
    monkeypatch.setattr("jetraft.store.frames.format.FORMAT_VERSION", FORMAT_VERSION + 1)
    packed = pack_envelope(kind, IDENTITY, bytes(100))
    monkeypatch.undo()
    return packed


def damaged(disk: LossyDisk, path: Path) -> bytes:
    data = bytearray(disk.read_whole(path))
    data[-1] ^= 1
    return bytes(data)


@pytest.mark.parametrize("instead", ["damage", "another kind", "another owner", "another index", "newer version"])
def test_a_newest_checkpoint_that_is_not_what_was_written_falls_to_the_older(
    monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    disk = LossyDisk()
    log = written(disk)
    data = {
        "damage": damaged(disk, NEWER),
        "another kind": disk.read_whole(BLOCK),
        "another owner": pack_envelope(FileKind.CHECKPOINT, FOREIGN, bytes(100)),
        "another index": disk.read_whole(OLDER),
        "newer version": newer_version(monkeypatch, FileKind.CHECKPOINT),
    }[instead]
    overwrite(disk, NEWER, data)

    assert log.load_checkpoint() == Checkpoint(index=2, term=1, members=b"members", state=b"state 2")


def test_a_checkpoint_that_the_device_does_not_read_falls_to_the_older() -> None:
    disk = LossyDisk()
    log = written(disk)
    disk.fail_next("read", errno.EIO)

    found = log.load_checkpoint()

    assert found is not None
    assert found.index == 2


def test_a_checkpoint_under_the_name_of_another_is_never_believed() -> None:
    disk = LossyDisk()
    log = written(disk)
    older, newer = disk.read_whole(OLDER), disk.read_whole(NEWER)
    overwrite(disk, OLDER, newer)
    overwrite(disk, NEWER, older)

    with pytest.raises(StoreCorrupt, match=r"holds the checkpoint at 2.*holds the checkpoint at 4"):
        log.load_checkpoint()


def test_checkpoints_of_which_a_newer_server_can_read_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LossyDisk()
    log = written(disk)
    overwrite(disk, OLDER, damaged(disk, OLDER))
    overwrite(disk, NEWER, newer_version(monkeypatch, FileKind.CHECKPOINT))

    with pytest.raises(StoreNewer, match=f"format version {FORMAT_VERSION + 1} is newer than {FORMAT_VERSION}"):
        log.load_checkpoint()


def test_checkpoints_that_are_all_misplaced_are_damage_only_when_one_of_them_is_damaged() -> None:
    disk = LossyDisk()
    log = written(disk)
    foreign = pack_envelope(FileKind.CHECKPOINT, FOREIGN, bytes(100))
    overwrite(disk, OLDER, foreign)
    overwrite(disk, NEWER, foreign)
    with pytest.raises(StoreRefused, match="belongs to"):
        log.load_checkpoint()
    overwrite(disk, NEWER, damaged(disk, NEWER))
    with pytest.raises(StoreCorrupt, match="belongs to"):
        log.load_checkpoint()


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([OSError(errno.EIO, "a"), OSError(errno.EIO, "b")], StoreCorrupt),
        ([OSError(errno.EIO, "a"), StoreMisplaced("b")], StoreCorrupt),
        ([StoreCorrupt("a"), StoreRefused("b")], StoreRefused),
        ([OSError(errno.EMFILE, "a"), StoreCorrupt("b")], OSError),
        ([StoreCorrupt("a"), StoreNewer("b")], StoreNewer),
        ([StoreMisplaced("a"), StoreNewer("b")], StoreNewer),
        ([StoreMisplaced("a"), StoreMisplaced("b")], StoreMisplaced),
        ([StoreMisplaced("a"), StoreRefused("b")], StoreRefused),
        ([StoreCorrupt("a"), StoreMisplaced("b")], StoreCorrupt),
    ],
)
def test_only_damage_of_all_copies_is_damage(failures: list[Exception], expected: type[Exception]) -> None:
    assert type(verdict(failures)) is expected


@pytest.mark.parametrize("name", ["key.0", "key.1"])
@pytest.mark.parametrize("instead", ["damage", "another kind", "another owner"])
def test_a_key_file_that_is_not_what_was_written_is_replaced_from_the_other(name: str, instead: str) -> None:
    pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    disk, secrets = LossyDisk(), Secrets(key=b"k")
    written(disk, secrets).close()
    sound = disk.read_whole(GROUP / name)
    data = {
        "damage": damaged(disk, GROUP / name),
        "another kind": disk.read_whole(BLOCK),
        "another owner": keyring.wrap(secrets.cipher, bytes(32), FOREIGN, secrets.key),
    }[instead]
    overwrite(disk, GROUP / name, data)

    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(secrets=secrets))

    assert [entry.index for entry in log.entries(1, 4, 1 << 20)] == [1, 2, 3, 4]
    assert disk.read_whole(GROUP / name) == sound


def test_a_key_file_that_the_device_does_not_read_is_replaced_from_the_other() -> None:
    pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    disk, secrets = LossyDisk(), Secrets(key=b"k")
    written(disk, secrets).close()
    disk.fail_next("read", errno.EIO)

    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(secrets=secrets))

    assert [entry.index for entry in log.entries(1, 4, 1 << 20)] == [1, 2, 3, 4]


def test_key_files_that_are_all_of_another_owner_are_refused_and_left_alone() -> None:
    pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    disk, secrets = LossyDisk(), Secrets(key=b"k")
    written(disk, secrets).close()
    foreign = keyring.wrap(secrets.cipher, bytes(32), FOREIGN, secrets.key)
    for name in ("key.0", "key.1"):
        overwrite(disk, GROUP / name, foreign)

    with pytest.raises(StoreRefused, match="belongs to"):
        open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(secrets=secrets))

    assert disk.read_whole(GROUP / "key.0") == disk.read_whole(GROUP / "key.1") == foreign


def test_an_inspection_finds_a_checkpoint_under_the_name_of_another(tmp_path: Path) -> None:
    memory = LossyDisk()
    written(memory).close()
    group = tmp_path / GROUP.name
    (group / LOG.name).mkdir(parents=True)
    for directory in (GROUP, LOG):
        for name in memory.list_directory(directory):
            if not name.startswith("log-"):
                (tmp_path / (directory / name).relative_to(GROUP.parent)).write_bytes(
                    memory.read_whole(directory / name)
                )
    assert not inspect(group).all_damage
    (group / LOG.name / NEWER.name).write_bytes((group / LOG.name / OLDER.name).read_bytes())

    assert any("holds the checkpoint at 2" in what for what in inspect(group).all_damage)
