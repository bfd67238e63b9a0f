"""Searches in steps find what the sets of filters find at once, whatever the size of the steps."""

import time

from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.stream._index import Index
from jetraft.store.stream._search import LastOfEachSearch, LastSearch, NextSearch, Search
from jetraft.store.stream._select import FilterSet
from jetraft.store.stream._subjtree import SubjectTree, matches
from tests.store.stream.test_select import index_of

WORDS = st.sampled_from((b"a", b"b", b"ab", b"a*", b"$h"))
SUBJECTS = st.lists(WORDS, min_size=1, max_size=3).map(b".".join)
FILTERS = st.builds(
    lambda words, tail: b".".join([*words, b">"] if tail else words),
    st.lists(WORDS | st.just(b"*"), min_size=1, max_size=3),
    st.booleans(),
)
MANY = 50_000


def finish(search: Search, visits: int) -> None:
    for _ in range(100_000):
        if not search.step(visits):
            return
    raise AssertionError("the search has no end")


def index_with(subjects: list[bytes], gone: set[int], hidden: bytes | None) -> Index:
    _, index = index_of(*subjects)
    for number in gone:
        index.remove(number)
    index.hide(hidden)
    return index


indexes = st.builds(
    index_with,
    st.lists(SUBJECTS, min_size=1, max_size=30),
    st.sets(st.integers(1, 30)),
    st.sampled_from((None, b"$h")),
)


@given(indexes, st.lists(FILTERS, min_size=1, max_size=12), st.integers(1, 31), st.sampled_from((1, 7, 10**6)))
def test_a_search_finds_what_a_set_of_filters_finds(index: Index, filters: list[bytes], seq: int, visits: int) -> None:
    wanted = FilterSet(index, tuple(filters))

    last = LastSearch(index, filters)
    finish(last, visits)
    assert (last.found or None) == wanted.last_match()
    each = LastOfEachSearch(index, filters, seq, 100)
    finish(each, visits)
    assert each.found() == list(wanted.last_per_subject(seq))
    following = NextSearch(index, filters, seq)
    finish(following, visits)
    following.close()
    assert (following.found or None) == wanted.next_match(seq)


@given(st.lists(SUBJECTS, max_size=40), FILTERS)
def test_the_tree_skips_nothing_that_a_filter_admits(subjects: list[bytes], one: bytes) -> None:
    tree = SubjectTree()
    for subject in subjects:
        tree.add(subject)

    assert [tree.name_of(found) for found in tree.match(one)] == sorted({s for s in subjects if matches(one, s)})


def many_subjects(form: bytes) -> Index:
    return index_of(*[form % number for number in range(MANY)])[1]


def test_subjects_that_an_early_token_rules_out_are_not_compared_one_by_one() -> None:
    index = many_subjects(b"k.%d.x")
    search = LastSearch(index, [b"k.z*.x", b"*.zz.>"])
    assert not search.step(1_000)  # of 50,000 subjects
    assert search.found == 0


def test_many_patterns_that_all_subjects_must_be_compared_with_take_many_steps_and_not_their_product() -> None:
    index = many_subjects(b"%d.k")
    patterns = [b"*.z%d" % number for number in range(2_000)]

    begun = time.process_time()
    search = LastOfEachSearch(index, patterns, MANY, 1_000)
    steps = 0
    while search.step(1_000):
        steps += 1
    assert search.found() == []
    assert steps > 100
    assert time.process_time() - begun < 5  # one walk for each pattern takes a minute


def test_a_search_for_more_subjects_than_are_wanted_ends() -> None:
    index = many_subjects(b"k.%d")
    search = LastOfEachSearch(index, [b"k.>", b"k.*"] * 1_000, MANY, 1_025)
    assert not search.step(10**6)
    assert len(search.found()) == 1_025


def test_the_last_message_of_a_pattern_that_admits_much_is_found_without_a_look_at_the_subjects() -> None:
    index = many_subjects(b"k.%d")
    search = LastSearch(index, [b"*.*"])
    assert not search.step(300)
    assert search.found == MANY
