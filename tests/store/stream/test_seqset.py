"""Runs of sequences come back as they were packed, and damaged bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.stream._seqset import PackedRanges, pack_ranges

gaps_and_runs = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 1 << 40)))


@given(st.integers(0, 1 << 50), gaps_and_runs)
def test_runs_come_back(start: int, shape: list[tuple[int, int]]) -> None:
    runs, at = [], start
    for gap, width in shape:
        runs.append((at + gap, at + gap + width - 1))
        at += gap + width
    assert PackedRanges(pack_ranges(runs, start), start).to_list() == runs


def test_an_empty_set_takes_no_bytes() -> None:
    assert pack_ranges([], 7) == b""
    assert PackedRanges(b"", 7).to_list() == []


def test_scattered_sequences_take_two_bytes_each() -> None:
    assert len(pack_ranges([(seq, seq) for seq in range(10, 1000, 10)], 1)) == 2 * 99


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",  # a gap without a run
        b"\x80",  # half a number
        b"\x01\x00",  # an empty run
        b"\xff" * 9 + b"\x01\x01",  # a gap beyond the last sequence
        b"\x80" * 11,  # a number without an end
    ],
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        PackedRanges(data, 5).to_list()
