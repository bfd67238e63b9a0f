"""A damaged place of a compacted block costs nothing: plain, compressed or encrypted, alone or not."""

from pathlib import Path
from random import Random

import pytest

from jetraft.store.frames.format import PARITY_SUFFIX
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.stream.stream_store import StoreLimits
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, Replica

LOG = GROUP / "log-00000001"
ERASE = True
FORMS = ["compacted", "compressed", "encrypted"]


def compacted(form: str) -> tuple[Replica, Path]:
    """A replica whose first block is compacted, and that block."""
    if form == "encrypted":
        pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    options = LogOptions(
        block_bytes_first=64 << 10,
        block_bytes_max=64 << 10,
        mode=RecoveryMode.SALVAGE,
        secrets=Secrets(key=b"k" * 32) if form == "encrypted" else None,
    )
    replica = Replica(disk, options, StoreLimits(max_msgs_per_subject=1))
    replica.compressed, replica.sums = form == "compressed", form != "encrypted"
    random = Random(1)
    replica.publish([(b"keep.%d" % key, b"", b"kept number %d " % key + random.randbytes(90)) for key in range(100)])
    for _ in range(40):
        replica.publish([(b"k.%d" % key, b"", b"p" * 500) for key in range(5)])
    compact(replica)
    assert replica.log.is_compacted(1)
    first = min(name for name in disk.list_directory(LOG) if name.endswith(".blk"))
    return replica, LOG / first


def compact(replica: Replica) -> None:
    replica.plan()
    for _ in range(2):
        replica.publish([(b"k.0", b"", b"p")])
        replica.checkpoint()
    assert replica.carry_out()


def stop(replica: Replica) -> None:
    replica.log.close()
    replica.log.place.ledger.close()


@pytest.mark.parametrize("form", FORMS)
def test_a_flipped_bit_costs_nothing(form: str) -> None:
    replica, path = compacted(form)
    expected, size = replica.found(), len(replica.disk.read_whole(path))
    for at in range(0, size, size // 25):
        stop(replica)
        replica.disk.flip_bit(path, at)
        replica.start()
        assert replica.found() == expected
        assert not replica.store.lost()
        assert not replica.log.damaged_blocks


@pytest.mark.parametrize("form", FORMS)
def test_an_unreadable_sector_costs_nothing(form: str) -> None:
    replica, path = compacted(form)
    expected = replica.found()
    stop(replica)
    replica.disk.make_unreadable(path, 4096)
    replica.start()
    assert replica.found() == expected
    assert not replica.store.lost()


def test_what_is_erased_is_not_in_the_parity_and_does_not_come_back() -> None:
    replica, path = compacted("compacted")
    names = replica.disk.list_directory(LOG)
    assert path.with_suffix(PARITY_SUFFIX).name in names
    replica.command("remove", [3], ERASE)
    assert path.with_suffix(PARITY_SUFFIX).name not in replica.disk.list_directory(LOG)
    stop(replica)
    replica.disk.flip_bit(path, 2000)
    replica.start()
    assert 3 not in replica.found()
    assert not any(
        b"kept number 2 " in replica.disk.read_whole(LOG / name) for name in replica.disk.list_directory(LOG)
    )


def test_a_kill_between_the_journal_and_the_erasure_leaves_no_parity() -> None:
    replica, path = compacted("compacted")
    replica.store.remove([3], erase=ERASE)
    replica.log.submit()
    while "erase" not in replica.disk.list_directory(LOG):
        assert replica.disk.step()
    replica.disk.kill()
    assert path.with_suffix(PARITY_SUFFIX).name in replica.disk.list_directory(LOG)
    replica.start()
    assert path.with_suffix(PARITY_SUFFIX).name not in replica.disk.list_directory(LOG)


def test_parity_goes_with_its_block() -> None:
    replica, path = compacted("compacted")
    replica.command("purge", b"keep.*")
    for _ in range(2):
        replica.publish([(b"k.0", b"", b"p")])
        replica.checkpoint()
    replica.restart()
    names = replica.disk.list_directory(LOG)
    assert path.name not in names
    blocks = {name.removesuffix(".blk") for name in names if name.endswith(".blk")}
    assert {name.removesuffix(PARITY_SUFFIX) for name in names if name.endswith(PARITY_SUFFIX)} <= blocks
