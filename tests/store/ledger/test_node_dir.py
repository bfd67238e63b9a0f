"""The directory of a node: whose it is, and which servers may open it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import orjson
import pytest

from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames.format import FORMAT_VERSION
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.node_dir import NodeDir, peek_identity
from jetraft.store.model.ids import GroupId, node_id_of
from jetraft.store.port import HardState, StoreRefused
from tests.doubles.lossy_disk import LossyDisk

Opened = Callable[..., NodeDir]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    writer = Writer(1)

    def open_dir(server_name: str = "n1") -> NodeDir:
        return NodeDir.open(LocalDisk(writer), tmp_path, server_name=server_name, named=True, cluster="c")

    yield open_dir
    writer.stop()


def of_format_2(root: Path, node_id: str) -> None:
    """What a store of the format before the ledger has in its directory."""
    identity = {"format": 2, "node_id": node_id, "server_name": "n1", "named": True, "cluster": "c"}
    (root / "node.json").write_bytes(orjson.dumps(identity))
    (root / "meta.record").write_bytes(b"the founding")
    (root / "memory-groups.json").write_bytes(orjson.dumps([["S-R3M-abcdefgh", 9]]))


def test_the_directory_says_whose_it_is(opened: Opened, tmp_path: Path) -> None:
    opened().close()
    with pytest.raises(StoreRefused, match='belongs to server "n1"'):
        opened("n2")
    assert peek_identity(tmp_path)["server_name"] == "n1"


@pytest.mark.parametrize("removed", [False, True])
def test_a_directory_is_for_one_process_also_when_its_lock_file_is_removed(
    opened: Opened, tmp_path: Path, *, removed: bool
) -> None:
    first = opened()
    if removed:
        (tmp_path / "lock").unlink()
    with pytest.raises(StoreRefused, match="another server process uses this store directory"):
        opened()
    first.close()
    opened().close()


@pytest.mark.parametrize("lost", ["node.json", "ledger.0", "ledger.1"])
def test_no_single_file_is_needed_to_know_it(opened: Opened, tmp_path: Path, lost: str) -> None:
    opened().close()
    (tmp_path / lost).unlink()
    with pytest.raises(StoreRefused, match='belongs to server "n1"'):
        opened("n2")
    opened().close()
    assert (tmp_path / lost).exists()


@pytest.mark.parametrize("name", ["ledger.0", "ledger.1"])
def test_a_copy_of_another_nodes_ledger_is_put_right(opened: Opened, tmp_path: Path, name: str) -> None:
    opened().close()
    writer = Writer(1)
    other = NodeDir.open(LocalDisk(writer), tmp_path / "other", server_name="n2", named=True, cluster="c")
    other.ledger._rewrite_at = 0
    other.ledger.commit_now()  # a higher generation than this node's
    other.close()
    writer.stop()
    (tmp_path / name).write_bytes((tmp_path / "other" / name).read_bytes())
    assert opened().node_id == node_id_of("n1")
    assert (tmp_path / "ledger.0").read_bytes() == (tmp_path / "ledger.1").read_bytes()


def test_servers_of_older_formats_are_kept_out(opened: Opened, tmp_path: Path) -> None:
    """An earlier server would take what this one writes for damage: it must refuse the directory instead."""
    opened().close()
    assert orjson.loads((tmp_path / "node.json").read_bytes())["format"] == FORMAT_VERSION


def test_a_store_of_format_2_is_taken_over(opened: Opened, tmp_path: Path) -> None:
    first = opened()
    node_id = first.node_id
    first.close()
    for name in ("ledger.0", "ledger.1"):
        (tmp_path / name).unlink()
    of_format_2(tmp_path, node_id)

    for _ in range(2):
        taken = opened()

        assert taken.node_id == node_id
        assert taken.value("meta.record").load() == b"the founding"
        state = taken.ledger.state(("S-R3M-abcdefgh", 9))  # type: ignore[arg-type]
        assert state is not None
        assert state.is_noted
        assert orjson.loads((tmp_path / "node.json").read_bytes())["format"] == FORMAT_VERSION
        assert not (tmp_path / "meta.record").exists()
        assert not (tmp_path / "memory-groups.json").exists()
        taken.close()


def test_groups_whose_ledger_is_lost_are_without_memory(opened: Opened, tmp_path: Path) -> None:
    opened().close()
    (tmp_path / "groups" / "S-R3F-abcdefgh.7" / "log-00000001").mkdir(parents=True)
    for name in ("ledger.0", "ledger.1"):
        (tmp_path / name).unlink()

    found = opened()

    state = found.ledger.state(("S-R3F-abcdefgh", 7))  # type: ignore[arg-type]
    assert state is not None
    assert state.memory_lost
    found.close()


def test_nobody_else_may_look_into_a_store(tmp_path: Path) -> None:
    """Messages are in it. As nats-server: 0700 and 0600, whatever the umask allows."""
    before = os.umask(0)
    writer = Writer()
    try:
        root = tmp_path / "some" / "store"
        disk = LocalDisk(writer)
        opened = NodeDir.open(disk, root, server_name="n1", named=True, cluster="c")
        group = opened.group(GroupId("S-R1F-abcdefgh"), 7)
        disk.make_directory(group / "log-00000001")
        disk.close_file(disk.open_file(group / "log-00000001" / "a.blk", create=True))
        opened.set_aside_now(GroupId("S-R1F-abcdefgh"), 7)
        opened.close()
    finally:
        writer.stop()
        os.umask(before)
    modes = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert len(modes) > 8
    expected = {path: 0o700 if (tmp_path / path).is_dir() else 0o600 for path in modes}
    assert modes == expected


def test_a_directory_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir(mode=0o750)
    writer = Writer(1)
    NodeDir.open(LocalDisk(writer), root, server_name="n1", named=True, cluster="c").close()
    writer.stop()
    assert root.stat().st_mode & 0o777 == 0o750


def test_what_was_set_aside_stays_when_the_crash_came_before_the_record_of_it(opened: Opened, tmp_path: Path) -> None:
    node_dir = opened()
    group_id = GroupId("S-R3F-abcdefgh")
    place = node_dir.group(group_id, 7)
    (place / "log-00000001").mkdir(parents=True)
    (place / "log-00000001" / "1-1.blk").write_bytes(b"the only copy of the damage")
    node_dir._move_aside(group_id, 7)
    (place / "log-00000001").mkdir(parents=True)  # by the next opening, which finds that everything is missing
    node_dir.set_aside_now(group_id, 7)
    kept = tmp_path / "quarantine" / place.name / "log-00000001" / "1-1.blk"
    assert kept.read_bytes() == b"the only copy of the damage"
    assert not place.exists()
    node_dir.close()


def ledgers(root: Path) -> list[bytes]:
    return [(root / name).read_bytes() for name in ("ledger.0", "ledger.1")]


def put_back(root: Path, copies: list[bytes]) -> None:
    for name, content in zip(("ledger.0", "ledger.1"), copies, strict=True):
        (root / name).write_bytes(content)


KEY = GroupId("S-R1F-abcdefgh"), 7


@pytest.fixture
def anothers(tmp_path: Path) -> list[bytes]:
    """Both copies of the ledger of a server with the same name."""
    writer, root = Writer(1), tmp_path / "another"
    NodeDir.open(LocalDisk(writer), root, server_name="n1", named=True, cluster="c").close()
    writer.stop()
    return ledgers(root)


@pytest.mark.parametrize("ends", ["", "kill", "power cut"])
def test_of_another_ledgers_silence_about_a_group_nothing_follows(ends: str) -> None:
    """Also not after a start that has met it; however that ended."""
    disk, root = LossyDisk(), Path("/store")

    def opened_on(place: Path) -> NodeDir:
        return NodeDir.open(disk, place, server_name="n1", named=True, cluster="c")

    for place in (root, Path("/another")):
        opened_on(place).close()
    disk.make_directory(root / "groups" / "S-R1F-abcdefgh.7" / "log-00000001")
    disk.sync_names()
    for name in ("ledger.0", "ledger.1"):
        disk.replace(root / name, disk.read_whole(Path("/another") / name))
    for _ in range(2):
        found = opened_on(root)
        state = found.ledger.state(KEY)
        assert state is not None
        assert state.memory_lost
        if ends == "power cut":
            disk.crash(Random(1))
        elif ends == "kill":
            disk.kill()
        else:
            found.close()
    assert orjson.loads(disk.read_whole(root / "node.json"))["ledger"] == f"{found.ledger.identity:016x}"


def test_a_group_that_came_after_the_other_ledger_is_new(opened: Opened, tmp_path: Path, anothers: list[bytes]) -> None:
    """A kill leaves directories of groups in which nothing was promised."""
    opened().close()
    put_back(tmp_path, anothers)
    opened().close()
    (tmp_path / "groups" / "S-R1F-abcdefgh.7").mkdir()
    found = opened()
    assert found.ledger.state(KEY) is None
    found.close()


@pytest.mark.parametrize("how", ["another's", "of an earlier version", "not JSON", "no object", "missing"])
def test_a_ledger_that_knows_its_groups_counts_whatever_node_json_names(
    opened: Opened, tmp_path: Path, how: str
) -> None:
    first = opened()
    first.ledger.commit_now(ledger_records.voted(KEY, HardState(term=3, vote=None)))
    first.close()
    (tmp_path / "groups" / "S-R1F-abcdefgh.7").mkdir()
    path = tmp_path / "node.json"
    known = orjson.loads(path.read_bytes())
    contents = {
        "another's": orjson.dumps(known | {"ledger": "00" * 8}),
        "of an earlier version": orjson.dumps({name: known[name] for name in known if name != "ledger"}),
        "not JSON": b"{",
        "no object": b"[]",
    }
    path.write_bytes(contents[how]) if how in contents else path.unlink()
    found = opened()
    state = found.ledger.state(KEY)
    assert state is not None
    assert not state.memory_lost
    found.close()
    assert orjson.loads(path.read_bytes()) == known


def test_a_renewed_ledger_is_the_directorys(opened: Opened, tmp_path: Path) -> None:
    first = opened()
    first.renew_ledger()
    first.close()
    (tmp_path / "groups" / "S-R1F-abcdefgh.7").mkdir()
    found = opened()
    assert found.ledger.state(KEY) is None
    found.close()
