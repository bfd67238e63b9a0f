"""The heap of ends does what a sorted list does, and its bytes are what msgpack makes of the pairs."""

from collections.abc import Sequence

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.stream._ends import EndHeap

INT64_MAX = 2**63 - 1
ENDS = st.one_of(st.integers(1, 300), st.integers(-(2**63), -1), st.integers(1, INT64_MAX))
PAIRS = st.lists(st.tuples(ENDS, st.integers(0, INT64_MAX)), max_size=60)


def filled(pairs: Sequence[tuple[int, int]]) -> EndHeap:
    ends = EndHeap()
    for end_ns, seq in pairs:
        ends.push(end_ns, seq)
    return ends


def drained(ends: EndHeap) -> list[tuple[int, int]]:
    found = []
    while (first := ends.first()) is not None:
        assert ends.pop() == first
        found.append(first)
    return found


@given(PAIRS)
def test_the_earliest_comes_first(pairs: list[tuple[int, int]]) -> None:
    ends = filled(pairs)
    assert len(ends) == len(pairs)
    assert drained(ends) == sorted(pairs)
    with pytest.raises(IndexError):
        ends.pop()


@given(pairs=PAIRS, never=st.lists(st.integers(0, INT64_MAX), max_size=20), more=PAIRS)
def test_a_snapshot_is_the_pairs_in_order_and_comes_back(
    pairs: list[tuple[int, int]], never: list[int], more: list[tuple[int, int]]
) -> None:
    ends = filled(pairs)
    packed = ends.pack(sorted(never))
    assert packed == msgpack.packb([*((0, seq) for seq in sorted(never)), *sorted(pairs)])
    again = filled(more)
    assert again.restore(packed) == sorted(never)
    for each in (ends, again):  # both go on as heaps
        for end_ns, seq in more:
            each.push(end_ns, seq)
        assert drained(each) == sorted(pairs + more)


@given(pairs=PAIRS, odd=st.booleans())
def test_only_what_is_wanted_is_kept(pairs: list[tuple[int, int]], odd: bool) -> None:  # noqa: FBT001  (drawn)
    ends = filled(pairs)
    ends.keep(lambda seq: seq % 2 == odd)
    assert drained(ends) == sorted(pair for pair in pairs if pair[1] % 2 == odd)


@given(pairs=PAIRS.filter(bool), data=st.data())
def test_a_question_that_fails_loses_nothing_that_was_not_looked_at(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    ends, answered = filled(pairs), data.draw(st.integers(0, len(pairs) - 1))
    refused: list[int] = []

    def is_wanted(seq: int) -> bool:
        if len(refused) == answered:
            raise LookupError
        refused.append(seq)
        return False

    with pytest.raises(LookupError):
        ends.keep(is_wanted)
    left = drained(ends)
    assert left == sorted(left)
    assert sorted([*refused, *(seq for _, seq in left)]) == sorted(seq for _, seq in pairs)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc0",
        msgpack.packb([1, 2]),
        msgpack.packb([(1, 2, 3)]),
        msgpack.packb([(1, "2")]),
        msgpack.packb([(1, 2**63)]),
        msgpack.packb([(1, 2)]) + b"\x00",
        msgpack.packb([(1, 2), (3, 4)])[:-1],
        b"\xdd\xff\xff\xff\xff",
    ],
)
def test_other_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"pair|bytes after"):
        EndHeap().restore(packed)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(packed: bytes) -> None:
    ends = EndHeap()
    try:
        never = ends.restore(packed)
    except ValueError:
        return
    assert [tuple(pair) for pair in msgpack.unpackb(ends.pack(never))] == sorted(
        (int(end_ns), int(seq)) for end_ns, seq in msgpack.unpackb(packed)
    )
