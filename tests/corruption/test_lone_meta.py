"""A server that stands alone, and the log that names its streams: whatever becomes of that, they are served."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jetraft.cluster.meta.saved_rows import PREFIX
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.ledger import Ledger
from tests.corruption.floors import wait_for_floors
from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG = {"name": "KEPT", "subjects": ["kept.>"], "max_msgs": 100}
NO_STREAM = 10059


def meta_files(store: Path, pattern: str) -> list[Path]:
    return sorted(store.glob(f"jetstream/groups/meta.*/log-*/{pattern}"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two streams, one of them changed since it was created, and one deleted and created again."""
    with Server("jetraft", directory=tmp_path, name="n1") as server, RawClient(server.address) as client:
        for config in (CONFIG, {"name": "AGAIN", "subjects": ["old.>"]}):
            assert "error" not in client.api(f"STREAM.CREATE.{config['name']}", config)
        assert client.acknowledged("kept.1", b"one")["seq"] == 1
        assert client.acknowledged("old.1", b"gone")["seq"] == 1
        assert client.api("STREAM.DELETE.AGAIN", {})["success"]
        assert "error" not in client.api("STREAM.CREATE.AGAIN", {"name": "AGAIN", "subjects": ["again.>"]})
        assert client.acknowledged("again.1", b"one")["seq"] == 1
        assert client.api("STREAM.UPDATE.KEPT", {**CONFIG, "max_msgs": 50})["config"]["max_msgs"] == 50
        wait_for_floors(server.store_dir)
        server.kill()
    return server.store_dir


@contextmanager
def ledger_of(store: Path) -> Iterator[Ledger]:
    """The ledger of a server that does not run."""
    writer = Writer()
    ledger = Ledger.open(LocalDisk(writer), store / "jetstream")
    try:
        yield ledger
    finally:
        ledger.close()
        writer.stop()


def lose_trimmed_log(store: Path) -> None:
    """As when all checkpoints of a trimmed log are damaged: nothing can tell what was in it."""
    with ledger_of(store) as ledger:
        ((key, last),) = [
            (key, state.floor.log_index)
            for key in ledger.groups()
            if key[0] == "meta" and (state := ledger.state(key)) is not None
        ]
        ledger.commit_now(ledger_records.dropped(key, ((1, last),)))


def check(server: Server, seq: int) -> None:
    """Everything is served, and goes on."""
    with RawClient(server.address) as client:
        kept, again = (client.api(f"STREAM.INFO.{name}") for name in ("KEPT", "AGAIN"))
        assert (kept["config"]["max_msgs"], kept["state"]["last_seq"]) == (50, seq)
        assert (again["config"]["subjects"], again["state"]["last_seq"]) == (["again.>"], seq)
        assert client.acknowledged("kept.1", b"more")["seq"] == seq + 1
        assert client.acknowledged("again.1", b"more")["seq"] == seq + 1
        assert sorted(client.api("STREAM.NAMES")["streams"]) == ["AGAIN", "KEPT"]


@pytest.mark.parametrize("damage", ["block deleted", "block zeroed", "trimmed log lost"])
def test_every_stream_is_served_after_damage_to_the_meta_log(store: Path, damage: str) -> None:
    if damage == "trimmed log lost":
        lose_trimmed_log(store)
    for path in meta_files(store, "*.blk"):
        if damage == "block zeroed":
            path.write_bytes(bytes(path.stat().st_size))
        elif damage != "trimmed log lost":
            path.unlink()
    with Server("jetraft", directory=store.parent, name="n1") as server:
        assert any("[ERR] " in line and "meta" in line for line in server.running.lines)
        check(server, 1)
        with RawClient(server.address) as client:
            changed = client.api("STREAM.UPDATE.KEPT", {**CONFIG, "max_msgs": 40})
            assert changed["config"]["max_msgs"] == 40
            assert client.api("STREAM.UPDATE.KEPT", {**CONFIG, "max_msgs": 50})["config"]["max_msgs"] == 50
    with Server("jetraft", directory=store.parent, name="n1") as server:
        check(server, 2)
        assert server.healthy()


def test_a_stream_that_is_deleted_stays_so_whatever_becomes_of_the_meta_log(store: Path) -> None:
    with Server("jetraft", directory=store.parent, name="n1") as server, RawClient(server.address) as client:
        assert client.api("STREAM.DELETE.AGAIN", {})["success"]
        wait_for_floors(server.store_dir)
        server.kill()
    for path in meta_files(store, "*.blk"):
        path.unlink()
    with Server("jetraft", directory=store.parent, name="n1") as server, RawClient(server.address) as client:
        assert client.api("STREAM.INFO.AGAIN")["error"]["err_code"] == NO_STREAM
        assert client.api("STREAM.INFO.KEPT")["state"]["last_seq"] == 1


def forget_rows(store: Path) -> None:
    """As in a store of a server that did not save rows yet."""
    with ledger_of(store) as ledger:
        names = [name for name in ledger.values if name.startswith(PREFIX)]
        assert len(names) == 2
        ledger.commit_now(*(ledger_records.value(name, None) for name in names))


def test_data_of_streams_that_nobody_can_name_is_never_passed_over(store: Path) -> None:
    forget_rows(store)
    for path in meta_files(store, "*.blk"):
        path.unlink()
    server = Server("jetraft", directory=store.parent, name="n1")
    with server:
        server.running.wait_for_line("its data is kept")
        status, page = server.get("/healthz")
        assert status == 503
        assert "has data of 2 groups that belong to no known stream: S-R1F-" in page["error"]
    assert len(list(store.glob("jetstream/groups/S-R1F-*"))) == 2


def test_a_meta_log_that_is_the_only_one_to_name_streams_is_not_begun_anew(store: Path) -> None:
    forget_rows(store)
    lose_trimmed_log(store)
    server = Server("jetraft", directory=store.parent, name="n1").start(wait=False)
    try:
        assert server.running.wait() == 1
        assert not any("Traceback" in line for line in server.running.lines)
        last = server.running.lines[-1]
        assert "[FTL] Can't start JetStream: " in last
        assert "restore the store from a backup" in last
    finally:
        server.close()
    assert len(list(store.glob("jetstream/groups/S-R1F-*"))) == 2
