"""How infos are shown, against what nats-server 2.15.1 showed."""

from typing import Any

import attrs
import pytest

from jetraft.api.jetstream.handlers.views import inspected_stream, listed_consumer, listed_stream, single_stream
from jetraft.store.model.config import ConsumerConfig
from jetraft.store.model.state import ClusterInfo, ConsumerInfo, PeerInfo

GROUP = {
    "name": "C",
    "raft_group": "S-R3F-x",
    "leader": "n2",
    "replicas": [{"name": "n3", "current": True}, {"name": "n1", "current": True}],
}
ALONE = {"name": "C", "raft_group": "S-R1F-x", "leader": "n1", "leader_since": "2026-01-01T00:00:00Z"}


@attrs.frozen
class Cluster:
    clustered: bool


@attrs.frozen
class Service:
    cluster: Cluster


def service(*, clustered: bool) -> Any:
    return Service(Cluster(clustered))


def stream(cluster: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"name": "S", "metadata": {"_nats.req.level": "0"}}, "cluster": cluster, "ts": "now"}


def test_single_answers_name_the_version_and_lists_do_not() -> None:
    shown = single_stream(service(clustered=True), stream(GROUP))
    assert shown["config"]["metadata"] == {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.1"}
    listed = listed_stream(service(clustered=True), stream(GROUP))
    assert listed["config"]["metadata"] == {"_nats.req.level": "0"}


def test_a_server_that_stands_alone_names_the_leader_in_stream_info_only() -> None:
    alone = stream({"leader": "n1"})
    assert "cluster" not in single_stream(service(clustered=False), alone)
    assert "cluster" not in listed_stream(service(clustered=False), alone)
    assert inspected_stream(alone)["cluster"] == {"leader": "n1"}


def test_a_group_names_who_carries_its_traffic_and_its_replicas_in_order() -> None:
    cluster = listed_stream(service(clustered=True), stream(GROUP))["cluster"]
    assert list(cluster) == ["name", "raft_group", "leader", "system_account", "traffic_account", "replicas"]
    assert (cluster["system_account"], cluster["traffic_account"]) == (True, "$SYS")
    assert [replica["name"] for replica in cluster["replicas"]] == ["n1", "n3"]


def test_of_a_group_of_one_only_the_leader_is_shown() -> None:
    assert listed_stream(service(clustered=True), stream(ALONE))["cluster"] == {"name": "C", "leader": "n1"}


@pytest.mark.parametrize(("replicas", "shows_group"), [(0, True), (3, True), (1, False)])
def test_a_consumer_of_one_replica_shows_only_its_leader(replicas: int, *, shows_group: bool) -> None:
    info = ConsumerInfo(
        stream_name="S",
        name="c",
        config=ConsumerConfig(name="c", num_replicas=replicas),
        cluster=ClusterInfo(name="C", raft_group="g", leader="n1", replicas=(PeerInfo(name="n2"),)),
    )
    cluster = listed_consumer(service(clustered=True), info)["cluster"]
    assert ("replicas" in cluster) is shows_group
    assert cluster["leader"] == "n1"
