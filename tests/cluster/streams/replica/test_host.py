"""What a node throws away leaves the groups' directory in one step, before a byte of it is removed."""

import errno
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest
import trio

from jetraft.cluster.meta.currency import Currency, UnprovedError
from jetraft.cluster.replica_logs import ReplicaLogs
from jetraft.cluster.streams.replica.host import StreamHost
from jetraft.cluster.streams.replica.memory_groups import MemoryGroups
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.recovery.joining import JoinPendingError, MemberAdmission
from jetraft.raft.recovery.repair import OvertakenError
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.node_dir import NodeDir
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import StorageType
from jetraft.store.model.ids import GroupId
from jetraft.store.port import (
    Entry,
    GroupLog,
    HardStateLost,
    StoreCorrupt,
    StoreError,
    StoreMisplaced,
    StoreNewer,
    StoreRefused,
)
from tests.cluster.meta.makers import N2, N3, assignment
from tests.doubles.meta_group import AppliedMetaGroup

if TYPE_CHECKING:
    from jetraft.cluster.meta.saved_rows import SavedRows
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.raft.recovery.repair import Repairs
    from jetraft.store.log.file_log import FileLog

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
    fields |= {"joined_index": lambda: 0, "currency": currency(), "is_in_table": lambda _row: True}
    fields |= {"admit": never_admitted, "forget_admission": lambda _group_id: None}
    fields["logs"] = ReplicaLogs(node_dir=node_dir, cache=BlockCache(1 << 20), repairs=cast("Repairs", forgets))
    return StreamHost(**{**fields, "node_dir": node_dir, "repairs": forgets, "memory_groups": memory_groups})


def currency(*, is_proved: bool = True) -> Currency:
    async def unknown() -> int | None:
        await trio.lowlevel.checkpoint()
        return None

    made = Currency(committed_index=unknown, wait_applied=AppliedMetaGroup().wait_applied)
    made.is_proved = is_proved
    return made


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


async def test_no_one_waits_while_directories_are_synced_for_a_group_that_goes(
    disk: LocalDisk, node_dir: NodeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync of a directory takes as long as the device wants; the one thread serves everybody meanwhile."""
    threads: list[int] = []
    perform = disk.perform

    def watched(batch: Any) -> None:
        threads.append(threading.get_ident())
        perform(batch)

    monkeypatch.setattr(disk, "perform", watched)
    await host_over(node_dir).discard(GROUP)
    assert not node_dir.group(GROUP, 7).exists()
    assert threads
    assert threading.get_ident() not in threads


async def test_a_group_that_leaves_the_node_is_not_waited_for(node_dir: NodeDir) -> None:
    """Others would begin the group empty, and count on this node."""
    host = host_over(node_dir)
    forgotten: list[GroupId] = []
    host.forget_admission = forgotten.append
    await host.discard(GROUP)
    assert forgotten == [GROUP]


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


async def never_admitted(_row: "StreamAssignment") -> MemberAdmission:
    raise JoinPendingError("nobody answers")


@pytest.mark.parametrize("error", [StoreCorrupt("b"), StoreMisplaced("b"), StoreRefused("b"), StoreNewer("b")])
async def test_only_what_is_lost_is_had_from_others_and_never_by_an_only_holder(
    node_dir: NodeDir, error: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is told of what an only holder has lost: the next start must not take it for a new group."""
    told: list[bytes] = []

    async def commit(*records: bytes) -> None:
        await trio.lowlevel.checkpoint()
        told.extend(records)

    monkeypatch.setattr(node_dir.ledger, "commit", commit)
    host = host_over(node_dir)
    host.logs.repairs = cast("Repairs", Opening(error))
    host.admit = never_admitted
    own = node_dir.node_id
    is_lost = isinstance(error, (StoreCorrupt, StoreMisplaced))
    with pytest.raises(JoinPendingError if is_lost else type(error)):
        await host.start(assignment("S", peers=(own, N2, N3)))
    assert not told
    row = assignment("S", peers=(own,))
    with pytest.raises(type(error)):
        await host.start(row)
    assert told == ([ledger_records.forgotten((row.group_id, row.incarnation))] if is_lost else [])


async def test_no_log_is_begun_by_a_row_that_may_be_of_the_past(node_dir: NodeDir) -> None:
    """Rule 38: the group may have left this node, which forgets what has left it."""
    host = host_over(node_dir)
    host.logs.repairs = cast("Repairs", NeverOpened())
    own = node_dir.node_id
    rows = [assignment("S", peers=peers) for peers in ((own,), (own, N2, N3))]
    rows += [attrs.evolve(row, config=attrs.evolve(row.config, storage=StorageType.MEMORY)) for row in rows]
    host.currency = currency(is_proved=False)
    for row in rows:
        with pytest.raises(UnprovedError):
            await host.start(row)
    host.currency, host.is_in_table = currency(), lambda _row: False  # proved, and there is a newer row by now
    for row in rows:
        with pytest.raises(JoinPendingError, match="has changed"):
            await host.start(row)


@pytest.mark.parametrize("error", [HardStateLost("b"), OvertakenError("b"), StoreCorrupt("b"), StoreMisplaced("b")])
async def test_what_is_lost_waits_for_the_table_before_anybody_is_asked_or_nobody_thought_to_have_it(
    node_dir: NodeDir, error: StoreError
) -> None:
    host = host_over(node_dir)
    host.logs.repairs = cast("Repairs", Opening(error))
    host.currency = currency(is_proved=False)
    own = node_dir.node_id
    for peers in ((own,), (own, N2, N3)):
        row = attrs.evolve(assignment("S", peers=peers), group_id=GROUP, incarnation=7)
        with pytest.raises(UnprovedError):
            await host.start(row)


class NeverOpened:
    """Repairs of a node that opens no log: it would make the directory of one."""

    async def open(self, *_arguments: object, **_options: object) -> GroupLog:
        raise AssertionError("nothing may be opened")


@pytest.mark.parametrize("is_proved", [True, False])
async def test_who_else_has_a_damaged_log_is_said_by_the_log_until_the_row_is_proved(
    node_dir: NodeDir, *, is_proved: bool
) -> None:
    """A row of the past may say that nobody has: then entries would be given up that the others have."""
    host = host_over(node_dir)
    own = node_dir.node_id
    row = attrs.evolve(assignment("S", peers=(own,)), group_id=GROUP, incarnation=7)
    host.currency = currency(is_proved=is_proved)
    log = damaged_log(Configuration(voters=(own,)), later=Configuration(voters=(own, N2), learners=(N3,)))
    assert host._others(row, log) == ([] if is_proved else sorted([N2, N3]))
    alone = damaged_log(Configuration(voters=(own,)), later=Configuration(voters=(own,)))
    if is_proved:
        assert host._others(row, alone) == []
    else:
        with pytest.raises(UnprovedError):
            host._others(row, alone)


def damaged_log(founding: Configuration, *, later: Configuration) -> "FileLog":
    """A log that says it is damaged, with a change of members."""
    log = MemLog()
    log.save_checkpoint(0, 0, founding.encode(), b"")
    frame = seal(Kind.RAFT_CONFIG, index=1, term=1, incarnation=7, body=later.encode())
    log.append([Entry(index=1, term=1, kind=Kind.RAFT_CONFIG, frame=frame)])
    log.submit()
    log.damaged_blocks = ("something",)  # type: ignore[attr-defined]  # of a log in files
    return cast("FileLog", log)
