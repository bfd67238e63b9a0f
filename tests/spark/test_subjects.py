"""Subject filters against a model: tokens compared one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream.subjects import cover, covers, is_filter, matcher

TOKENS = st.sampled_from(["a", "b", "a*"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
FILTERS = st.builds(
    lambda words, full: ".".join([*words, ">"] if full else words),
    st.lists(st.one_of(TOKENS, st.just("*")), min_size=1, max_size=3),
    st.booleans(),
)


def model(pattern: str, subject: str) -> bool:
    """Whether a subject matches, token by token."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and all(map(one, wanted[:-1], given))
    return len(given) == len(wanted) and all(map(one, wanted, given))


def one(wanted: str, token: str) -> bool:
    return wanted in {"*", token}


@given(st.lists(FILTERS, min_size=1, max_size=4), SUBJECTS)
def test_a_task_keeps_the_rows_of_any_filter_and_the_server_is_asked_for_no_fewer(
    filters: list[str], subject: str
) -> None:
    matches = matcher(filters)(subject.encode())
    assert matches == any(model(one, subject) for one in filters)
    assert model(cover(filters), subject) or not matches
    assert all(covers(cover(filters), one) for one in filters)


@given(FILTERS, FILTERS, SUBJECTS)
def test_a_filter_that_covers_another_lets_all_of_its_subjects_pass(wide: str, narrow: str, subject: str) -> None:
    assert not covers(wide, narrow) or not model(narrow, subject) or model(wide, subject)


@pytest.mark.parametrize(
    ("filters", "whole"),
    [
        ([], ">"),
        (["a.b"], "a.b"),
        (["a.eu.new", "a.us.new"], "a.*.new"),
        (["a.b", "a.b.c"], "a.>"),
        (["a.>", "a.b.c"], "a.>"),
        (["a", "b.c"], ">"),
    ],
)
def test_the_server_is_asked_for_the_narrowest_filter_that_covers_all(filters: list[str], whole: str) -> None:
    assert cover(filters) == whole


@pytest.mark.parametrize("text", ["", "a..b", ".a", "a.", "a b", "a.>.b"])
def test_what_is_no_filter(text: str) -> None:
    assert not is_filter(text)
