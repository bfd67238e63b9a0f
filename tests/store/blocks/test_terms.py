"""What is known of the terms of a log is never a guess."""

import pytest

from jetraft.store.blocks.terms import TERM_MAX, TermRuns


def runs(*terms: int) -> TermRuns:
    found = TermRuns(0, 0)
    for index, term in enumerate(terms, 1):
        found.append(index, term)
    return found


def test_a_doubtful_term_is_known_where_its_neighbours_have_the_same() -> None:
    found = runs(1, 2, 2, 2, 3)
    found.doubt(3, 3)
    assert (found.bounds(3), found.at(3)) == ((2, 2), 2)


def test_a_doubtful_term_between_two_others_is_not_known() -> None:
    found = runs(1, 1, 1, 3)
    found.doubt(2, 3)
    assert [found.at(index) for index in range(1, 5)] == [1, None, None, 3]
    assert found.bounds(2) == (1, 3)


def test_one_that_becomes_known_tightens_the_others() -> None:
    found = runs(1, 1, 1, 1, 3)
    found.doubt(2, 4)
    found.correct(3, 3)
    assert [found.at(index) for index in range(1, 6)] == [1, None, 3, 3, 3]
    found.correct(2, 2)
    assert [found.at(index) for index in range(1, 6)] == [1, 2, 3, 3, 3]


def test_an_end_is_bounded_by_what_was_promised() -> None:
    found = runs(1, 2, 2)
    found.doubt(3, 3)
    assert found.bounds(3) == (2, TERM_MAX)
    found.last_term_max = 4
    assert (found.bounds(3), found.at(3)) == ((2, 4), None)
    found.last_term_max = 2
    assert found.at(3) == found.last_term == 2
    found.last_term_max = 1  # of an earlier time
    assert found.bounds(3) == (2, TERM_MAX)


def test_what_cannot_be_is_refused_and_what_is_known_stays() -> None:
    found = runs(1, 2, 2, 3)
    found.doubt(3, 3)
    with pytest.raises(ValueError, match="expected a term of 2 to 3, found 4"):
        found.correct(3, 4)
    found.correct(2, 9)
    assert found.at(2) == 2


def test_a_boundary_is_never_doubtful() -> None:
    found = runs(1, 1, 3, 4)
    found.doubt(2, 2)
    with pytest.raises(AssertionError, match="cannot be the boundary"):
        found.drop_before(2)
    found.drop_before(3)
    assert (found.boundary, found.at(2)) == ((3, 3), None)


def test_what_is_cut_is_doubted_no_more() -> None:
    found = runs(1, 1, 2)
    found.doubt(2, 3)
    found.cut_from(2)
    found.append(2, 5)
    assert found.at(2) == found.last_term == 5
