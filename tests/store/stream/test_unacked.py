import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.stream._runs import Runs
from jetraft.store.stream._unacked import UnackedTable

seqs = st.sets(st.integers(0, 60), max_size=20).map(sorted)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(1, 3), min_size=1, max_size=12), st.integers(1, 3)),
        st.tuples(st.just("remove"), seqs, st.just(0)),
        st.tuples(st.just("up_to"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("set"), st.integers(0, 60), st.integers(1, 3)),
        st.tuples(st.just("set_at"), seqs, st.integers(1, 5)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


class Model:
    """The same table as a dict of [consumer sequence, time, count]."""

    def __init__(self) -> None:
        self.rows: dict[int, list[int]] = {}
        self.last = self.given = 0

    def add(self, gaps: list[int], at_ns: int) -> Runs:
        added = []
        for gap in gaps:
            self.last += gap
            self.given += 1
            self.rows[self.last] = [self.given, at_ns, 1]
            added.append(self.last)
        return Runs(added)

    def remove(self, gone: list[int]) -> Runs:
        return Runs([seq for seq in gone if self.rows.pop(seq, None)])


def play(table: UnackedTable, model: Model, step: tuple[str, object, int]) -> None:
    kind, what, number = step
    match kind, what:
        case "add", list(gaps):
            first = model.given + 1
            table.add(model.add(gaps, number), first, number)
        case "remove", list(gone):
            assert table.remove(Runs(gone)) == model.remove(gone)
        case "up_to", int(seq):
            assert table.remove_up_to(seq) == model.remove([other for other in model.rows if other <= seq])
        case "set", int(seq):
            assert table.get(seq) == (tuple(model.rows[seq]) if seq in model.rows else None)
            if seq in model.rows:
                table.set(seq, 9, number)
                model.rows[seq][1:] = [9, number]
        case "set_at", list(chosen):
            table.set_at(Runs(chosen), number)
            for seq in set(chosen).intersection(model.rows):
                model.rows[seq][1] = number
        case _:
            table.clear()
            model.__init__()  # type: ignore[misc]  # as new


@given(steps)
def test_the_table_agrees_with_a_dict(history: list[tuple[str, object, int]]) -> None:
    table, model = UnackedTable(), Model()
    for step in history:
        play(table, model, step)
        expected = [(seq, *row) for seq, row in model.rows.items()]
        assert table.rows() == expected
        assert list(table) == list(model.rows)
        assert len(table) == len(expected)
        assert table.first() == ((expected[0][1], expected[0][0]) if expected else None)
        assert table.num_redelivered == sum(row[2] > 1 for row in model.rows.values())
        assert [seq in table for seq in range(70)] == [seq in model.rows for seq in range(70)]
        for at_ns in (1, 2, 3):
            found = [seq for seq, row in model.rows.items() if 5 <= seq <= 40 and row[1] == at_ns]
            assert list(table.with_at(5, 40, at_ns)) == found


@given(steps)
def test_a_packed_table_comes_back(history: list[tuple[str, object, int]]) -> None:
    table, model = UnackedTable(), Model()
    for step in history:
        play(table, model, step)
    again = UnackedTable.unpack(table.pack())
    assert again == table
    assert again.pack() == table.pack()
    assert again.num_redelivered == table.num_redelivered


@given(st.binary(max_size=30))
def test_no_bytes_unpack_to_a_table_that_packs_otherwise(packed: bytes) -> None:
    with contextlib.suppress(ValueError):
        table = UnackedTable.unpack(packed)
        assert UnackedTable.unpack(table.pack()) == table


@pytest.mark.parametrize("packed", [b"\x01", b"\x01\x02\x02\x00", b"\x01\x02\x02\x01\x00\x02\x02\x01", b"\xff" * 11])
def test_what_is_not_a_packed_table_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        UnackedTable.unpack(packed)


def test_room_stays_in_proportion_to_what_is_live() -> None:
    table = UnackedTable()
    for first in range(1, 2_000_000, 10_000):
        table.add(Runs(range(first, first + 10_000)), first, 0)
        table.remove(Runs(range(first, first + 9_999)))
    assert len(table) == 200
    assert table.memory_bytes <= 64 * 20_000
    table.remove_up_to(2_000_000)
    for seq in range(2_000_001, 2_000_040):
        table.put(seq, seq, 0, 1)
        table.remove(Runs([seq]))
    assert table.memory_bytes <= 64 * 32


def test_rows_only_ever_ascend() -> None:
    table = UnackedTable()
    table.put(5, 1, 0, 1)
    with pytest.raises(AssertionError, match="ascend"):
        table.add(Runs([5]), 2, 0)
