"""A node comes back after so many changes that it gets the table as a snapshot: nothing lacks, no ghost is left."""

from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

pytestmark = pytest.mark.campaign

FAT = {"x": "y" * 120_000}  # metadata of nearly the size that is allowed: the log fills up, and is trimmed, soon
ROUNDS = 600  # of 120 KB: two checkpoints, at 32 MiB each, and what was before them trimmed


def names(node: Server) -> set[str]:
    with RawClient(node.address) as client:
        found = client.api("STREAM.NAMES").get("streams")
    return set(found) if isinstance(found, list) else set()


def groups_on_disk(node: Server) -> set[str]:
    return {path.name for path in (node.store_dir / "jetstream" / "groups").iterdir() if path.name.startswith("S-")}


def groups_that_run(node: Server) -> set[str]:
    _, body = node.get("/jsz?raft=1")
    return {name for name in (body or {}).get("raft_groups", {}) if name.startswith("S-")}


def create(client: RawClient, name: str, **config: object) -> None:
    created = client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], "num_replicas": 3, **config})
    assert "error" not in created, created


def rewrite_the_log(client: RawClient) -> None:
    """Change one stream until the meta log does not reach back to where it was."""
    create(client, "FAT", metadata=FAT)
    for number in range(ROUNDS):
        config = {"name": "FAT", "subjects": ["FAT"], "num_replicas": 3, "metadata": FAT, "max_msgs": number + 1}
        answer = client.api("STREAM.UPDATE.FAT", config)
        assert "error" not in answer, answer


def test_what_was_created_and_deleted_meanwhile_is_there_and_gone(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        here, away = cluster[0], cluster[2]
        with RawClient(here.address) as client:
            for number in range(6):
                create(client, f"OLD{number}")
            away.kill()
            for number in range(3):
                assert client.api(f"STREAM.DELETE.OLD{number}")["success"] is True
            for number in range(3):  # other streams under the names of deleted ones
                create(client, f"OLD{number}" if number == 0 else f"NEW{number}", num_replicas=2)
            rewrite_the_log(client)
            assert client.api("STREAM.DELETE.OLD5")["success"] is True

        away.start()
        away.running.wait_for_line("meta has caught up to")
        cluster.wait_healthy()
        wanted = {"OLD0", "OLD3", "OLD4", "NEW1", "NEW2", "FAT"}
        assert [names(node) for node in cluster] == [wanted] * 3
        away.running.wait_until(
            lambda: len(groups_that_run(away)) == 3 and len(groups_on_disk(away)) == 3,
            what="the node held the replicas of OLD3, OLD4 and FAT, and nothing else",
        )
        held = [{name.rpartition(".")[0] for name in groups_on_disk(node)} for node in cluster]
        assert [groups_that_run(node) for node in cluster] == held
