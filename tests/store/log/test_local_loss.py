"""A lost message stays one lost message: the rest of its frame, block and log goes on as if nothing had happened.

A group of one member has nobody to fetch a damaged entry from. Its sound messages are salvaged in memory, and the file
stays damaged until its block is compacted or dropped (decision 127).
"""

from pathlib import Path

import pytest

from jetraft.store.frames._frame import scan
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, PARITY_SUFFIX
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.scrub import verify
from jetraft.store.log.start import LogOptions
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream.stream_store import StoreLimits
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, IDENTITY, Replica

OPTIONS = LogOptions(block_bytes_first=4096, block_bytes_max=4096, mode=RecoveryMode.SALVAGE)
PAYLOAD = b"p" * 200
ERASE = True


@pytest.fixture
def replica() -> Replica:
    """A key-value stream: an entry of four messages that stay, then others that are written again and again."""
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    replica = Replica(disk, OPTIONS, StoreLimits(max_msgs_per_subject=1))
    replica.sums = True
    replica.publish([(b"keep.%d" % key, b"", b"kept number %d" % key) for key in range(4)])
    write(replica, rounds=30)
    return replica


def write(replica: Replica, *, rounds: int) -> None:
    for _ in range(rounds):
        replica.publish([(b"k.%d" % key, b"", PAYLOAD) for key in range(3)])


def compact(replica: Replica) -> int:
    replica.plan()
    for _ in range(2):
        replica.publish([(b"k.0", b"", PAYLOAD)])
        replica.checkpoint()
    return replica.carry_out()


def block_with(replica: Replica, content: bytes) -> Path:
    (name,) = [name for name, data in replica.block_files().items() if content in data]
    return replica.log.place.log / name


def lose(replica: Replica, content: bytes) -> None:
    """Flip a bit of a message while the server is down."""
    path = block_with(replica, content)
    replica.log.close()
    replica.log.place.ledger.close()
    parity = path.with_suffix(PARITY_SUFFIX)
    if parity.name in replica.disk.list_directory(path.parent):  # lost as well
        replica.disk.unlink(parity)
    replica.disk.flip_bit(path, replica.disk.read_whole(path).index(content) + 2)
    replica.start()


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_sound_message_beside_a_lost_one_can_be_erased(replica: Replica, *, is_compacted: bool) -> None:
    if is_compacted:
        assert compact(replica)
        assert replica.log.is_compacted(1)
    lose(replica, b"kept number 1")
    assert replica.store.lost() == [(2, 2)]

    replica.command("remove", [3], ERASE)

    assert not any(b"kept number 2" in data for data in replica.block_files().values())
    for _ in range(2):
        assert sorted(seq for seq in replica.found() if seq <= 4) == [1, 4]
        assert replica.store.lost() == [(2, 2)]
        replica.restart()


def test_the_frame_that_replaces_a_damaged_one_is_written_where_that_one_was(replica: Replica) -> None:
    lose(replica, b"kept number 1")
    replica.command("remove", [3], ERASE)
    data = replica.disk.read_whole(replica.log.place.log / next(iter(replica.block_files())))
    walk = scan(data, offset=BLOCK_HEAD_BYTES, incarnation=IDENTITY.incarnation, next_index=1, term=0)
    assert list(walk.offsets[:3]) == [replica.log.locate(index).offset for index in (1, 2, 3)]  # type: ignore[union-attr]


def test_a_log_with_a_lost_message_is_compacted_and_its_dead_blocks_go(replica: Replica) -> None:
    lose(replica, b"kept number 1")
    blocks = replica.log.statistics().blocks
    write(replica, rounds=30)

    assert compact(replica) > 5

    assert replica.log.statistics().blocks <= blocks
    assert sorted(seq for seq in replica.found() if seq <= 4) == [1, 3, 4]


def test_compacting_the_block_of_a_lost_message_ends_the_damage_and_keeps_the_list(replica: Replica) -> None:
    lose(replica, b"kept number 1")
    assert replica.log.lost
    compact(replica)
    assert not replica.log.lost
    assert replica.store.lost() == [(2, 2)]
    expected = replica.found()
    for _ in range(2):
        replica.restart()
        assert not replica.log.damaged_blocks
        assert replica.found() == expected
        assert replica.store.lost() == [(2, 2)]
        with pytest.raises(StoreCorrupt):
            replica.store.load(2)


def test_only_the_damaged_block_is_left_out_of_the_scrub(replica: Replica) -> None:
    whole = {target.path for target in replica.log.upkeep.scrub_targets()}
    path = block_with(replica, b"kept number 1")
    lose(replica, b"kept number 1")
    targets = replica.log.upkeep.scrub_targets()
    assert {target.path for target in targets} >= whole - {path}
    assert path not in {target.path for target in targets}
    for target in targets:
        verify(replica.disk, target)
