"""The index where its memory is concerned, and where its answers differ from the store's."""

import pytest

from jetraft.store.stream._index import Index
from jetraft.store.stream._seqset import PackedRanges
from tests.store.stream.test_select import extend, index_of

CHUNK_BYTES = 256 * 16


def test_a_message_costs_sixteen_bytes() -> None:
    _, index = index_of(*[b"a"] * 100_000)
    assert 16 <= index.memory_bytes / 100_000 < 17


def test_removed_chunks_are_given_back() -> None:
    log, index = index_of(*[b"a"] * 40_000)
    for seq in range(10_000, 30_000):
        index.remove(seq)
    assert index.memory_bytes < 90 * CHUNK_BYTES
    assert index.remove_below(40_000) == 19_999
    assert index.memory_bytes < 8 * CHUNK_BYTES
    extend(log, index, b"a")
    assert (index.first_seq, index.last_seq, index.messages) == (40_000, 40_001, 2)


def test_a_far_gap_costs_no_chunks() -> None:
    log, index = index_of(b"a")
    index.remove(1)
    index.skip_to(1 << 40)
    extend(log, index, b"a", b"b")
    assert (index.first_seq, index.last_seq) == (1 << 40, (1 << 40) + 1)
    assert index.memory_bytes < 8 * CHUNK_BYTES


def test_a_stream_cannot_be_sent_to_the_end_of_the_numbers() -> None:
    log, index = index_of(b"a")
    index.remove(1)
    index.skip_to((1 << 64) - 1)
    assert index.last_seq == (1 << 62) - 1
    extend(log, index, b"a")
    assert index.next_from(0) == 1 << 62
    with pytest.raises(ValueError, match="is out of range"):
        extend(log, index, b"a", first_seq=(1 << 64) - 1)


def test_chains_lead_across_distances_that_do_not_fit_into_32_bits() -> None:
    log, index = index_of(b"a", b"keep")
    extend(log, index, b"a", b"a", first_seq=1 + (1 << 32))
    assert index.subject_state(b"a") == (3, 1, 2 + (1 << 32))
    index.remove(1)
    assert index.subject_state(b"a") == (2, 1 + (1 << 32), 2 + (1 << 32))


def test_sizes_and_places_are_those_of_live_messages() -> None:
    log, index = index_of(b"a", b"bb")
    assert (index.size_of(1), index.size_of(2)) == (31, 32)
    place = index.place(2)
    assert place is not None
    assert log.read_record(*place)[2] == b"bb"
    assert index.remove(2)
    assert not index.remove(2)
    assert index.place(2) is None
    assert index.subject_at(2) is None
    assert not index.is_live(0)
    assert not index.is_live((1 << 64) - 1)


def test_loading_refuses_sequences_after_the_last() -> None:
    log, _ = index_of(b"a", b"a")
    index = Index(overhead_bytes=30, hdr_overhead_bytes=4)
    for place, entry in log.frames(1, 1):
        index.load(entry.frame, place.block, place.offset, PackedRanges(b"", 1))
    with pytest.raises(ValueError, match="above the last one"):
        index.finish_load(1, 0)
