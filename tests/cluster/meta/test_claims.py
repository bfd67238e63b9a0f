"""Overlaps are found as by comparing with every pattern, and forgotten with the stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.meta.claims import SubjectClaims
from jetraft.store.model._patterns import PatternTree, TooManyCombinationsError
from jetraft.store.model.subject import overlaps

tokens = st.sampled_from([b"a", b"b", b"c", b"*"])
patterns = st.builds(
    lambda parts, tail: b".".join(parts) + tail, st.lists(tokens, min_size=1, max_size=3), st.sampled_from([b"", b".>"])
) | st.just(b">")
streams = st.dictionaries(st.sampled_from("STUV"), st.lists(patterns, min_size=1, max_size=3, unique=True), max_size=4)


@given(streams, st.lists(patterns, min_size=1, max_size=3), st.sampled_from("STUV"))
def test_finds_what_a_scan_over_everything_finds(
    held: dict[str, list[bytes]], asked: list[bytes], ignored: str
) -> None:
    claims = SubjectClaims()
    for name, subjects in held.items():
        claims.add(name, subjects)
    touching = {
        name for name, subjects in held.items() if any(overlaps(mine, one) for mine in subjects for one in asked)
    }

    assert claims.are_taken(PatternTree(asked)) == bool(touching)
    assert claims.are_taken(PatternTree(asked), ignore=ignored) == bool(touching - {ignored})
    assert set().union(*(claims.overlapping(one) for one in asked)) == touching


@given(streams, patterns)
def test_removed_streams_claim_nothing(held: dict[str, list[bytes]], asked: bytes) -> None:
    claims = SubjectClaims()
    for name, subjects in held.items():
        claims.add(name, subjects)
    for name, subjects in held.items():
        claims.remove(name, subjects)

    assert list(claims.overlapping(asked)) == []


def test_wildcards_that_cross_the_claims_in_too_many_ways_are_given_up_only_before_they_are_proposed() -> None:
    claims = SubjectClaims()
    claims.add("S", [b"%d.*.x" % number for number in range(600)])
    crossing = PatternTree(b"*.%d.y" % number for number in range(600))

    with pytest.raises(TooManyCombinationsError):
        claims.are_taken(crossing, bounded=True)
    assert not claims.are_taken(crossing)


def test_a_pattern_that_is_named_twice_is_removed_once() -> None:
    """A row of the log with one would stop the meta group of every node; requests cannot have it."""
    claims = SubjectClaims()
    claims.add("S", [b"a.>", b"a.>"])
    claims.remove("S", [b"a.>", b"a.>"])
    assert not list(claims.overlapping(b"a.b"))
