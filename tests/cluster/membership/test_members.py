"""Nodes that forget, go for ever, or are replaced: the cluster goes on, and nothing that was acknowledged is lost."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.harness.cluster import Cluster
from tests.harness.log_lines import wait_for_event
from tests.harness.raw import RawClient
from tests.harness.server import Server

STREAM = "KEEP"
MESSAGES = 30


def api(node: Server, subject: str, body: object = None) -> dict[str, object]:
    with RawClient(node.address) as client:
        return client.api(subject, body)


def err_code(answer: dict[str, object]) -> object:
    error = answer["error"]
    assert isinstance(error, dict)
    return error["err_code"]


def create(node: Server, **config: object) -> None:
    fields = {"name": STREAM, "subjects": ["keep.>"], "num_replicas": 3, "allow_direct": True, **config}
    created = api(node, f"STREAM.CREATE.{STREAM}", fields)
    assert "error" not in created, created


def publish(node: Server, first_seq: int, count: int = MESSAGES) -> None:
    with RawClient(node.address) as client:
        for seq in range(first_seq, first_seq + count):
            payload = b"%d" % seq
            assert client.acknowledged("keep.x", payload)["seq"] == seq


def members(node: Server) -> list[str]:
    """The names of the stream's members, the leader first; empty while one is not current."""
    described = api(node, f"STREAM.INFO.{STREAM}").get("cluster")
    if not isinstance(described, dict) or not described.get("leader"):
        return []
    replicas = described.get("replicas") or []
    if any(not peer["current"] or peer.get("offline") for peer in replicas):
        return []
    return [described["leader"], *(peer["name"] for peer in replicas)]


def wait_for_members(node: Server, count: int, *, without: Sequence[str] = ()) -> list[str]:
    found: list[str] = []

    def there() -> bool:
        found[:] = members(node)
        return len(found) == count and not set(found) & set(without)

    node.running.wait_until(there, what=f"{count} members were current")
    return found


def voters(node: Server, group: str) -> set[str]:
    """The voters of a group ("meta", or the stream's) as its replica on this node knows them."""
    _, body = node.get("/jsz?raft=1")
    found = (body or {}).get("raft_groups", {})
    name = next((name for name in found if name == group or name.startswith(group)), None)
    return set(found[name]["voters"]) if name is not None else set()


def held_by(cluster: Cluster, name: str, last_seq: int) -> list[int]:
    """The sequences that a node gives out while it is the only one that can be asked."""
    others = [node for node in cluster if node.name != name and node.running.running]
    for node in others:
        node.freeze()
    with RawClient(cluster.named(name).address) as client:
        found = client.stored(STREAM, last_seq)
    for node in others:
        node.thaw()
    return list(found)


def wait_for_messages(cluster: Cluster, name: str, last_seq: int) -> None:
    """A follower hears a moment later what is committed; while the leader is frozen it does not."""
    expected = list(range(1, last_seq + 1))
    cluster.named(name).running.wait_until(
        lambda: held_by(cluster, name, last_seq) == expected, what=f"{name} held all messages"
    )


def wait_for_voters(node: Server, group: str, count: int) -> None:
    node.running.wait_until(lambda: len(voters(node, group)) == count, what=f"{group} had {count} voters")


def test_a_node_whose_disk_was_wiped_comes_back_under_its_name_and_holds_everything_again(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        create(cluster[0])
        publish(cluster[0], 1)
        wiped = cluster[2]
        wiped.kill()
        shutil.rmtree(wiped.store_dir)
        publish(cluster[0], MESSAGES + 1)

        wiped.start()
        cluster.wait_healthy()
        wait_for_members(cluster[0], 3)
        wait_for_voters(wiped, "S-", 3)
        wait_for_voters(wiped, "meta", 3)
        wait_for_messages(cluster, wiped.name, 2 * MESSAGES)

        cluster[1].kill()  # the wiped node's vote and acknowledgements count again
        publish(wiped, 2 * MESSAGES + 1)


def test_a_restarted_member_of_a_memory_stream_gets_its_messages_from_the_others(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        create(cluster[0], storage="memory")
        publish(cluster[0], 1)
        for number, node in enumerate(cluster.nodes, 1):  # a rolling restart: another one forgets each time
            node.restart()
            cluster.wait_healthy()
            wait_for_members(cluster[0], 3)
            wait_for_voters(node, "S-", 3)
            publish(node, number * MESSAGES + 1)
        for node in cluster:
            wait_for_messages(cluster, node.name, 4 * MESSAGES)


def test_a_memory_stream_begins_anew_when_all_its_members_have_forgotten_it(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        create(cluster[0], storage="memory")
        publish(cluster[0], 1)
        for node in cluster:
            node.kill()
        for node in cluster:
            node.start(wait=False)
        for node in cluster:
            node.wait_listening()
        wait_for_members(cluster[0], 3)
        publish(cluster[0], 1)


def test_a_node_that_is_gone_for_ever_is_removed_and_its_replica_given_to_another(tmp_path: Path) -> None:
    with Cluster("jetraft", 4, directory=tmp_path) as cluster:
        create(cluster[0])
        publish(cluster[0], 1)
        gone = cluster.named(wait_for_members(cluster[0], 3)[-1])
        gone.kill()
        survivors = [node for node in cluster if node is not gone]
        assert api(survivors[0], "SERVER.REMOVE", {"peer": gone.name})["success"] is True
        wait_for_members(survivors[0], 3, without=[gone.name])
        for node in survivors:
            wait_for_voters(node, "meta", 3)
            wait_for_messages(cluster, node.name, MESSAGES)
        assert err_code(api(survivors[0], "SERVER.REMOVE", {"peer": gone.name})) == 10044


def test_a_replica_moves_away_from_a_server_that_should_not_have_it(tmp_path: Path) -> None:
    with Cluster("jetraft", 4, directory=tmp_path) as cluster:
        create(cluster[0])
        publish(cluster[0], 1)
        leader = wait_for_members(cluster[0], 3)[0]
        remove = f"STREAM.PEER.REMOVE.{STREAM}"
        assert err_code(api(cluster[0], remove, {"peer": "nobody"})) == 10040
        assert api(cluster[0], remove, {"peer": leader})["success"] is True
        moved = wait_for_members(cluster[0], 3, without=[leader])
        for name in moved:
            wait_for_messages(cluster, name, MESSAGES)
        group = f"stream $G > {STREAM}"
        wait_for_event(cluster.named(leader).running, "text", "members_changed", group=group)
        handed = wait_for_event(cluster.named(leader).running, "text", "leader_handed_over", group=group)
        assert handed["node"] in moved
