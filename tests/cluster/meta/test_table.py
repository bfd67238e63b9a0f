"""What the table holds, and that a snapshot is the table."""

import attrs
import msgpack
import pytest

from jetraft.cluster.meta import table as table_module
from jetraft.cluster.meta.commands import BadCommandError
from jetraft.cluster.meta.table import MetaTable
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.store.model.config import StreamSource
from tests.cluster.meta.makers import ACCOUNT, N1, assignment


def test_a_snapshot_restores_an_equal_table() -> None:
    table = MetaTable()
    table.put(assignment("A", "a.>", incarnation=1))
    table.put(assignment("B", "b", incarnation=2))
    table.remove(StreamKey(ACCOUNT, "A"))
    table.name_node(N1, "first")

    restored = MetaTable.unpack(table.pack())

    assert restored.pack() == table.pack()
    assert restored.streams == table.streams
    assert restored.node_names == {N1: "first"}
    assert restored.is_removed(assignment("A", incarnation=1).group_id, N1)
    assert not restored.are_taken(ACCOUNT, [b"a.x"])
    assert restored.are_taken(ACCOUNT, [b"*"])


def test_a_stream_that_was_never_removed_has_no_tombstone() -> None:
    table = MetaTable()
    table.put(assignment("A"))
    assert not table.is_removed(assignment("A").group_id, N1)
    assert not table.is_removed(assignment("unknown").group_id, N1)


def test_replacing_an_assignment_releases_its_old_subjects() -> None:
    table = MetaTable()
    table.put(assignment("A", "old"))
    table.put(assignment("A", "new"))
    assert not table.are_taken(ACCOUNT, [b"old"])
    assert table.are_taken(ACCOUNT, [b"new"])
    assert not table.are_taken(ACCOUNT, [b"new"], ignore="A")


def test_subjects_of_another_account_do_not_overlap() -> None:
    table = MetaTable()
    table.put(assignment("A", "a"))
    assert not table.are_taken("other", [b"a"])


def test_the_oldest_tombstones_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "TOMBSTONES_MAX", 2)
    table = MetaTable()
    for incarnation in (1, 2, 3):
        table.put(assignment("A", incarnation=incarnation))
        table.remove(StreamKey(ACCOUNT, "A"))
    removed = [table.is_removed(assignment("A", incarnation=number).group_id, N1) for number in (1, 2, 3)]
    assert removed == [False, True, True]
    assert table.statistics().tombstones == 2


@pytest.mark.parametrize("packed", [b"", b"\xc1", msgpack.packb([2, [], [], []]), msgpack.packb([1, [[]], [], []])])
def test_a_snapshot_of_another_format_is_refused(packed: bytes) -> None:
    with pytest.raises(BadCommandError):
        MetaTable.unpack(packed)


def test_a_stream_is_known_with_its_mirrors() -> None:
    def mirror(name: str, origin: str) -> StreamAssignment:
        row = assignment(name)
        return attrs.evolve(row, config=attrs.evolve(row.config, subjects=(), mirror=StreamSource(name=origin)))

    def names(of: MetaTable) -> list[str]:
        return [row.config.name for row in of.mirrors_of(ACCOUNT, "O")]

    table = MetaTable()
    for row in (assignment("O", "o"), mirror("M", "O"), mirror("P", "O"), mirror("Q", "M")):
        table.put(row)
    assert names(table) == names(MetaTable.unpack(table.pack())) == ["M", "P"]
    table.put(assignment("M", "m"))  # promoted
    assert names(table) == ["P"]
    table.remove(StreamKey(ACCOUNT, "P"))
    assert names(table) == []
    assert [row.config.name for row in table.mirrors_of(ACCOUNT, "M")] == ["Q"]
