"""Subjects that are hidden: which questions are answered without them, and which with them."""

from jetraft.store.log.mem_log import MemLog
from jetraft.store.stream.retention import StoreLimits
from jetraft.store.stream.stream_store import StreamStore
from tests.store.naive_stream import Message, append_messages

HIDDEN = b"$H."


def store_of(*subjects: bytes) -> StreamStore:
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    store.apply_messages(append_messages(log, 1, [Message(subject) for subject in subjects]))
    return store


def seqs(store: StreamStore, *filters: bytes) -> list[int]:
    found = list(store.next_matches(filters, 1, 100))
    assert store.num_pending(filters, 1) == len(found)
    assert store.next_match(filters, 1) == (found[0] if found else None)
    assert store.last_match(filters) == (found[-1] if found else None)
    assert set(store.last_per_subject(filters)) <= set(found)
    return found


def test_only_a_filter_that_names_what_is_hidden_admits_it() -> None:
    store = store_of(b"a.b", b"$H.1", b"$H.2.x", b"$Hx", b"a.b")
    assert seqs(store, b">") == [1, 2, 3, 4, 5]
    store.hide(HIDDEN)
    assert seqs(store, b">") == [1, 4, 5]
    assert seqs(store, b"*.>", b"*") == [1, 4, 5]
    assert seqs(store, b"*.*") == [1, 5]
    assert seqs(store, b"$H.>") == [2, 3]
    assert seqs(store, b"$H.1") == [2]
    assert seqs(store, b"a.>", b"$H.*") == [1, 2, 5]
    assert seqs(store) == [1, 2, 3, 4, 5], "without a filter a reader sees all"
    assert store.visible(()) == (b">",)
    assert store.visible((b"a",)) == (b"a",)
    store.hide(None)
    assert seqs(store, b">") == [1, 2, 3, 4, 5]
    assert store.visible(()) == ()


def test_an_id_that_is_used_again_is_judged_again() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    store.hide(HIDDEN)
    for number in range(3000):  # freed ids come back after a thousand removals
        subject = b"$H.%d" % number if number % 2 else b"a.%d" % number
        first = store.last_seq + 1
        store.apply_messages(append_messages(log, first, [Message(subject)]))
        assert store.next_match((b">",), first) == (None if number % 2 else first)
        store.remove([first])
