"""The heap of ends does what a sorted list does, and its bytes are what msgpack makes of the pairs."""

from array import array
from collections.abc import Sequence
from functools import partial
from operator import lt

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.stream._ends import EndHeap
from jetraft.store.stream._seqset import pack_ranges

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


def packed_of(ends: EndHeap, never: Sequence[int] = ()) -> bytes:
    """A snapshot in which everything is live."""
    return bytes(ends.copy().pack(array("Q", never), b"", 0, INT64_MAX))


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
    packed = packed_of(ends, sorted(never))
    assert packed == msgpack.packb([*((0, seq) for seq in sorted(never)), *sorted(pairs)])
    again = filled(more)
    assert again.restore(packed) == sorted(never)
    for each in (ends, again):  # both go on as heaps
        for end_ns, seq in more:
            each.push(end_ns, seq)
        assert drained(each) == sorted(pairs + more)


LIVE = st.sets(st.integers(1, 80), max_size=60)


@given(pairs=st.lists(st.tuples(ENDS, st.integers(0, 90)), max_size=60), live=LIVE)
def test_a_snapshot_leaves_out_what_is_gone(pairs: list[tuple[int, int]], live: set[int]) -> None:
    first, last = min(live, default=1), max(live, default=0)
    gone = [(seq, seq) for seq in range(first, last + 1) if seq not in live]
    dead = pack_ranges(gone, first)
    ends = filled(pairs)
    copied = ends.copy()
    while len(ends):  # what happens afterwards is not in it
        ends.pop()
    packed = copied.pack(array("Q"), dead, first, last)
    assert [tuple(pair) for pair in msgpack.unpackb(packed)] == sorted(pair for pair in pairs if pair[1] in live)


@given(pairs=PAIRS, odd=st.booleans(), count=st.integers(0, 200))
def test_a_sweep_removes_only_what_is_not_wanted(pairs: list[tuple[int, int]], odd: bool, count: int) -> None:  # noqa: FBT001  (drawn)
    ends = filled(pairs)
    ends.sweep(lambda seq: seq % 2 == odd, count)
    left = drained(ends)
    wanted = sorted(pair for pair in pairs if pair[1] % 2 == odd)
    assert [pair for pair in left if pair[1] % 2 == odd] == wanted
    assert left == sorted(left)
    assert left == wanted or count < 2 * len(pairs)


def test_two_places_for_each_that_is_added_bound_what_is_kept_of_what_is_gone() -> None:
    ends, kept = EndHeap(), 100
    most = 0
    for seq in range(20_000):
        ends.push(10**9 - seq % 977, seq)
        ends.sweep(partial(lt, seq - kept), 2)
        most = max(most, len(ends))
    assert most <= 2 * kept + 2


@pytest.mark.parametrize("dead", [b"\x01", b"\x01\x00", b"\xff" * 12])
def test_damaged_runs_of_what_is_gone_are_refused(dead: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        filled([(1, 1)]).copy().pack(array("Q"), dead, 1, 9)


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
    assert [tuple(pair) for pair in msgpack.unpackb(packed_of(ends, never))] == sorted(
        (int(end_ns), int(seq)) for end_ns, seq in msgpack.unpackb(packed)
    )
