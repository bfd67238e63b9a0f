"""The list of what is served: subjects to rows."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.jetstream.dispatch import CAPTURED, OPERATIONS, PREFIX, Operation, find, handler_of
from jetraft.store.model.subject import matches, overlaps


@pytest.mark.parametrize(
    ("subject", "pattern", "names"),
    [
        (b"INFO", b"INFO", ()),
        (b"STREAM.CREATE.S", b"STREAM.CREATE.*", ("S",)),
        (b"STREAM.MSG.GET.S", b"STREAM.MSG.GET.*", ("S",)),
        (b"STREAM.LEADER.STEPDOWN.S", b"STREAM.LEADER.STEPDOWN.*", ("S",)),
        (b"CONSUMER.CREATE.S", b"CONSUMER.CREATE.*", ("S",)),
        (b"CONSUMER.CREATE.S.c", b"CONSUMER.CREATE.*.*", ("S", "c")),
        (b"CONSUMER.CREATE.S.c.f", b"CONSUMER.CREATE.*.*.>", ("S", "c", "f")),
        (b"CONSUMER.CREATE.S.c.f.g.>", b"CONSUMER.CREATE.*.*.>", ("S", "c", "f.g.>")),
        (b"CONSUMER.DURABLE.CREATE.S.c", b"CONSUMER.DURABLE.CREATE.*.*", ("S", "c")),
        (b"CONSUMER.INFO.S.\xff", b"CONSUMER.INFO.*.*", ("S", "\ufffd")),
    ],
)
def test_a_request_finds_its_row(subject: bytes, pattern: bytes, names: tuple[str, ...]) -> None:
    found = find(PREFIX + subject)
    assert found is not None
    assert (found.operation.pattern, found.names) == (pattern, names)


@pytest.mark.parametrize(
    "subject",
    [
        b"$JS.API.FOO",
        b"$JS.API.STREAM",
        b"$JS.API.STREAM.CREATE",
        b"$JS.API.STREAM.CREATE.S.x",
        b"$JS.API.INFO.x",
        b"$JS.API.CONSUMER.MSG.NEXT.S.c",
        b"$JS.API.DIRECT.GET.S",
        b"$JS.API.",
        b"INFO",
        b"",
    ],
)
def test_other_subjects_have_no_row(subject: bytes) -> None:
    assert find(subject) is None


tokens = st.sampled_from([b"STREAM", b"CONSUMER", b"CREATE", b"INFO", b"S", b"c", b"MSG", b"GET", b"*", b">", b""])


@given(st.lists(tokens, min_size=1, max_size=7).map(b".".join))
def test_finds_a_row_exactly_when_a_pattern_matches(subject: bytes) -> None:
    rows = [row for row in OPERATIONS if matches(row.pattern, subject) or same_shape(row.pattern, subject)]
    found = find(PREFIX + subject)
    assert ([found.operation] if found else []) == rows


def same_shape(pattern: bytes, subject: bytes) -> bool:
    """As `matches`, but wildcards and empty tokens in the subject are ordinary tokens: names are checked later."""
    wanted, given_tokens = pattern.split(b"."), subject.split(b".")
    if wanted[-1] == b">":
        return len(given_tokens) >= len(wanted) and agree(wanted[:-1], given_tokens)
    return len(given_tokens) == len(wanted) and agree(wanted, given_tokens)


def agree(wanted: list[bytes], given_tokens: list[bytes]) -> bool:
    return all(one in (b"*", other) for one, other in zip(wanted, given_tokens, strict=False))


def test_every_row_is_captured_once() -> None:
    for row in OPERATIONS:
        subject = PREFIX + row.pattern.replace(b"*", b"x").replace(b">", b"y")
        assert sum(matches(pattern, subject) for pattern in CAPTURED) == 1, row.pattern


def test_captured_subjects_do_not_overlap_and_leave_the_data_plane_alone() -> None:
    for index, one in enumerate(CAPTURED):
        assert not any(overlaps(one, other) for other in CAPTURED[index + 1 :])
        assert not matches(one, b"$JS.API.CONSUMER.MSG.NEXT.S.c")
        assert not matches(one, b"$JS.API.DIRECT.GET.S")
        assert not matches(one, b"$JS.API.DIRECT.GET.S.a.b")


def test_no_two_rows_serve_the_same_request() -> None:
    patterns = [row.pattern for row in OPERATIONS]
    assert len(set(patterns)) == len(patterns)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.handler)
def test_the_name_of_a_handler_is_that_of_a_function_over_the_cluster_and_a_call(operation: Operation) -> None:
    handler = handler_of(operation.handler)
    assert inspect.iscoroutinefunction(handler)
    assert len(inspect.signature(handler).parameters) == 2
