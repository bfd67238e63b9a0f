"""Overlaps are found as by comparing with every pattern, and forgotten with the stream."""

import sys
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.meta.claims import SubjectClaims
from jetraft.store.model.subject import overlaps

tokens = st.sampled_from([b"a", b"b", b"c", b"*"])
patterns = st.builds(
    lambda parts, tail: b".".join(parts) + tail, st.lists(tokens, min_size=1, max_size=3), st.sampled_from([b"", b".>"])
) | st.just(b">")
streams = st.dictionaries(st.sampled_from("STUV"), st.lists(patterns, min_size=1, max_size=3, unique=True), max_size=4)


@given(streams, patterns, st.sampled_from("STUV"))
def test_finds_what_a_scan_over_everything_finds(held: dict[str, list[bytes]], asked: bytes, ignored: str) -> None:
    claims = SubjectClaims()
    for name, subjects in held.items():
        claims.add(name, subjects)

    found = set(claims.overlapping(asked, ignore=ignored))

    expected = {
        name for name, subjects in held.items() if name != ignored and any(overlaps(one, asked) for one in subjects)
    }
    assert found == expected


@given(streams, patterns)
def test_removed_streams_claim_nothing(held: dict[str, list[bytes]], asked: bytes) -> None:
    claims = SubjectClaims()
    for name, subjects in held.items():
        claims.add(name, subjects)
    for name, subjects in held.items():
        claims.remove(name, subjects)

    assert list(claims.overlapping(asked)) == []


def test_an_overlap_is_found_without_a_look_at_streams_that_differ_in_the_last_token() -> None:
    """With one bucket for all patterns of a first token the creation of 10,000 streams compared 50 million pairs."""

    def lines_run(claims: SubjectClaims) -> int:
        lines = 0

        def count(_frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal lines
            lines += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            assert list(claims.overlapping(b"many.5.1")) == ["tail"]
        finally:
            sys.settrace(before)
        return lines

    claims = SubjectClaims()
    claims.add("tail", [b"many.5.>"])
    among_few = lines_run(claims)
    for number in range(1000):
        claims.add(f"S{number}", [b"many.%d" % number])
    assert lines_run(claims) < 2 * among_few


def test_a_pattern_that_is_named_twice_is_removed_once() -> None:
    """A row of the log with one would stop the meta group of every node; requests cannot have it."""
    claims = SubjectClaims()
    claims.add("S", [b"a.>", b"a.>"])
    claims.remove("S", [b"a.>", b"a.>"])
    assert not list(claims.overlapping(b"a.b"))
