"""Subjects and ids against a plain dictionary, wildcards against the plain matching of store/model/subject.py."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.store.model import subject as plain
from jetraft.store.stream._subjtree import SubjectTree, matches

token = st.sampled_from([b"a", b"b", b"ab", b"a\0", b"\xff", b"x" * 20])
subject = st.lists(token, min_size=1, max_size=5).map(b".".join)
pattern = st.lists(st.one_of(token, st.just(b"*")), min_size=1, max_size=5).flatmap(
    lambda tokens: st.sampled_from([b".".join(tokens), b".".join([*tokens, b">"]), b">"])
)


def filled(*subjects: bytes) -> SubjectTree:
    tree = SubjectTree()
    for one in subjects:
        tree.add(one)
    return tree


@given(pattern, subject)
def test_matching_is_what_the_model_says(filter_: bytes, name: bytes) -> None:
    assert matches(filter_, name) == plain.matches(filter_, name)


@pytest.mark.parametrize(
    ("filter_", "name", "expected"),
    [
        (b"a.>", b"a", False),
        (b"a.>", b"a.b.c", True),
        (b"a.*", b"a.b.c", False),
        (b"*", b"a", True),
        (b"a*", b"ab", False),
        (b"a*", b"a*", True),
        (b"a.>b", b"a.>b", True),
        (b"a.>.b", b"a.x.b", False),
        (b">", b"", False),
        (b"", b"a", False),
        (b"a.", b"a.", False),
        (b"ab", b"a", False),
        (b"a", b"ab", False),
    ],
)
def test_corners_of_matching(filter_: bytes, name: bytes, *, expected: bool) -> None:
    assert matches(filter_, name) is expected


@settings(max_examples=300)
@given(st.lists(st.tuples(subject, st.booleans()), max_size=60), pattern)
def test_the_tree_holds_the_subjects_with_messages(changes: list[tuple[bytes, bool]], filter_: bytes) -> None:
    tree, counts = SubjectTree(), Counter[bytes]()
    for name, added in changes:
        if added:
            counts[name] += 1
            tree.add(name)
        elif counts[name]:
            counts[name] -= 1
            tree.discard(name)
        assert tree.count_of(tree.id_of(name)) == counts[name] if counts[name] else tree.id_of(name) == 0
    live = sorted(name for name, count in counts.items() if count)
    assert len(tree) == len(live)
    assert [tree.name_of(one) for one in tree.match(b">")] == live
    assert [tree.name_of(one) for one in tree.match(filter_)] == [one for one in live if plain.matches(filter_, one)]


def test_a_subject_may_be_the_prefix_of_another() -> None:
    tree = filled(b"a.b", b"a", b"a.b.c", b"a.", b"a.b\0")
    assert [tree.name_of(one) for one in tree.match(b">")] == [b"a", b"a.", b"a.b", b"a.b\0", b"a.b.c"]
    assert [tree.name_of(one) for one in tree.match(b"a.b.*")] == [b"a.b.c"]


def test_very_deep_trees_do_not_need_a_deep_stack() -> None:
    names = [b"a" * n for n in range(1, 3000)]
    tree = filled(*names)
    assert [tree.name_of(one) for one in tree.match(b">")] == names


def test_an_id_rests_before_it_is_reused() -> None:
    tree = filled(b"first")
    former = tree.id_of(b"first")
    tree.discard(b"first")
    seen = set()
    for n in range(1100):
        seen.add(tree.add(b"next.%d" % n))
        tree.discard(b"next.%d" % n)
        assert (former in seen) == (n >= 1024)
    assert max(seen) < 1100


def test_many_subjects_cost_about_a_hundred_bytes_each() -> None:
    tree = filled(*(b"orders.eu.%d" % n for n in range(65_000)))
    assert len(tree.match(b"orders.eu.1234*")) == 0
    assert len(tree.match(b"orders.*.1234")) == 1
    assert tree.memory_bytes / len(tree) < 120


def test_a_subject_has_a_length() -> None:
    tree = SubjectTree()
    with pytest.raises(ValueError, match="has 1"):
        tree.add(b"")
    with pytest.raises(ValueError, match="has 1"):
        tree.add(b"x" * 65536)
    assert tree.id_of(b"") == 0
    assert tree.match(b"") == []
