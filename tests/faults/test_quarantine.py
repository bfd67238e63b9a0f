"""A node that lost its ledger is filled again: its former logs are kept until it is whole, not beyond an erasure."""

from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

pytestmark = pytest.mark.campaign

SECRET = b"the payload that nobody is to find again"
LEDGERS = ("ledger.0", "ledger.1")


def store(node: Server) -> Path:
    return node.store_dir / "jetstream"


def kept_in(node: Server) -> list[str]:
    return [path.name for path in store(node).glob("quarantine/*")]


def holds_secret(node: Server) -> list[Path]:
    found = []
    for path in store(node).rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # a server that runs makes and removes files
            if SECRET in path.read_bytes():
                found.append(path)
    return found


def test_what_a_replica_had_before_it_was_filled_again_does_not_outlive_a_secure_delete(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        with RawClient(cluster[0].address) as client:
            for name in ("S", "OTHER"):
                config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3}
                assert "error" not in client.api(f"STREAM.CREATE.{name}", config)
            client.acknowledged("S.a", SECRET)
            leader = cluster.named(str(client.api("STREAM.INFO.S")["cluster"]["leader"]))
        damaged = next(node for node in cluster if node is not leader)
        damaged.running.wait_until(lambda: bool(holds_secret(damaged)), what="the follower had the message")
        damaged.kill()
        for name in LEDGERS:
            (store(damaged) / name).unlink()
        damaged.start(wait=False)
        damaged.wait_listening()
        damaged.running.wait_until(lambda: len(kept_in(damaged)) > 1, what="the logs were set aside")
        with RawClient(leader.address) as client:
            assert client.api("STREAM.MSG.DELETE.S", {"seq": 1})["success"]
            assert client.api("STREAM.DELETE.OTHER")["success"]  # a sweep follows, long before its period is over
        damaged.running.wait_until(lambda: not kept_in(damaged), what="what was set aside was removed")
        assert holds_secret(damaged) == []
        assert list(store(damaged).glob("groups/S-*"))
        damaged.running.wait_for_line("whole again")
