"""Messages as they are read back: from memory, and from files after a restart."""

from pathlib import Path

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry
from jetraft.store.stream._records import StoredMessage
from jetraft.store.stream.retention import StoreLimits
from jetraft.store.stream.stream_store import StreamStore
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of
from tests.store.naive_stream import Message, append_messages

GROUP = Path("/store/groups/S-R1F-abcdefgh")
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=1)
HDR = b"NATS/1.0\r\nA: b\r\n\r\n"


def open_files(disk: LossyDisk) -> FileLog:
    options = LogOptions(block_bytes_first=2048, block_bytes_max=4096)
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(bytes_max=1000), options)


def fill(log: FileLog, store: StreamStore, count: int) -> None:
    for n in range(count):
        first_seq = store.last_seq + 1
        messages = [Message(b"s.%d" % (n % 7), b"%d" % first_seq, HDR, n), Message(b"t", b"x" * 50, b"", n)]
        store.apply_messages(append_messages(log, first_seq, messages))


def test_a_store_comes_back_from_files_by_checkpoint_and_replay() -> None:
    disk = LossyDisk()
    disk.make_directory(GROUP.parent.parent)
    disk.sync_names()
    log = open_files(disk)
    store = StreamStore(log, StoreLimits(max_msgs=120, max_msgs_per_subject=40))
    fill(log, store, 100)
    store.remove([150, 170])
    log.save_checkpoint(log.last_index, 1, b"", store.snapshot())
    fill(log, store, 30)
    log.submit()
    disk.finish()
    assert log.trim(store.first_seq, 100) > 0
    log.submit()
    disk.finish()
    log.close()

    reopened = open_files(disk)
    checkpoint = reopened.load_checkpoint()
    assert checkpoint is not None
    restored = StreamStore(reopened, StoreLimits())
    restored.restore(checkpoint.state)
    for entry in reopened.entries(checkpoint.index + 1, reopened.last_index, 1 << 30):
        restored.apply_messages(entry)

    live = store.next_matches((), 1, 1000)
    assert restored.snapshot() == store.snapshot()
    assert restored.next_matches((), 1, 1000) == live
    assert restored.load_many(live) == store.load_many(live)
    assert restored.load(live[-2]) == StoredMessage(
        seq=live[-2], ts_ns=29, subject=b"s.1", hdr=HDR, payload=b"%d" % live[-2]
    )
    reopened.close()


def test_messages_are_read_in_any_order() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    for n in range(5):
        store.apply_messages(append_messages(log, 1 + 2 * n, [Message(b"a", b"%d" % n), Message(b"b")]))
    assert [one.seq for one in store.load_many([9, 1, 4, 99, 1])] == [9, 1, 4, 1]


def test_a_stored_message_is_a_value() -> None:
    one, same = (StoredMessage(seq=1, ts_ns=2, subject=b"s", hdr=b"", payload=b"p") for _ in range(2))
    other = StoredMessage(seq=1, ts_ns=2, subject=b"s", hdr=b"", payload=b"q")
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert repr(one) == "StoredMessage(seq=1, ts_ns=2, subject=b's', hdr=b'', payload=b'p')"
    with pytest.raises(AttributeError):
        one.seq = 5  # type: ignore[misc]  # what the test is about


def test_other_kinds_of_entries_are_passed_over_when_restoring() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    store.apply_messages(append_messages(log, 1, [Message(b"a")]))
    frame = seal(Kind.CONSUMER_OP, index=2, term=1, incarnation=1, body=b"anything")
    log.append([Entry(index=2, term=1, kind=Kind.CONSUMER_OP, frame=frame)])
    store.apply_messages(append_messages(log, 2, [Message(b"b")]))
    restored = StreamStore(log, StoreLimits())
    restored.restore(store.snapshot())
    assert restored.subjects(b">") == {b"a": 1, b"b": 1}
