"""Subjects against a brute-force model: every literal subject over a small alphabet, up to a small length."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model import subject
from jetraft.store.model.mapping.subject_pairs import TooManyComparisonsError, find_pair

WORDS = (b"a", b"b", b"*x")  # the last one is literal although it contains a star
DEPTH = 4
LITERALS = [b".".join(words) for depth in range(1, DEPTH + 1) for words in itertools.product(WORDS, repeat=depth)]

patterns = st.builds(
    lambda words, tail: b".".join([*words, b">"] if tail else words),
    st.lists(st.sampled_from((*WORDS, b"*")), min_size=1, max_size=3),
    st.booleans(),
) | st.just(b">")


def model_matches(pattern: bytes, literal: bytes) -> bool:
    """Token by token, by the definition."""
    wanted, given_tokens = pattern.split(b"."), literal.split(b".")
    for index, token in enumerate(wanted):
        if token == b">":
            return len(given_tokens) > index
        if index >= len(given_tokens) or token not in (b"*", given_tokens[index]):
            return False
    return len(wanted) == len(given_tokens)


def reached(pattern: bytes) -> set[bytes]:
    return {literal for literal in LITERALS if model_matches(pattern, literal)}


@given(patterns)
def test_matches_is_the_definition(pattern: bytes) -> None:
    assert {literal for literal in LITERALS if subject.matches(pattern, literal)} == reached(pattern)


@given(patterns, patterns)
def test_overlaps_means_a_common_literal(one: bytes, other: bytes) -> None:
    """Patterns have at most four tokens, and so have the literals: a common one is found if there is any."""
    assert subject.overlaps(one, other) == bool(reached(one) & reached(other))


@given(patterns, patterns)
def test_subset_means_every_literal(inner: bytes, outer: bytes) -> None:
    """The alphabet has a word that no literal token of a pattern exhausts, so `*` is never covered by words."""
    assert subject.is_subset(inner, outer) == (reached(inner) <= reached(outer))


@given(patterns)
def test_a_pattern_is_valid_and_is_literal_exactly_without_wildcard_tokens(pattern: bytes) -> None:
    assert subject.valid_subject(pattern)
    assert subject.is_literal(pattern) == (not {b"*", b">"} & set(pattern.split(b".")))
    assert subject.valid_publish_subject(pattern) == subject.is_literal(pattern)


@given(st.binary(max_size=20))
def test_any_bytes_are_judged_without_failing(text: bytes) -> None:
    valid = subject.valid_subject(text)

    has_white_space = any(byte in b" \t\r\n\f" for byte in text)
    parts = text.split(b".")
    assert valid == (not has_white_space and all(parts) and b">" not in parts[:-1])
    assert subject.matches(text, text)
    assert subject.overlaps(text, text)


@pytest.mark.parametrize("text", [b"", b".", b"a.", b".a", b"a..b", b">.a", b"a.>.b", b"a b", b"a\t", b"\r\n", b"\f"])
def test_malformed_subjects_are_not_valid(text: bytes) -> None:
    assert not subject.valid_subject(text)


@pytest.mark.parametrize("text", [b"a", b"a.b", b"*", b">", b"a.*.>", b"a*", b"a>b", b">a.b", b"a.*b.>", "é".encode()])
def test_well_formed_subjects_are_valid(text: bytes) -> None:
    assert subject.valid_subject(text)


@pytest.mark.parametrize("name", [b"A", b"a-b_c", b"$JS", "名".encode(), b"n" * 255])
def test_asset_names_that_are_allowed(name: bytes) -> None:
    assert subject.valid_asset_name(name)


@pytest.mark.parametrize("byte", [*range(0x21), 0x7F, *b".*>/\\"])
def test_bytes_that_no_asset_name_may_contain(byte: int) -> None:
    """nats-server lets most control characters pass; names become directories here, so none does."""
    assert not subject.valid_asset_name(b"a" + bytes([byte]))


def test_an_empty_name_is_not_valid() -> None:
    assert not subject.valid_asset_name(b"")


@pytest.mark.parametrize(
    ("text", "jetstream", "system"),
    [
        (b"a", False, False),
        (b"$JS.API.INFO", True, False),
        (b"$JS.EVENT.>", False, False),
        (b"$JS.EVENT.ADVISORY.x", False, False),
        (b"$JS.*", True, False),
        (b"$JS", False, False),
        (b"$JSC.a", True, False),
        (b"$NRG.a", True, False),
        (b"$SYS.REQ.a", False, True),
        (b"$SYS.ACCOUNT.a", False, False),
        (b"$SYS.>", False, True),
        (b"*.a", True, True),
        (b">", True, True),
    ],
)
def test_the_servers_own_subjects_are_known(text: bytes, jetstream: bool, system: bool) -> None:  # noqa: FBT001
    assert subject.captures_jetstream_space(text) == jetstream
    assert subject.captures_system_space(text) == system


def test_no_patterns_match_everything() -> None:
    assert subject.matches_any((), b"a")
    assert subject.matches_any((b"x", b"a.*"), b"a.b")
    assert not subject.matches_any((b"x", b"a.*"), b"a")


@given(st.lists(patterns, max_size=8), st.sampled_from((subject.overlaps, subject.one_covers_other)))
def test_the_first_touching_pair_is_found(subjects: list[bytes], touch: object) -> None:
    assert callable(touch)
    pairs = itertools.combinations(range(len(subjects)), 2)
    expected = next(((i, j) for i, j in pairs if touch(subjects[i], subjects[j])), None)

    assert find_pair(subjects, touch) == expected


def test_many_literals_are_cheap_and_many_wildcards_are_refused() -> None:
    literals = [b"s.%d" % number for number in range(100_000)]
    assert find_pair(literals, subject.overlaps, comparisons_max=0) is None
    assert find_pair([*literals, b"s.7"], subject.overlaps) == (7, 100_000)

    wildcards = [b"*.%d" % number for number in range(1_000)]
    assert find_pair(wildcards, subject.overlaps, comparisons_max=0) is None
    assert find_pair([*literals, b"s.99999"], subject.overlaps) == (99_999, 100_000)
    assert find_pair([*wildcards, b"*.7"], subject.overlaps) == (7, 1_000)
    crossed = [b"%d.*.x" % number for number in range(1_000)] + [b"*.%d.y" % number for number in range(1_000)]
    with pytest.raises(TooManyComparisonsError):
        find_pair(crossed, subject.overlaps)
    with pytest.raises(TooManyComparisonsError):
        find_pair([b"a.*.%d" % number for number in range(1_000)] + [b"a.b.*"], subject.one_covers_other)
