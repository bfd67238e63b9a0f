"""The index where its memory is concerned, and where its answers differ from the store's."""

import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.stream._index import Index
from jetraft.store.stream._runs import Runs
from jetraft.store.stream._search import LastSearch
from jetraft.store.stream._select import FilterSet
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
    while index.shed():
        pass
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


def least_ms(index_with: Callable[[], tuple[FilterSet, Index]], act: Callable[[FilterSet, Index], object]) -> float:
    """The processor time of this, in ms: the least of three, as nothing else makes it shorter."""
    found = []
    for _ in range(3):
        filters, index = index_with()
        began_ns = time.thread_time_ns()
        act(filters, index)
        found.append((time.thread_time_ns() - began_ns) / 1e6)
    return min(found)


MANY = 100_000


def many(of: Callable[[int], bytes], wanted: bytes = b"s.1") -> tuple[FilterSet, Index]:
    log, index = index_of(of(1))
    for first in range(2, MANY, 1000):
        extend(log, index, *[of(seq) for seq in range(first, first + 1000)])
    return FilterSet(index, (wanted,)), index


@pytest.mark.parametrize(
    ("of", "act"),
    [  # one by one these take 2 to 20 ms
        (lambda seq: b"s.%d" % seq, lambda _, index: index.remove_below(index.last_seq)),
        (lambda seq: b"s.%d" % seq, lambda _, index: index.remove_below(index.last_seq + 1)),
        (lambda seq: b"s.%d" % seq, lambda _, index: FilterSet(index, ()).remove_matching(index.last_seq, 1 << 60)),
        (lambda _: b"s.1", lambda filters, index: filters.remove_matching(index.last_seq, 1 << 60)),
        (lambda seq: b"s.%d" % (seq % 2), lambda filters, index: filters.remove_matching(index.last_seq, 1 << 60)),
    ],
)
def test_a_message_that_takes_the_place_of_very_many_is_applied_in_one_short_step(
    of: Callable[[int], bytes], act: Callable[[FilterSet, Index], object]
) -> None:
    assert least_ms(partial(many, of), act) < 0.8


def test_memory_of_before_is_freed_by_parts_and_by_what_is_stored() -> None:
    _, index = many(lambda seq: b"a.long.name.of.a.subject.with.a.number.%d" % seq)
    before = index.memory_bytes
    index.remove_below(index.last_seq)
    assert index.memory_bytes > before * 0.8
    steps = 0
    while index.shed():
        steps += 1
    assert steps > 20
    assert index.memory_bytes < 40_000
    log, index = index_of(*[b"s.%d" % seq for seq in range(10_000)])
    index.remove_below(10_000)
    for _ in range(20):
        extend(log, index, b"s.a")
    assert not index.remains


def test_a_search_goes_on_when_the_index_begins_anew_between_two_of_its_steps() -> None:
    """The ids of subjects are others then: what was looked at before says nothing of them."""
    log, index = index_of(*[b"s.%d.z" % seq for seq in range(30_000)])
    extend(log, index, b"s.wanted.x", *[b"t.%d.z" % seq for seq in range(5_000)])
    search = LastSearch(index, (b"*.*.x", b"*.*.y"))
    assert search.step(21_000)
    assert search.step(1_000)
    index.large = 1
    index.remove_below(34_900)
    extend(log, index, b"s.wanted.y")
    while search.step(100):
        pass
    assert search.found == index.last_seq
    assert index.anew == 1


@pytest.mark.parametrize("limits", [(5, -1), (-1, 200), (0, -1), (7, 100), (-1, -1)])
def test_what_is_above_totals_is_what_they_drop(limits: tuple[int, int]) -> None:
    _, index = index_of(*[b"a.%d" % (seq % 7) * (1 + seq % 3) for seq in range(40)])
    index.remove_many(range(3, 20, 4))
    before = set(FilterSet(index, ()).next_matches(0, 99))
    above = index.above_totals(max_msgs=limits[0], max_bytes=limits[1], count_max=99)
    assert index.above_totals(max_msgs=limits[0], max_bytes=limits[1], count_max=3) == above[:3]
    index.limit(max_msgs=limits[0], max_bytes=limits[1], max_msgs_per_subject=-1)
    assert set(above) == before - set(FilterSet(index, ()).next_matches(0, 99))


@pytest.mark.parametrize("limits", [(1, -1), (3, -1), (-1, 70), (2, 60), (0, -1)])
def test_what_is_above_limits_of_subjects_is_what_they_drop(limits: tuple[int, int]) -> None:
    _, index = index_of(*[b"a.%d" % (seq * seq % 11) for seq in range(90)])
    index.remove_many(range(3, 60, 4))
    before = set(FilterSet(index, ()).next_matches(0, 99))
    above: set[int] = set()
    first = 1
    while first:
        seqs, first = index.above_subjects(
            first, max_msgs_per_subject=limits[0], max_bytes_per_subject=limits[1], visits=3, count_max=4
        )
        assert len(seqs) <= 4
        above |= set(seqs)
        index.remove_many(seqs)
    found = set(FilterSet(index, ()).next_matches(0, 99))
    assert above == before - found
    assert index.limit(max_msgs=-1, max_bytes=-1, max_msgs_per_subject=limits[0], max_bytes_per_subject=limits[1]) == 0


@given(
    subjects=st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=700),
    asked=st.sets(st.integers(0, 800), max_size=80),
    gone=st.sets(st.integers(1, 700), max_size=400),
    above=st.integers(0, 800),
    count=st.integers(0, 90),
)
def test_what_is_live_of_given_sequences(
    subjects: list[bytes], asked: set[int], gone: set[int], above: int, count: int
) -> None:
    _, index = index_of(*subjects)
    for seq in gone & set(range(1, len(subjects) + 1)):
        index.remove(seq)
    live = [seq for seq in sorted(asked) if above < seq <= len(subjects) and seq not in gone and seq]
    assert index.count_live(Runs(sorted(asked)), above) == len(live)
    assert list(index.live_of(Runs(sorted(asked)), above, count)) == live[:count]


def test_the_last_of_each_of_many_subjects_are_in_order() -> None:
    """In the order of the subjects they are in none, and there are too many to compare them."""
    subjects = [b"%d" % (at * 7919 % 100_003) for at in range(100_003)]
    log, index = index_of(*subjects)
    extend(log, index, *subjects[:20_000:3])
    expected = sorted({subject: seq for seq, subject in enumerate([*subjects, *subjects[:20_000:3]], 1)}.values())
    assert list(FilterSet(index, ()).last_per_subject(1 << 62)) == expected
