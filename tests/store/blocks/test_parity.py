"""One damaged place of a block is restored from its parity; nothing that is not proved is returned."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.blocks.parity import ROWS_MAX, UNIT_BYTES, mended, pack
from jetraft.store.frames.format import Identity
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import StoreCorrupt, StoreMisplaced

IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
sizes = st.one_of(st.integers(1, 3 * UNIT_BYTES), st.integers(1, 70 * UNIT_BYTES))


@given(size=sizes, seed=st.integers(0, 1 << 16), share=st.floats(0, 1), length=st.integers(1, UNIT_BYTES))
def test_damage_of_a_unit_anywhere_is_undone(size: int, seed: int, share: float, length: int) -> None:
    random = Random(seed)
    data = random.randbytes(size)
    unit = int(share * (size - 1)) // UNIT_BYTES
    start = unit * UNIT_BYTES + random.randrange(min(UNIT_BYTES, size - unit * UNIT_BYTES))
    end = min(start + length, (unit + 1) * UNIT_BYTES, size)
    damaged = data[:start] + random.randbytes(end - start) + data[end:]
    assert mended(damaged, pack(data, IDENTITY), IDENTITY, [(start, end)]) == data


def test_a_run_as_long_as_a_row_is_undone_and_a_longer_one_is_not() -> None:
    data = Random(1).randbytes(4 * ROWS_MAX * UNIT_BYTES)
    parity, row = pack(data, IDENTITY), 4 * UNIT_BYTES
    for start, length in ((UNIT_BYTES, row), (UNIT_BYTES, row + UNIT_BYTES)):
        end = start + length
        damaged = data[:start] + bytes(length) + data[end:]
        found = mended(damaged, parity, IDENTITY, [(start, end)])
        assert found == (data if length == row else None)


def test_a_part_that_was_changed_on_purpose_is_not_changed_back() -> None:
    data = Random(2).randbytes(64 * UNIT_BYTES)
    changed = data[: 5 * UNIT_BYTES] + bytes(UNIT_BYTES) + data[6 * UNIT_BYTES :]
    damaged = changed[:100] + b"?" + changed[101:]
    found = mended(damaged, pack(data, IDENTITY), IDENTITY, [(0, 200)])
    assert found == changed
    same_stripe = data[: 2 * UNIT_BYTES] + bytes(UNIT_BYTES) + data[3 * UNIT_BYTES :]
    damaged = same_stripe[:100] + b"?" + same_stripe[101:]
    assert mended(damaged, pack(data, IDENTITY), IDENTITY, [(0, 200)]) is None


def test_damaged_parity_and_that_of_another_group_are_refused() -> None:
    data = Random(3).randbytes(UNIT_BYTES)
    parity = pack(data, IDENTITY)
    with pytest.raises(StoreCorrupt):
        mended(data, parity[:-1] + bytes([parity[-1] ^ 1]), IDENTITY, [(0, 10)])
    other = Identity(node_id=IDENTITY.node_id, group_id=GroupId("S-R1F-zzzzzzzz"), incarnation=7)
    with pytest.raises(StoreMisplaced):
        mended(data, parity, other, [(0, 10)])
