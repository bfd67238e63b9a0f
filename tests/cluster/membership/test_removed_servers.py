"""SERVER.REMOVE of a server that runs, and of one that is away: it serves nothing, says so, and comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.membership.test_members import api, voters
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

REASON = "JetStream was removed from the cluster: start it again to have it admitted again"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster("jetraft", 4, directory=tmp_path) as made:
        yield made


def meta_leader(node: Server) -> str:
    return str(((node.get("/jsz")[1] or {}).get("meta_cluster") or {}).get("leader"))


def create(node: Server, name: str, replicas: int) -> str:
    """Have a stream; returns the name of its leader."""
    made = api(node, f"STREAM.CREATE.{name}", {"name": name, "subjects": [name.lower()], "num_replicas": replicas})
    assert "error" not in made, made
    return str(made["cluster"]["leader"])  # type: ignore[index]  # JSON


def led_by(node: Server, victim: str, replicas: int, prefix: str = "X") -> str:
    """The name of a stream that this server leads: made, as often as it takes."""
    for number in range(40):
        name = f"R{replicas}{prefix}{number}"
        if create(node, name, replicas) == victim:
            return name
    raise AssertionError(f"{victim} leads no stream")


def health(node: Server) -> tuple[int, object]:
    status, body = node.get("/healthz")
    return status, (body or {}).get("error")


def has_responders(node: Server, subject: str) -> bool:
    with RawClient(node.address) as client:
        (answer,) = client.request(subject, b"x")
    return not answer.status.startswith("503")


def wait_until_healed(leader: Server, stream: str, gone: str) -> None:
    leader.running.wait_until(
        lambda: gone not in str(api(leader, f"STREAM.INFO.{stream}").get("cluster", gone)), what=f"{stream} was healed"
    )


def test_a_server_that_is_removed_while_it_runs_serves_nothing_when_that_is_answered(cluster: Cluster) -> None:
    leader = cluster.named(meta_leader(cluster[0]))
    victim = next(node for node in cluster if node is not leader)
    three, one = led_by(leader, victim.name, 3), led_by(leader, victim.name, 1)
    with RawClient(victim.address) as client:
        assert client.acknowledged(one.lower(), b"kept")["seq"] == 1

    assert api(leader, "SERVER.REMOVE", {"peer": victim.name})["success"] is True

    # Nothing is served when this is answered: the server has said so, or, where it is too slow, its lease is over.
    for node in (leader, victim):
        assert not has_responders(node, one.lower()), "its only replica is on the removed server"
    victim.running.wait_for_line("this server was removed from the cluster")
    victim.running.wait_until(lambda: health(victim) == (503, REASON), what="/healthz said why")
    page = victim.get("/jsz")[1]
    assert (page["streams"], page["disabled"]) == (0, True)
    wait_until_healed(leader, three, victim.name)
    for node in (leader, victim):
        with RawClient(node.address) as client:
            assert "seq" in client.acknowledged(three.lower(), b"x"), "clients of the removed server reach the others"

    victim.restart()  # the operator's word
    cluster.wait_healthy()
    assert "disabled" not in victim.get("/jsz")[1]
    leader.running.wait_until(lambda: len(voters(leader, "meta")) == 4, what="the server votes again")
    with RawClient(leader.address) as client:
        assert client.acknowledged(one.lower(), b"x")["seq"] == 2, "with what it had"


def test_a_server_that_was_removed_while_it_was_away_comes_back_by_itself(cluster: Cluster) -> None:
    leader = cluster.named(meta_leader(cluster[0]))
    victim = next(node for node in cluster if node is not leader)
    three, one = led_by(leader, victim.name, 3), led_by(leader, victim.name, 1)
    deleted = led_by(leader, victim.name, 1, prefix="D")
    with RawClient(victim.address) as client:
        assert client.acknowledged(one.lower(), b"kept")["seq"] == 1
    empty = led_by(leader, victim.name, 1, prefix="E")  # the meta log alone may know of it (decision 124)
    victim.kill()
    assert api(leader, "SERVER.REMOVE", {"peer": victim.name})["success"] is True
    assert api(leader, f"STREAM.DELETE.{deleted}")["success"] is True
    wait_until_healed(leader, three, victim.name)

    victim.start()
    cluster.wait_healthy()
    leader.running.wait_until(lambda: len(voters(leader, "meta")) == 4, what="the server votes again")
    with RawClient(leader.address) as client:
        assert client.acknowledged(one.lower(), b"x")["seq"] == 2
        assert client.acknowledged(empty.lower(), b"x")["seq"] == 1
        assert "seq" in client.acknowledged(three.lower(), b"x")
    names = {str(name) for name in api(victim, "STREAM.NAMES")["streams"]}  # type: ignore[attr-defined]  # JSON
    assert {one, empty, three} <= names
    assert deleted not in names
