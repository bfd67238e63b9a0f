"""Servers with tags and limits: where streams go, who leads them, what is refused; the texts are nats-server 2.15's."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

TAGS = {"n1": ["az:a", "ssd"], "n2": ["az:a", "hdd"], "n3": ["az:b", "ssd"]}
LIMITS = "max_file_store: 10000000, max_memory_store: 5000000"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("placing"))
    for node in cluster:
        node.config = f"server_tags: {json.dumps(TAGS[node.name])}\njetstream {{ {LIMITS} }}\n"
    with cluster:
        yield cluster


def create(client: RawClient, name: str, **config: object) -> dict[str, Any]:
    return client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], **config})


def holders(info: dict[str, Any]) -> set[str]:
    described = info["cluster"]
    assert isinstance(described, dict), info
    return {described["leader"], *(peer["name"] for peer in described.get("replicas") or [])}


def test_replicas_go_where_the_tags_allow_and_move_when_they_change(cluster: Cluster) -> None:
    with RawClient(cluster[0].address) as client:
        assert holders(create(client, "HDD", placement={"tags": ["hdd"]})) == {"n2"}
        assert holders(create(client, "SSD", num_replicas=2, placement={"tags": ["SSD"]})) == {"n1", "n3"}
        refused = create(client, "NONE", num_replicas=2, placement={"tags": ["!ssd"]})
        assert refused["error"]["description"] == "no suitable peers for placement, tags excluded ['ssd']"

        moved = {"name": "HDD", "subjects": ["HDD"], "placement": {"tags": ["az:b"]}}
        assert "error" not in client.api("STREAM.UPDATE.HDD", moved)
        cluster[0].running.wait_until(
            lambda: holders(client.api("STREAM.INFO.HDD")) == {"n3"}, what="the stream has moved to n3"
        )
        for name in ("HDD", "SSD"):
            client.api(f"STREAM.DELETE.{name}")


def test_more_than_the_limits_is_not_promised(cluster: Cluster) -> None:
    with RawClient(cluster[0].address) as client:
        assert "error" not in create(client, "A", max_bytes=8_000_000, num_replicas=3)
        refused = create(client, "B", max_bytes=8_000_000, placement={"tags": ["hdd"]})
        reasons = "insufficient storage, tags not matched ['hdd']"
        assert refused["error"]["description"] == f"no suitable peers for placement, {reasons}"
        grown = {"name": "A", "subjects": ["A"], "max_bytes": 12_000_000, "num_replicas": 3}
        assert client.api("STREAM.UPDATE.A", grown)["error"]["err_code"] == 10047
        client.api("STREAM.DELETE.A")


def test_more_than_the_limit_is_not_published_until_there_is_room_again(tmp_path: Path) -> None:
    config = "jetstream { max_file_store: 2000000 }\n"
    with Server("jetraft", directory=tmp_path, config=config) as server, RawClient(server.address) as client:
        create(client, "S")
        answers = [json.loads(client.request("S", b"x" * 500_000)[0].payload) for _ in range(6)]
        assert [answer.get("seq") for answer in answers] == [1, 2, 3, 4, 0, 0]
        assert answers[-1]["error"] == {"code": 503, "err_code": 10023, "description": "insufficient resources"}
        client.api("STREAM.PURGE.S")
        assert json.loads(client.request("S", b"y")[0].payload)["seq"] == 5


def test_a_step_down_obeys_its_placement(cluster: Cluster) -> None:
    with RawClient(cluster[0].address) as client:
        created = create(client, "LED", num_replicas=3)
        assert "error" not in created

        def leader() -> str:
            return str(client.api("STREAM.INFO.LED")["cluster"].get("leader"))

        def step_down(expected: str, **placement: object) -> None:
            answer = client.api("STREAM.LEADER.STEPDOWN.LED", {"placement": placement})
            assert answer.get("success") is True, answer
            cluster[0].running.wait_until(lambda: led_by(expected, placement), what=f"{expected} led")

        def led_by(expected: str, placement: object) -> bool:
            """A transfer may fail, when the target is late; then it has to be asked for again."""
            if leader() == expected:
                return True
            client.api("STREAM.LEADER.STEPDOWN.LED", {"placement": placement})
            return False

        def refusal(**placement: object) -> object:
            error = client.api("STREAM.LEADER.STEPDOWN.LED", {"placement": placement})["error"]
            assert error["err_code"] == 10005
            return error["description"]

        if leader() == "n2":
            step_down("n3", tags=["az:b"])
        step_down("n2", tags=["hdd"])
        assert refusal(tags=["hdd"]) == "no replacement peer connected"
        assert refusal(cluster="X") == "no replacement peer connected"
        assert refusal(preferred="n2") == 'preferred server "n2" is already leader'
        assert refusal(preferred="n9") == 'preferred server "n9" not known'
        step_down("n1", preferred="n1", tags=["az:b"])
        client.api("STREAM.DELETE.LED")


def test_the_meta_leader_steps_down_to_the_server_asked_for(cluster: Cluster) -> None:
    def leads(name: str) -> bool:
        return bool(cluster[0].get("/jsz")[1]["meta_cluster"]["leader"] == name)

    with RawClient(cluster[0].address) as client:
        for name in ("n2", "n3"):
            if not leads(name):
                body = {"placement": {"preferred": name}}
                assert client.api("META.LEADER.STEPDOWN", body).get("success") is True
                cluster[0].running.wait_until(partial(leads, name), what=f"{name} led")
        error = client.api("META.LEADER.STEPDOWN", {"placement": {"preferred": "n3"}})["error"]
        assert error["description"] == 'preferred server "n3" is already leader'
