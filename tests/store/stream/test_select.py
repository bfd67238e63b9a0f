"""Counting and finding by filter, where the store's histories do not say which way was taken."""

import pytest

from jetraft.store.log.mem_log import MemLog
from jetraft.store.stream._index import Index
from jetraft.store.stream._select import FilterSet
from tests.store.naive_stream import Message, append_messages


def index_of(*subjects: bytes) -> tuple[MemLog, Index]:
    log = MemLog()
    index = Index(overhead_bytes=30, hdr_overhead_bytes=4)
    extend(log, index, *subjects)
    return log, index


def extend(log: MemLog, index: Index, *subjects: bytes, first_seq: int = 0) -> None:
    entry = append_messages(log, first_seq or index.last_seq + 1, [Message(subject) for subject in subjects])
    place = log.locate(entry.index)
    assert place is not None
    index.apply(entry.frame, place.block, place.offset)


@pytest.mark.parametrize("filters", [(b"a",), (b"*",), (b"a", b"b")])
def test_a_count_continues_over_every_kind_of_change(filters: tuple[bytes, ...]) -> None:
    """Long enough that continuing is the cheaper way, and each change small enough that it stays so."""
    log, index = index_of(*[b"a", b"b.c"] * 5000)
    wanted = FilterSet(index, filters)

    def fresh(seq: int) -> int:
        return FilterSet(index, filters).num_pending(seq)

    assert wanted.num_pending(5001) == 2500
    extend(log, index, b"a", b"b.c", b"a")
    assert wanted.num_pending(5001) == fresh(5001) == 2502
    index.remove(5001)
    index.remove(4999)
    index.remove(10_001)
    assert wanted.num_pending(5001) == fresh(5001) == 2500
    assert wanted.num_pending(5006) == fresh(5006) == 2498
    assert wanted.num_pending(4990) == fresh(4990)
    extend(log, index, *[b"a"] * 7)
    assert wanted.num_pending(index.last_seq) == fresh(index.last_seq) == 1
    for seq in range(6001, 8401):
        index.remove(seq)
    assert wanted.num_pending(4990) == fresh(4990)


def test_removals_are_counted_although_their_subject_is_gone() -> None:
    log, index = index_of(*[b"u.%d" % n for n in range(3000)])
    wanted = FilterSet(index, (b"u.*",))
    assert wanted.num_pending(1000) == 2001
    for seq in range(1500, 2000):
        index.remove(seq)
    assert wanted.num_pending(1000) == 1501
    extend(log, index, *[b"v.%d" % n for n in range(3000)])
    assert wanted.num_pending(1000) == 1501


def test_a_closed_set_is_not_kept() -> None:
    log, index = index_of(b"a")
    wanted = FilterSet(index, (b"a.*",))
    wanted.close()
    extend(log, index, b"b")
    with pytest.raises(ValueError, match="not in list"):
        wanted.close()


def test_removing_what_matches_stops_at_the_count_and_at_the_border() -> None:
    _, index = index_of(*[b"a", b"b"] * 10)
    wanted = FilterSet(index, (b"a",))
    assert wanted.remove_matching(100, 2) == 2
    assert wanted.remove_matching(8, 100) == 2
    assert wanted.next_matches(0, 3) == [9, 11, 13]


def test_looking_from_the_end_of_the_numbers_finds_nothing() -> None:
    _, index = index_of(b"a", b"b")
    for filters in ((), (b"a",), (b"*",)):
        wanted = FilterSet(index, filters)
        assert wanted.next_match((1 << 64) - 1) is None
        assert wanted.next_matches((1 << 64) - 1, 5) == []
        assert wanted.num_pending((1 << 64) - 1) == 0
        assert wanted.next_matches(1, 0) == []
        assert wanted.next_matches(1, -1) == []
