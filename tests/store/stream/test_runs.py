import contextlib
from collections.abc import Sequence
from itertools import pairwise

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.stream._runs import Runs

ascending = st.sets(st.integers(0, 200) | st.integers(2**62, 2**62 + 20), max_size=60).map(sorted)
places = st.integers(0, 70)


@given(ascending)
def test_runs_are_the_sequences_that_they_were_made_of(seqs: list[int]) -> None:
    runs = Runs(seqs)
    assert list(runs) == seqs
    assert len(runs) == len(seqs)
    assert (runs.first, runs.last) == ((seqs[0], seqs[-1]) if seqs else (0, 0))
    assert [runs[place] for place in range(-len(seqs), len(seqs))] == seqs * 2
    assert list(runs[1:-1]) == seqs[1:-1]


@given(ascending)
def test_runs_never_touch(seqs: list[int]) -> None:
    spans = Runs(seqs).spans()
    assert all(first + count < later for (first, count), (later, _) in pairwise(spans))


@given(ascending, st.integers(0, 201))
def test_membership_and_what_lies_above_agree_with_a_list(seqs: list[int], seq: int) -> None:
    runs = Runs(seqs)
    assert (seq in runs) == (seq in seqs)
    assert list(runs.above(seq)) == [other for other in seqs if other > seq]


@given(ascending, places, places)
def test_a_part_is_a_slice(seqs: list[int], start: int, count: int) -> None:
    assert list(Runs(seqs).part(start, count)) == seqs[start : start + count]


@given(ascending, st.integers(1, 9), places)
def test_every_nth_is_a_slice_with_a_step(seqs: list[int], step: int, place: int) -> None:
    assert list(Runs(seqs).every(step, place)) == seqs[place::step]


@given(ascending, ascending)
def test_runs_are_equal_when_their_sequences_are(one: list[int], other: list[int]) -> None:
    assert (Runs(one) == Runs(other)) == (one == other)


@given(ascending)
def test_packed_runs_come_back(seqs: list[int]) -> None:
    assert Runs.unpack(Runs(seqs).pack()) == Runs(seqs)


@given(ascending | st.sampled_from([range(70_000), range(2**32 - 3, 2**32 + 3), range(65_530, 65_540)]))
def test_a_list_is_packed_as_msgpack_does_it(seqs: Sequence[int]) -> None:
    assert Runs(seqs).pack_list() == msgpack.packb(list(seqs))


@given(st.binary(max_size=30))
def test_no_bytes_unpack_to_runs_that_pack_otherwise(packed: bytes) -> None:
    with contextlib.suppress(ValueError):
        runs = Runs.unpack(packed)
        assert Runs.unpack(runs.pack()) == runs


@pytest.mark.parametrize(
    "packed",
    [
        b"\x01",  # a gap without a run
        b"\x01\x00",  # an empty run
        b"\x01\x01\x00\x01",  # two runs that touch
        b"\xff" * 9 + b"\x01\x01",  # a sequence above 2**63 - 1
    ],
)
def test_what_is_not_packed_runs_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="run"):
        Runs.unpack(packed)


def test_a_thousand_in_a_row_take_a_few_bytes() -> None:
    assert len(Runs(range(10_000, 11_000)).pack()) == 4


def test_sequences_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(AssertionError, match="ascend"):
        Runs([2, 1])
