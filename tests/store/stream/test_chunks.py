"""Counting over a stream with holes: whole chunks by their counts, parts by looking, from either end."""

from random import Random

import pytest

from jetraft.store.log.mem_log import MemLog
from jetraft.store.stream._index import Index
from jetraft.store.stream.retention import StoreLimits
from jetraft.store.stream.stream_store import StreamStore
from tests.store.naive_stream import Message, append_messages
from tests.store.stream.test_select import extend, index_of

CHUNK = 256


def holed(seed: int) -> tuple[Index, list[int]]:
    random = Random(seed)
    log, index = index_of(*[b"a"] * (2 * CHUNK))
    extend(log, index, *[b"b"] * (CHUNK + 100), first_seq=5 * CHUNK + 7)
    live = {*range(1, 2 * CHUNK + 1), *range(5 * CHUNK + 7, 6 * CHUNK + 107)}
    doomed = [*range(1, 1000), *range(CHUNK, 2 * CHUNK), *random.sample(sorted(live), 500)]
    live -= set(index.remove_many(doomed))
    return index, sorted(live)


@pytest.mark.parametrize("seed", range(3))
def test_counts_agree_from_every_kind_of_place(seed: int) -> None:
    index, live = holed(seed)
    borders = [chunk * CHUNK + step for chunk in range(8) for step in (-1, 0, 1, 50)]
    for low in [0, 1, *live[:3], *live[-3:], *(seq for seq in borders if seq >= 0), index.last_seq + 1]:
        assert index.count_from(low) == sum(seq >= low for seq in live)
        assert index.next_from(low) == min((seq for seq in live if seq >= low), default=None)


def test_the_last_message_is_found_below_a_long_gap() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    store.apply_messages(append_messages(log, 1, [Message(b"a"), Message(b"b")]))
    store.apply_messages(append_messages(log, 100 * CHUNK, [Message(b"c")] * 5))
    assert store.last_match(()) == 100 * CHUNK + 4
    store.remove(range(100 * CHUNK, 100 * CHUNK + 5))
    assert store.last_match(()) == 2
    assert store.last_match((b"a", b"c")) == 1
    assert store.last_match((b"c",)) is None


def test_removing_many_says_what_was_there_in_the_order_asked() -> None:
    _, index = index_of(*[b"a"] * 10)
    assert index.remove_many([7, 3, 3, 99, 0, 8]) == [7, 3, 8]
    assert index.messages == 7


def test_an_emptied_stream_keeps_no_chunk_it_cannot_use() -> None:
    log, index = index_of(*[b"a"] * (CHUNK - 1))
    assert index.remove_below(CHUNK) == CHUNK - 1
    assert (index.first_seq, index.chunks.memory_bytes) == (CHUNK, 8 * (16 + 8))
    extend(log, index, b"a", b"b")
    assert (index.first_seq, index.last_seq, index.count_from(0)) == (CHUNK, CHUNK + 1, 2)


def test_messages_that_are_left_alone_do_not_cost_a_chunk_each() -> None:
    _, index = index_of(*[b"a"] * (100 * CHUNK))
    index.remove_many([seq for seq in range(1, 99 * CHUNK) if seq % (10 * CHUNK)])
    assert index.messages == 9 + CHUNK + 1
    assert index.chunks.memory_bytes < 4 * 16 * CHUNK
    assert [index.next_from(seq) for seq in (1, 10 * CHUNK + 1)] == [10 * CHUNK, 20 * CHUNK]
