"""What a node throws away leaves the groups' directory in one step, before a byte of it is removed."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from jetraft.cluster.streams.host import StreamHost
from jetraft.cluster.streams.memory_groups import MemoryGroups
from jetraft.raft.joining import Admission, JoinPendingError
from jetraft.store import ledger_records
from jetraft.store.io import LocalDisk, Writer
from jetraft.store.model.ids import GroupId
from jetraft.store.node_dir import NodeDir
from jetraft.store.port import GroupLog, StoreCorrupt, StoreError, StoreMisplaced, StoreNewer, StoreRefused
from tests.cluster.meta.makers import N2, N3, assignment

if TYPE_CHECKING:
    from jetraft.cluster.meta.assignment import StreamAssignment
    from jetraft.cluster.meta.saved_rows import SavedRows
    from jetraft.raft.repair import Repairs

GROUP, OTHER = GroupId("S-R3F-gone0000"), GroupId("S-R3F-kept0000")


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    writer = Writer(1)
    yield LocalDisk(writer)
    writer.stop()


@pytest.fixture
def node_dir(disk: LocalDisk, tmp_path: Path) -> NodeDir:
    made = NodeDir.open(disk, tmp_path, server_name="n1", named=True, cluster="C")
    for group_id in (GROUP, OTHER):
        place = made.group(group_id, 7)
        place.mkdir()
        (place / "block").write_bytes(b"messages")
    return made


def host_over(node_dir: NodeDir) -> StreamHost:
    """A host of which only the throwing away is used."""
    forgets = SimpleNamespace(forget=lambda _group_id: None)
    memory_groups = MemoryGroups(node_dir.ledger)
    fields: dict[str, Any] = {field.name: None for field in StreamHost.__attrs_attrs__ if field.init}
    return StreamHost(**{**fields, "node_dir": node_dir, "repairs": forgets, "memory_groups": memory_groups})


async def test_data_is_in_the_trash_when_its_removal_begins(node_dir: NodeDir, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bytes]] = []

    def look(path: Path, **_options: object) -> None:
        seen.append((node_dir.group(GROUP, 7).exists(), (path / "block").read_bytes()))

    monkeypatch.setattr(shutil, "rmtree", look)
    await host_over(node_dir).discard(GROUP)
    assert seen == [(False, b"messages")]
    assert list(node_dir.groups()) == [(OTHER, 7)]


async def test_the_row_of_a_group_goes_before_its_data(node_dir: NodeDir) -> None:
    host = host_over(node_dir)
    seen: list[tuple[GroupId, bool]] = []
    forgets = SimpleNamespace(forget=lambda group_id: seen.append((group_id, node_dir.group(GROUP, 7).exists())))
    host.saved_rows = cast("SavedRows", forgets)
    await host.discard(GROUP)
    assert seen == [(GROUP, True)]


async def test_a_node_that_died_while_removing_does_not_have_the_group_again(
    disk: LocalDisk, node_dir: NodeDir, tmp_path: Path
) -> None:
    await node_dir.move_to_trash(GROUP, 7)
    node_dir.close()
    again = NodeDir.open(disk, tmp_path, server_name="n1", named=True, cluster="C")
    assert list(again.groups()) == [(OTHER, 7)]
    again.empty_trash()
    assert not list((tmp_path / "trash").iterdir())


async def test_deleted_data_frees_its_room_when_the_ledger_cannot_be_told(
    disk: LocalDisk, node_dir: NodeDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting is how a full disk gets room again. What the ledger still knows then is struck later."""
    node_dir.ledger.commit_now(ledger_records.noted((GROUP, 7)))
    host = host_over(node_dir)

    async def full(*_records: bytes) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(node_dir.ledger, "commit", full)
        with pytest.raises(OSError, match="no room"):
            await host.discard(GROUP)
    assert not list((tmp_path / "trash").iterdir())
    assert (GROUP, 7) in host.stored_groups()


class Opening:
    """Repairs of a node where the log of every group meets the same error."""

    def __init__(self, error: StoreError) -> None:
        self._error = error

    async def open(self, *_arguments: object, **_options: object) -> GroupLog:
        raise self._error


async def never_admitted(_row: "StreamAssignment") -> Admission:
    raise JoinPendingError("nobody answers")


@pytest.mark.parametrize("error", [StoreCorrupt("b"), StoreMisplaced("b"), StoreRefused("b"), StoreNewer("b")])
async def test_only_what_is_lost_is_had_from_others_and_never_by_an_only_holder(
    node_dir: NodeDir, error: StoreError
) -> None:
    host = host_over(node_dir)
    host.repairs = cast("Repairs", Opening(error))
    host.admit = never_admitted
    own = node_dir.node_id
    is_lost = isinstance(error, (StoreCorrupt, StoreMisplaced))
    with pytest.raises(JoinPendingError if is_lost else type(error)):
        await host.start(assignment("S", peers=(own, N2, N3)))
    with pytest.raises(type(error)):
        await host.start(assignment("S", peers=(own,)))
