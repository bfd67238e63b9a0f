import attrs
import pytest

from pyspark_jetstream import replicas
from pyspark_jetstream.client import ServerInfo
from pyspark_jetstream.options import Access
from pyspark_jetstream.replicas import Directory, survey
from tests.harness.cluster import Cluster
from tests.harness.server import Server


def test_one_address_is_enough_to_find_all_servers_once(cluster: Cluster) -> None:
    found = survey(Access(servers=(cluster[1].url,)))
    assert sorted(server.name for server in found) == ["n1", "n2", "n3"]
    everything = survey(Access(servers=(*cluster.urls, cluster[0].url.replace("127.0.0.1", "localhost"))))
    assert [server.name for server in everything] == ["n1", "n2", "n3"]


def test_a_reported_address_has_the_scheme_of_the_server_that_reported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = {
        "nats://plain:1": info("A", "plain:2", "tls:2"),
        "nats://plain:2": info("B"),
        "tls://tls:1": info("C", "tls:2", "plain:1", "tls:3"),
        "nats://tls:2": info("D"),
        "tls://tls:3": info("E"),
    }
    asked: list[str] = []

    def probe(url: str, _: Access) -> ServerInfo | None:
        asked.append(url)
        return reports[url]

    monkeypatch.setattr(replicas, "probe", probe)
    found = survey(Access(servers=("nats://plain:1", "tls://tls:1")))
    assert [server.url for server in found] == list(dict.fromkeys(asked)) == [
        "nats://plain:1", "tls://tls:1", "nats://plain:2", "nats://tls:2", "tls://tls:3",
    ]  # fmt: skip


def info(server_id: str, *connect_urls: str) -> ServerInfo:
    return ServerInfo(
        server_id=server_id,
        server_name=server_id,
        connect_urls=connect_urls,
        payload_bytes_max=1,
        tls_required=False,
        tls_available=True,
        auth_required=False,
        jetstream=True,
    )


def test_holders_of_a_replica_come_first(cluster: Cluster) -> None:
    found = Directory(Access(servers=tuple(cluster.urls))).candidates(frozenset({"n3"}))
    assert [(server.name, server.has_replica) for server in found] == [("n3", True), ("n1", False), ("n2", False)]


def test_a_survey_holds_for_a_while(server: Server) -> None:
    directory = Directory(Access(servers=(server.url,)))
    first = directory.candidates(frozenset({"n1"}))
    directory._access = attrs.evolve(directory._access, servers=("nats://127.0.0.1:1",))
    assert directory.candidates(frozenset({"n1"})) == first
    directory._surveyed_at_s -= replicas.SURVEY_VALID_S + 1
    assert [entry.url for entry in directory.candidates(frozenset({"n1"}))] == ["nats://127.0.0.1:1"]
