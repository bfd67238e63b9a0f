"""Messages that are damaged on every member: their sequences are not used again, reading them is an error."""

from pathlib import Path

import pytest

from jetraft.store import _frame
from jetraft.store.block_cache import BlockCache
from jetraft.store.format import BLOCK_HEAD_BYTES, Identity, Kind
from jetraft.store.log import FileLog, LogOptions
from jetraft.store.log_open import open_log
from jetraft.store.lossy_disk import LossyDisk
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, StoreCorrupt
from jetraft.store.recovery import RecoveryMode
from jetraft.store.stream_store import StoreLimits, StreamStore

GROUP = Path("/groups/S-R1F-abcdefgh")
BLOCK = GROUP / "log-00000001" / "00000000000000000001-00000001.blk"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
FRAME_BYTES = 48 + 2 * (20 + 1 + 9)
ENTRIES = 6  # of two messages each


def entry(index: int) -> Entry:
    body = [_frame.make_record(b"a", b"", b"message %d" % number, ts_ns=index) for number in (0, 1)]
    frame = _frame.seal(Kind.MESSAGES, index=index, term=1, incarnation=7, body=body, first_seq=2 * index - 1, count=2)
    return Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)


def opened(disk: LossyDisk) -> FileLog:
    return open_log(disk, GROUP, IDENTITY, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE))


def damaged(indexes: list[int], *, checkpoint: int, deleted: list[int] | None = None) -> StreamStore:
    """The store after a restart on a log whose entries `indexes` are damaged, from a checkpoint or (0) from nothing."""
    disk = LossyDisk()
    log = opened(disk)
    store = StreamStore(log, StoreLimits())
    state = b""
    for index in range(1, ENTRIES + 1):
        log.append([entry(index)])
        store.apply_messages(entry(index))
        if index == checkpoint:
            store.remove(deleted or [])
            state = store.snapshot()
    log.submit()
    disk.finish()
    log.close()
    for index in indexes:
        disk.flip_bit(BLOCK, BLOCK_HEAD_BYTES + (index - 1) * FRAME_BYTES + 60)
    log = opened(disk)
    log.give_up(log.faulty)
    store = StreamStore(log, StoreLimits())
    if checkpoint:
        store.restore(state)
    for found in log.entries(checkpoint + 1, ENTRIES, 1 << 20):
        if found.kind == Kind.MESSAGES:
            store.apply_messages(found)
    return store


@pytest.mark.parametrize("checkpoint", [0, 2, 4, 5])
@pytest.mark.parametrize("index", [1, 2, 3, 4, 5])
def test_lost_messages_keep_their_sequences_and_the_rest_is_read(index: int, checkpoint: int) -> None:
    store = damaged([index], checkpoint=checkpoint)

    gone = [2 * index - 1, 2 * index]
    assert store.lost() == [tuple(gone)]
    assert (store.messages, store.last_seq) == (2 * ENTRIES - 2, 2 * ENTRIES)
    for seq in range(1, 2 * ENTRIES + 1):
        if seq in gone:
            with pytest.raises(StoreCorrupt, match=f"sequence {seq}"):
                store.load(seq)
        else:
            message = store.load(seq)
            assert message is not None
            assert message.payload == b"message %d" % ((seq + 1) % 2)
    assert store.load(99) is None
    assert store.state.lost is not None
    assert store.state.lost.msgs == tuple(gone)


def test_sequences_go_on_above_a_damaged_end() -> None:
    store = damaged([ENTRIES], checkpoint=0)
    assert store.last_seq >= 2 * ENTRIES
    assert store.is_lost(2 * ENTRIES)
    assert store.messages == 2 * ENTRIES - 2


def test_what_was_deleted_is_not_lost() -> None:
    store = damaged([2], checkpoint=4, deleted=[3, 5])
    assert store.lost() == [(4, 4)]
    assert store.load(5) is None
    assert store.load(3) is None


def test_a_purge_ends_the_loss() -> None:
    store = damaged([2], checkpoint=4)
    store.purge(below_seq=4)
    assert store.lost() == [(4, 4)]
    store.purge()
    assert store.lost() == []
    assert store.state.lost is None


def cut_short(keep: int, disk: LossyDisk) -> FileLog:
    """A log of six durable entries whose block has lost its end behind entry `keep`, opened again."""
    log = opened(disk)
    for index in range(1, ENTRIES + 1):
        log.append([entry(index)])
        log.submit()
        disk.finish()
    log.close()
    data = disk.read_whole(BLOCK)
    place = BLOCK_HEAD_BYTES + keep * (FRAME_BYTES + 32)
    fd = disk.open_file(BLOCK)
    batch = disk.batch()
    batch.truncate(fd, place)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)
    assert len(data) > place
    return opened(disk)


def test_a_file_that_has_lost_its_end_is_no_torn_tail_however_often_it_is_opened() -> None:
    disk = LossyDisk()
    log = cut_short(3, disk)
    for _ in range(3):
        assert log.faulty == ((4, 4),)
        assert log.damaged[0].end_lost
        log.close()
        log = opened(disk)


def test_sequences_in_the_lost_end_of_the_only_replica_are_not_used_again() -> None:
    log = cut_short(3, LossyDisk())
    log.give_up(log.faulty)
    store = StreamStore(log, StoreLimits())
    for found in log.entries(1, log.last_index, 1 << 20):
        if found.kind == Kind.MESSAGES:
            store.apply_messages(found)
    assert store.messages == 6
    assert store.last_seq >= 2 * ENTRIES, "whatever was there, its sequences are not given to others"
    assert store.is_lost(7)
    with pytest.raises(StoreCorrupt):
        store.load(7)
