"""A restore looks for room once, so it does not matter that others use the disk meanwhile."""

import itertools
from pathlib import Path

import pytest
import trio

from jetraft.store.disk.space import SpaceWatch
from tests.cluster.inprocess import InProcessCluster

# Written by nats-server 2.14.6, whose archives do not say how much is in them.
ARCHIVE = (Path(__file__).parent / "snapshot-2.14.tar.s2").read_bytes()
CONFIG = {"name": "S", "subjects": ["s.>"], "allow_msg_ttl": True}
GIB = 1 << 30


async def test_an_old_archive_is_restored_while_others_fill_the_disk(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = itertools.count(GIB, -4096)
    cluster = InProcessCluster(tmp_path, nursery)
    await cluster.start("n1", "n2", "n3")
    node = await cluster.meta_leader()
    monkeypatch.setattr(SpaceWatch, "available_bytes", lambda _self: next(room))

    begun = await node.ask("STREAM.RESTORE.S", {"config": CONFIG, "state": {}})
    outcome = await node.upload(begun["deliver_subject"], ARCHIVE)

    assert "error" not in outcome, outcome
    assert outcome["state"]["messages"] == 52
    assert next(room) < GIB, "the room was asked for"
