"""Messages that are damaged on every member: their sequences are not used again, reading them is an error."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jetraft.cluster.streams.admission.admit import ENTRY_BYTES_MAX
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.cipher import SEAL_BYTES
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, MARK_BYTES, Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.frames.placeholder import MESSAGES_MAX, is_placeholder_frame, placeholder_frame
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.files.manifest import Manifest
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, StoreCorrupt
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of
from tests.store.naive_stream import Message, append_messages

GROUP = Path("/groups/S-R1F-abcdefgh")
BLOCK = GROUP / "log-00000001" / "00000000000000000001-00000001.blk"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
FRAME_BYTES = 48 + 2 * (20 + 1 + 9)
ENTRIES = 6  # of two messages each


def entry(index: int) -> Entry:
    body = [_frame.make_record(b"a", b"", b"message %d" % number, ts_ns=index) for number in (0, 1)]
    frame = _frame.seal(Kind.MESSAGES, index=index, term=1, incarnation=7, body=body, first_seq=2 * index - 1, count=2)
    return Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)


def opened(disk: LossyDisk, secrets: Secrets | None = None) -> FileLog:
    return open_log(
        ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE, secrets=secrets)
    )


def damaged(
    indexes: list[int], *, checkpoint: int, deleted: list[int] | None = None, returned: Sequence[int] = ()
) -> StreamStore:
    """The store after a restart on a log whose entries `indexes` are damaged, from a checkpoint or (0) from nothing.

    The frames of `returned` have come back from another member.
    """
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
    log.repair.give_up(log.damaged_entries, {index: entry(index).frame for index in returned})
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


@pytest.mark.parametrize("checkpoint", [0, 2, 4, 5])
@pytest.mark.parametrize("index", [1, 2, 5])
def test_a_checkpoint_goes_on_listing_what_was_lost_before_it(index: int, checkpoint: int) -> None:
    """Also when the block that shows the damage is gone: what is lost is not live, like what was removed on purpose."""
    store = damaged([index], checkpoint=checkpoint, deleted=[7] if checkpoint == 4 else [])
    gone = (2 * index - 1, 2 * index)
    assert store.lost() == [gone]
    bare = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=7, body=b"")
    for instead in (
        Entry(index=index, term=1, kind=Kind.MESSAGES, frame=placeholder_frame(index, 1, 7)),
        Entry(index=index, term=1, kind=Kind.NOOP, frame=bare),
    ):
        log = MemLog()
        for number in range(1, ENTRIES + 1):
            log.append([instead if number == index else entry(number)])
        again = StreamStore(log, StoreLimits())
        again.restore(store.snapshot())
        assert again.lost() == [gone]
        assert (again.messages, again.snapshot()) == (store.messages, store.snapshot())
        with pytest.raises(StoreCorrupt, match=f"sequence {gone[0]}"):
            again.load(gone[0])
        again.purge()
        assert again.lost() == []


def test_the_older_value_of_a_key_comes_back_beside_the_listed_loss() -> None:
    """Nothing that is left says of which key the lost message was: it is the list that tells of it, until a purge."""
    disk, limits = LossyDisk(), StoreLimits(max_msgs_per_subject=1)
    log = opened(disk)
    for seq, key in enumerate([b"one", b"two", b"one", b"three"], start=1):
        log.append([valued(seq, key)])
    settled(log)
    log.close()
    data = disk.read_whole(BLOCK)
    disk.flip_bit(BLOCK, data.index(b"value 3"))

    log = opened(disk)
    log.repair.give_up(log.damaged_entries)
    store = StreamStore(log, limits)
    for found in log.entries(1, 4, 1 << 20):
        store.apply_messages(found)

    served = [(message.seq, message.payload) for message in store.load_many(range(1, 5))]
    assert served == [(1, b"value 1"), (2, b"value 2"), (4, b"value 4")]
    assert store.lost() == [(3, 3)]
    log.append([valued(5, b"one")])
    store.apply_messages(valued(5, b"one"))
    assert [message.seq for message in store.load_many(range(1, 6))] == [2, 4, 5]
    assert store.lost() == [(3, 3)], "a new value does not tell that it was the lost one that it replaced"
    again = StreamStore(log, limits)
    again.restore(store.snapshot())
    assert again.lost() == [(3, 3)]


def valued(seq: int, key: bytes) -> Entry:
    body = [_frame.make_record(key, b"", b"value %d" % seq, ts_ns=seq)]
    frame = _frame.seal(Kind.MESSAGES, index=seq, term=1, incarnation=7, body=body, first_seq=seq, count=1)
    return Entry(index=seq, term=1, kind=Kind.MESSAGES, frame=frame)


@pytest.mark.parametrize("checkpoint", [0, 5])
@pytest.mark.parametrize("lost", [2, 3, 4, 5])
def test_entries_that_came_back_are_read_beside_those_that_are_lost_in_the_same_damage(
    lost: int, checkpoint: int
) -> None:
    """`zeroed-page-everywhere`, seed 32 of the disk faults: only an entry itself tells where it ends in a gap."""
    hurt = [2, 3, 4, 5]

    store = damaged(hurt, checkpoint=checkpoint, returned=[index for index in hurt if index != lost])

    for seq in range(1, 2 * ENTRIES + 1):
        if seq in (2 * lost - 1, 2 * lost):
            with pytest.raises(StoreCorrupt, match=f"sequence {seq}"):
                store.load(seq)
        else:
            message = store.load(seq)
            assert message is not None
            assert (message.payload, message.ts_ns) == (b"message %d" % ((seq + 1) % 2), (seq + 1) // 2)


def test_sequences_go_on_above_a_damaged_end() -> None:
    store = damaged([ENTRIES], checkpoint=0)
    assert (store.messages, store.last_seq) == (2 * ENTRIES - 2, 2 * ENTRIES - 2)
    assert store.next_seq > 2 * ENTRIES
    assert store.is_lost(2 * ENTRIES)
    with pytest.raises(StoreCorrupt):
        store.load(2 * ENTRIES)
    again = StreamStore(MemLog(), StoreLimits())
    again.restore(purged(store).snapshot())
    assert (again.next_seq, again.lost()) == (store.next_seq, store.lost()), "a checkpoint keeps it"


def purged(store: StreamStore) -> StreamStore:
    store.purge()
    return store


def test_a_lost_entry_that_was_no_messages_takes_no_sequences() -> None:
    """It was, say, an acknowledgement: the entry behind it goes on at the next sequence."""
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    behind = _frame.seal(
        Kind.MESSAGES,
        index=3,
        term=1,
        incarnation=7,
        body=[_frame.make_record(b"a", b"", b"later", ts_ns=3)],
        first_seq=3,
        count=1,
    )
    missing = Entry(index=2, term=1, kind=Kind.MESSAGES, frame=placeholder_frame(2, 1, 7))
    for found in (entry(1), missing, Entry(index=3, term=1, kind=Kind.MESSAGES, frame=behind)):
        log.append([found])
        store.apply_messages(found)
        assert (store.next_seq > store.last_seq + 1) == (found is missing)
    assert (store.last_seq, store.next_seq, store.lost()) == (3, 4, [])


def test_more_sequences_are_passed_over_than_an_entry_can_have_messages() -> None:
    smallest = len(_frame.make_record(b"a", b"", b"", ts_ns=1))
    assert ENTRY_BYTES_MAX // smallest < MESSAGES_MAX


def test_what_was_deleted_is_not_lost() -> None:
    store = damaged([2], checkpoint=4, deleted=[3, 5])
    assert store.lost() == [(4, 4)]
    assert store.load(5) is None
    assert store.load(3) is None


def test_what_is_lost_stays_listed_when_what_stood_before_it_is_acknowledged() -> None:
    """Simulator, rot 770: the first message moved beyond the lost ones, and the replica passed for whole."""
    store = damaged([2], checkpoint=4)
    assert store.lost() == [(3, 4)]
    store.remove([1, 2, 5])
    assert store.first_seq == 6
    assert store.lost() == [(3, 4)]
    store.remove([3])
    assert store.lost() == [(4, 4)]


def test_under_a_limit_only_dropping_the_oldest_ends_the_loss_of_what_is_older() -> None:
    """Simulator, rot 479: what was lost was removed, but other replicas had dropped an older message for it."""
    store = damaged([2], checkpoint=4)
    store.set_limits(StoreLimits(max_msgs=10))
    store.remove([1, 2, 3])
    assert store.lost() == [(3, 4)]
    store.set_limits(StoreLimits(max_msgs=7))
    assert store.first_seq == 6
    assert store.lost() == []


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
        assert log.damaged_entries == ((4, 4),)
        assert log.damaged_blocks[0].end_lost
        log.close()
        log = opened(disk)


def test_sequences_in_the_lost_end_of_the_only_replica_are_not_used_again() -> None:
    log = cut_short(3, LossyDisk())
    log.repair.give_up(log.damaged_entries)
    store = StreamStore(log, StoreLimits())
    for found in log.entries(1, log.last_index, 1 << 20):
        if found.kind == Kind.MESSAGES:
            store.apply_messages(found)
    assert store.messages == 6
    assert store.next_seq > 2 * ENTRIES, "whatever was there, its sequences are not given to others"
    assert store.is_lost(7)
    with pytest.raises(StoreCorrupt):
        store.load(7)


@pytest.mark.parametrize("secrets", [(None, None), (b"one", None), (None, b"two"), (b"one", b"two")])
@pytest.mark.parametrize("indexes", [[1], [2, 4], [6], [5, 6], [1, 2, 3, 4, 5, 6]])
def test_another_member_gets_what_is_left_and_lists_what_is_lost(
    indexes: list[int], secrets: tuple[bytes | None, bytes | None]
) -> None:
    """A block with damage that nobody can mend is sent with what stands for it; as it is nobody could install it."""
    if any(secrets):
        pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    keys = [None if key is None else Secrets(key=key) for key in secrets]
    sender = sender_that_lost(indexes, keys[0])
    found = sender.manifest(0)
    assert found is not None
    manifest, checkpoint = found
    target = opened(LossyDisk(), keys[1])
    settled(target)
    staging = target.begin_install(Manifest.from_bytes(manifest.to_bytes()), checkpoint)
    while (wanted := staging.missing()) is not None:
        block, offset, size = wanted
        staging.put_chunk(block, offset, sender.read_chunk(block, offset, min(size, 77)))
    target.close()

    log = staging.finish()

    original, copy = (StreamStore(of, StoreLimits()) for of in (sender, log))
    for store in (original, copy):
        store.restore(checkpoint.state)
    gone = [(2 * index - 1, 2 * index) for index in indexes]
    assert [seq for low, high in copy.lost() for seq in range(low, high + 1)] == [seq for run in gone for seq in run]
    assert copy.lost() == original.lost()
    assert (copy.messages, copy.snapshot()) == (2 * (ENTRIES - len(indexes)), original.snapshot())
    assert [copy.load(seq) for seq in range(1, 2 * ENTRIES + 1) if not copy.is_lost(seq)] == [
        original.load(seq) for seq in range(1, 2 * ENTRIES + 1) if not original.is_lost(seq)
    ]
    assert [entry.index for _, entry in log.frames(1, ENTRIES) if is_placeholder_frame(entry.frame)] == indexes


def sender_that_lost(indexes: list[int], secrets: Secrets | None) -> FileLog:
    """A log with a checkpoint at its end whose entries `indexes` are given up."""
    disk = LossyDisk()
    log = opened(disk, secrets)
    store = StreamStore(log, StoreLimits())
    for index in range(1, ENTRIES + 1):
        log.append([entry(index)])
        store.apply_messages(entry(index))
        settled(log)
    log.save_checkpoint(ENTRIES, 1, b"", store.snapshot())
    settled(log)
    log.close()
    frame_bytes = FRAME_BYTES + MARK_BYTES + (0 if secrets is None else SEAL_BYTES)
    for index in indexes:
        disk.flip_bit(BLOCK, BLOCK_HEAD_BYTES + (index - 1) * frame_bytes + 60)
    log = opened(disk, secrets)
    assert [index for first, last in log.damaged_entries for index in range(first, last + 1)] == indexes
    log.repair.give_up(log.damaged_entries)
    return log


def settled(log: FileLog) -> None:
    disk: Any = log.place.disk
    log.submit()
    disk.finish()


@pytest.mark.parametrize("change", ["remove below", "purge", "limits"])
def test_what_a_limit_has_dropped_of_a_loss_depends_on_nobody_who_asks(change: str) -> None:
    """Replicas are asked for their lost messages at different times, and have to agree in the end."""
    changes: dict[str, Callable[[StreamStore], object]] = {
        "remove below": lambda store: store.remove_below(0),
        "purge": lambda store: store.purge(subject=b">", below_seq=1),
        "limits": lambda store: store.set_limits(StoreLimits()),
    }
    found = []
    for is_asked in (False, True):
        log = MemLog()
        store = StreamStore(log, StoreLimits())
        store.apply_messages(append_messages(log, 2, [Message(b"a", b"", b"", 1000)]))
        store.set_limits(StoreLimits(max_bytes=0))
        if is_asked:
            store.snapshot()
        changes[change](store)
        found.append(store.snapshot())
    assert found[0] == found[1]
