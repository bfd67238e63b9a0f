"""What a kill or a lost file leaves in the way of upkeep does not keep a log from opening or going on."""

from pathlib import Path

import pytest

from jetraft.store.frames.format import DAMAGED_ENTRIES_NAME, ERASE_NAME
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.scrub import verify
from jetraft.store.log.start import LogOptions
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream.stream_store import StoreLimits
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, Replica

OPTIONS = LogOptions(block_bytes_first=8192, block_bytes_max=8192, mode=RecoveryMode.SALVAGE)
ERASE = True
LOG = GROUP / "log-00000001"


@pytest.fixture
def replica() -> Replica:
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    replica = Replica(disk, OPTIONS, StoreLimits(max_msgs=200))
    replica.sums = True
    return replica


def publish(replica: Replica, count: int, size: int = 200) -> None:
    for number in range(count):
        replica.publish([(b"s.a", b"", b"message number %d " % number + bytes(size))])


def checkpoints(replica: Replica) -> list[Path]:
    return [LOG / name for name in replica.disk.list_directory(LOG) if name.endswith(".ckpt")]


def test_a_checkpoint_that_is_gone_when_it_is_to_be_removed_does_not_stop_the_log(replica: Replica) -> None:
    for _ in range(2):
        publish(replica, 3)
        replica.checkpoint()
    replica.disk.unlink(checkpoints(replica)[0])
    publish(replica, 3)
    replica.checkpoint()
    publish(replica, 3)
    assert replica.log.failed is None


def test_the_fallback_to_an_older_checkpoint_is_logged(replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        publish(replica, 3)
        replica.checkpoint()
    older, newest = checkpoints(replica)
    replica.disk.flip_bit(newest, 120)
    replica.restart()
    (line,) = {record.message for record in caplog.records if newest.name in record.message}
    assert f"at entry {int(older.stem)}, is used" in line


def test_an_erasure_that_a_kill_cut_short_is_finished_beside_an_unreadable_sector(replica: Replica) -> None:
    publish(replica, 20)
    replica.store.remove([5], erase=ERASE)
    replica.log.submit()
    while ERASE_NAME not in replica.disk.list_directory(LOG):
        assert replica.disk.step()
    (name,) = [name for name in replica.disk.list_directory(LOG) if name.endswith(".blk")]
    replica.disk.kill()
    replica.disk.make_unreadable(LOG / name, 5000)

    replica.start()

    assert ERASE_NAME not in replica.disk.list_directory(LOG)
    assert b"message number 4 " not in replica.disk.read_whole(LOG / name)
    assert 10 < len(replica.found()) < 19, "what the sector holds is lost, and nothing else"


def test_a_kill_while_the_list_of_damage_is_written_leaves_a_log_that_opens(replica: Replica) -> None:
    publish(replica, 60)
    first = next(name for name in replica.disk.list_directory(LOG) if name.endswith(".blk"))
    replica.log.close()
    replica.log.place.ledger.close()
    replica.disk.flip_bit(LOG / first, 300)
    replica.disk.create(LOG / f"{DAMAGED_ENTRIES_NAME}.tmp")
    replica.start()
    assert len(replica.found()) == 59


def test_an_unreadable_sector_that_compaction_meets_is_damage(replica: Replica) -> None:
    publish(replica, 100)
    replica.command("remove", list(range(2, 90)), not ERASE)
    replica.plan()
    for _ in range(2):
        publish(replica, 1)
        replica.checkpoint()
    first = next(name for name in replica.disk.list_directory(LOG) if name.endswith(".blk"))
    replica.disk.make_unreadable(LOG / first, 0)
    with pytest.raises(StoreCorrupt):
        replica.carry_out()


@pytest.mark.parametrize("what", ["growing block", "checkpoint"])
def test_the_scrub_reads_what_grows_and_the_checkpoints(replica: Replica, what: str) -> None:
    publish(replica, 5)
    replica.checkpoint()
    publish(replica, 5)
    targets = [each for each in replica.log.upkeep.scrub_targets() if each.is_checkpoint == (what == "checkpoint")]
    (target,) = targets
    verify(replica.disk, target)
    replica.disk.flip_bit(target.path, 250 if what == "growing block" else 100)
    with pytest.raises(StoreCorrupt):
        verify(replica.disk, target)


def test_what_is_appended_while_the_scrub_reads_is_no_damage(replica: Replica) -> None:
    publish(replica, 5)
    (target,) = replica.log.upkeep.scrub_targets()
    publish(replica, 5)
    verify(replica.disk, target)
