"""The limit of bytes by subject: what is dropped, what a snapshot says of it. Histories of it: test_stream_store.py."""

import msgpack
import pytest

from jetraft.store.log.mem_log import MemLog
from jetraft.store.stream.retention import SizeModel, StoreLimits
from jetraft.store.stream.stream_store import StreamStore
from tests.store.naive_stream import Message, append_messages

OVERHEAD = SizeModel.FILE.overhead_bytes + 1  # of a message whose subject is one byte


def publish(log: MemLog, store: StreamStore, *messages: tuple[bytes, int]) -> None:
    entry = append_messages(log, store.last_seq + 1, [Message(subject, b"x" * size) for subject, size in messages])
    store.apply_messages(entry)


def live(store: StreamStore) -> list[int]:
    return store.next_matches((), 1, 1000)


def test_the_oldest_of_a_subject_go_until_the_rest_fits() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits(max_bytes_per_subject=3 * (OVERHEAD + 10)))
    publish(log, store, (b"a", 10), (b"a", 10), (b"b", 10), (b"a", 10))
    assert live(store) == [1, 2, 3, 4], "exactly full"
    publish(log, store, (b"a", 11))
    assert live(store) == [3, 4, 5], "the bytes of another subject do not count"
    assert store.bytes_for(b"a") == 2 * OVERHEAD + 21
    assert (store.bytes_for(b"b"), store.bytes_for(b"c")) == (OVERHEAD + 10, 0)


def test_the_last_message_of_a_subject_stays_whatever_its_size() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits(max_bytes_per_subject=50))
    publish(log, store, (b"a", 10), (b"a", 1000))
    assert live(store) == [2]


def test_what_a_stream_has_already_counts_when_the_limit_comes() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    publish(log, store, *[(b"a", 10), (b"b", 10)] * 400)  # subjects that come and go have had other ids
    store.remove(range(5, 700))
    assert store.bytes_for(b"a") == 0, "nothing counts without a limit"
    store.set_limits(StoreLimits(max_bytes_per_subject=5 * (OVERHEAD + 10)))
    assert live(store) == list(range(791, 801))
    assert store.bytes_for(b"a") == 5 * (OVERHEAD + 10)
    store.set_limits(StoreLimits())
    publish(log, store, (b"a", 10))
    assert store.messages == 11


@pytest.mark.parametrize(
    ("limits", "packed"),
    [
        (StoreLimits(max_msgs=7), [7, -1, -1]),
        (StoreLimits(max_msgs=7, max_bytes_per_subject=100), [7, -1, -1, 100]),
    ],
)
def test_a_snapshot_names_the_limit_only_where_there_is_one(limits: StoreLimits, packed: list[int]) -> None:
    log = MemLog()
    store = StreamStore(log, limits)
    publish(log, store, (b"a", 10), (b"a", 20), (b"a", 30))
    assert msgpack.unpackb(store.snapshot())[2] == packed, "earlier servers read three"
    again = StreamStore(log, StoreLimits())
    again.restore(store.snapshot())
    assert (again.limits, live(again)) == (limits, live(store))
    assert again.bytes_for(b"a") == store.bytes_for(b"a")
