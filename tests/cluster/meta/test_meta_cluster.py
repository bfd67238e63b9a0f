"""Three nodes in one process: any request at any node, one answer, and what survives a crash of the meta leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from tests.cluster.inprocess import InProcessCluster, until
from tests.harness.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("n1", "n2", "n3")


@pytest.fixture
async def cluster(tmp_path: Path, nursery: trio.Nursery) -> InProcessCluster:
    made = InProcessCluster(tmp_path, nursery)
    await made.start(*NAMES)
    return made


async def test_a_stream_created_at_one_node_is_known_at_every_other(cluster: InProcessCluster) -> None:
    created = await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": 3})
    assert created["did_create"] is True
    assert {replica["name"] for replica in created["cluster"]["replicas"]} < set(NAMES)
    for name in NAMES:
        info = await cluster[name].ask("STREAM.INFO.S")
        assert info["config"] == created["config"]
        assert (await cluster[name].ask("STREAM.NAMES"))["streams"] == ["S"]


async def test_requests_that_conflict_are_refused_alike_at_every_node(cluster: InProcessCluster) -> None:
    await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for name in NAMES:
        taken = await cluster[name].ask("STREAM.CREATE.S", {"name": "S", "subjects": ["other"]})
        overlapping = await cluster[name].ask("STREAM.CREATE.T", {"name": "T", "subjects": ["s.x"]})
        unknown = await cluster[name].ask("STREAM.INFO.NOPE")
        codes = [answer["error"]["err_code"] for answer in (taken, overlapping, unknown)]
        assert codes == [10058, 10065, 10059]


async def test_two_clients_that_race_for_a_name_get_one_stream(cluster: InProcessCluster) -> None:
    answers = {}

    async def create(name: str) -> None:
        config = {"name": "S", "subjects": [f"from.{name}"]}
        answers[name] = await cluster[name].ask("STREAM.CREATE.S", config)

    async with trio.open_nursery() as nursery:
        for name in NAMES:
            nursery.start_soon(create, name)
    refused = [answer["error"]["err_code"] for answer in answers.values() if "error" in answer]
    assert refused == [10058, 10058]


async def test_a_deleted_stream_is_gone_everywhere_when_the_answer_arrives(cluster: InProcessCluster) -> None:
    await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    assert (await cluster["n2"].ask("STREAM.DELETE.S"))["success"] is True
    for name in NAMES:
        assert (await cluster[name].ask("STREAM.INFO.S"))["error"]["err_code"] == 10059
    for node in cluster.running:
        assert list(node.node.directory.replicas()) == []


async def test_an_update_is_in_force_when_the_answer_arrives(cluster: InProcessCluster) -> None:
    await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    updated = await cluster["n2"].ask("STREAM.UPDATE.S", {"name": "S", "num_replicas": 3, "max_msgs": 7})
    assert updated["config"]["max_msgs"] == 7
    assert (await cluster["n3"].ask("STREAM.INFO.S"))["config"]["max_msgs"] == 7


async def test_streams_of_one_replica_spread_and_a_list_finds_them_all(cluster: InProcessCluster) -> None:
    for number in range(6):
        await cluster["n1"].ask(f"STREAM.CREATE.S{number}", {"name": f"S{number}"})
    listed = await cluster["n2"].ask("STREAM.LIST")
    assert [info["config"]["name"] for info in listed["streams"]] == [f"S{number}" for number in range(6)]
    assert "missing" not in listed
    assert {info["cluster"]["leader"] for info in listed["streams"]} == set(NAMES)


async def test_requests_about_one_stream_keep_the_order_in_which_a_client_sent_them(cluster: InProcessCluster) -> None:
    answers: list[str] = []

    async def ask(subject: str, body: object) -> None:
        answer = await cluster["n3"].ask(subject, body)
        answers.append("error" if "error" in answer else subject)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "STREAM.CREATE.S", {"name": "S"})
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask, "STREAM.INFO.S", {})
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask, "STREAM.DELETE.S", b"")
    assert answers == ["STREAM.CREATE.S", "STREAM.INFO.S", "STREAM.DELETE.S"]


async def test_a_crash_of_the_meta_leader_is_over_before_a_request_gives_up(cluster: InProcessCluster) -> None:
    """Who asks meanwhile waits, as long as a request waits for a leader, and is answered without an error."""
    await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    await cluster.stop(await cluster.meta_leader())
    for node in cluster.running:
        created = await node.ask(f"STREAM.CREATE.{node.name}", {"name": node.name})
        assert "error" not in created
        assert (await node.ask("STREAM.INFO.S"))["state"]["consumer_count"] == 0


async def test_a_node_that_was_away_catches_up_and_throws_away_what_was_deleted(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    leader = await cluster.meta_leader()
    away = next(node for node in cluster.running if node is not leader)
    await cluster.stop(away)
    await leader.ask("STREAM.DELETE.S")
    await leader.ask("STREAM.CREATE.T", {"name": "T", "num_replicas": 2})

    await cluster.start(away.name)

    assert (await cluster[away.name].ask("STREAM.NAMES"))["streams"] == ["T"]
    groups = tmp_path / away.name / "groups"
    await until(lambda: not any(path.name.startswith("S-R3F") for path in groups.iterdir()))
    assert cluster[away.name].node.backend.statistics().orphans == ()


async def test_a_node_that_lost_its_disk_joins_as_a_learner_and_votes_when_it_has_caught_up(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    leader = await cluster.meta_leader()
    wiped = next(node for node in cluster.running if node is not leader)
    await cluster.stop(wiped)
    (tmp_path / wiped.name).rename(tmp_path / "lost")

    await cluster.start(wiped.name)

    again = cluster[wiped.name]
    assert (await again.ask("STREAM.NAMES"))["streams"] == ["S"]
    await until(lambda: again.node.meta_group is not None)
    await until(lambda: len(again.node.machine.table.streams) == 1)
    meta = leader.node.meta_group
    assert meta is not None
    await until(lambda: meta.configuration.voters == tuple(sorted(node.mesh.node_id for node in cluster.running)))
    with trio.fail_after(PATIENCE_S):
        while (await again.node.health()).http_status != 200:  # noqa: ASYNC110  (as whoever restarts servers does)
            await trio.sleep(0.05)
    (row,) = again.node.machine.table.streams.values()
    replicas = [replica for node in cluster.running if (replica := node.node.directory.get(row.key)) is not None]
    group = next(replica.group for replica in replicas if replica.is_leader)
    await until(lambda: again.mesh.node_id in group.configuration.voters)


async def test_a_node_that_joins_later_becomes_a_member_and_gets_replicas(cluster: InProcessCluster) -> None:
    await cluster.start("n4")
    leader = await cluster.meta_leader()
    await until(lambda: leader.node.meta_group is not None and len(leader.node.meta_group.configuration.voters) == 4)
    await until(lambda: len(leader.node.view.online()) == 4)
    created = await cluster["n4"].ask("STREAM.CREATE.S", {"name": "S", "num_replicas": 4})
    assert len(created["cluster"]["replicas"]) == 3


async def test_account_info_sums_up_all_nodes(cluster: InProcessCluster) -> None:
    for number in range(3):
        await cluster["n1"].ask(f"STREAM.CREATE.S{number}", {"name": f"S{number}", "max_bytes": 1000})
    info = await cluster["n2"].ask("INFO")
    assert (info["streams"], info["reserved_storage"], info["storage"]) == (3, 3000, 0)
    assert info["api"]["total"] == 3


async def test_what_an_earlier_process_had_thrown_away_is_removed_at_the_start(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    left = tmp_path / "n1" / "trash" / "S-R3F-gone0000.7"
    left.mkdir(parents=True)
    (left / "block").write_bytes(b"messages")
    await InProcessCluster(tmp_path, nursery).start(*NAMES)
    await until(lambda: not left.exists())
