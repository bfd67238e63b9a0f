"""/metrics of real servers, read by the client library of Prometheus."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Server

Samples = dict[str, dict[tuple[str, ...], float]]
STREAMS, CONSUMERS = 3, 4


def get(server: Server, path: str) -> tuple[int, str]:
    """Status and text of a page."""
    connection = http.client.HTTPConnection(HOST, server.http_port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def metrics(server: Server, arguments: str = "") -> Samples:
    """Name of a sample -> values of its labels -> value; no sample is there twice."""
    status, text = get(server, f"/metrics{arguments}")
    assert status == 200, text
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            key = tuple(sample.labels.values())
            assert key not in values, (sample.name, key)
            values[key] = sample.value
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Streams S0, S1, ... of three replicas; S0 has ten messages, of which consumer c0 was given four."""
    with Cluster("jetraft", directory=tmp_path_factory.mktemp("metrics")) as made:
        with RawClient(made[0].address) as client:
            for number in range(STREAMS):
                config = {"name": f"S{number}", "subjects": [f"s{number}.>"], "num_replicas": 3}
                assert "error" not in client.api(f"STREAM.CREATE.S{number}", config)
            for number in range(CONSUMERS):
                spark = {"spark.query": "orders"} if number == 0 else {}
                config = {"durable_name": f"c{number}", "ack_policy": "explicit", "metadata": spark}
                body = {"stream_name": "S0", "config": config}
                assert "error" not in client.api(f"CONSUMER.CREATE.S0.c{number}", body)
            for number in range(10):
                assert "seq" in client.acknowledged("s0.x", b"%d" % number)
            assert len(client.request("$JS.API.CONSUMER.MSG.NEXT.S0.c0", b'{"batch":4}', replies=4)) == 4
        yield made


@pytest.fixture
def leader(cluster: Cluster) -> Server:
    """The node that leads S0."""
    with RawClient(cluster[0].address) as client:
        return cluster.named(client.api("STREAM.INFO.S0")["cluster"]["leader"])


def test_streams_consumers_groups_and_the_disk_have_their_figures(leader: Server) -> None:
    found = metrics(leader)
    stream, consumer = ("$G", "S0"), ("$G", "S0", "c0")
    assert found["jetraft_stream_messages"][stream] == 10
    assert (found["jetraft_stream_first_seq"][stream], found["jetraft_stream_last_seq"][stream]) == (1, 10)
    assert found["jetraft_stream_bytes"][stream] > 0
    assert found["jetraft_streams"][()] == STREAMS
    assert len([key for key in found["jetraft_stream_replica_lag"] if key[1] == "S0"]) == 2
    assert found["jetraft_consumer_num_pending"][consumer] == 6
    assert found["jetraft_consumer_num_ack_pending"][consumer] == 4
    assert found["jetraft_consumer_ack_floor_seq"][consumer] == 0
    assert set(found["jetraft_consumer_oldest_unacked_seconds"]) == {consumer}
    [group] = [key for key in found["jetraft_raft_leads"] if key[2] == "S0"]
    assert found["jetraft_raft_leads"][group] == 1
    assert found["jetraft_raft_term"][group] >= 1
    assert found["jetraft_raft_elections_won_total"][group] >= 1
    assert ("meta", "", "") in found["jetraft_raft_term"]
    assert found["jetraft_disk_batch_seconds_count"][()] > 0
    assert found["jetraft_disk_batch_seconds_bucket"]["+Inf",] == found["jetraft_disk_batch_seconds_count"][()]
    assert found["process_resident_memory_bytes"][()] > 1 << 20


def test_a_spark_query_is_seen_by_its_connections_and_its_durable_consumer(leader: Server) -> None:
    with RawClient(leader.address, name="spark orders"), RawClient(leader.address, name="sparkle"):
        found = metrics(leader)
    assert found["jetraft_spark_connections"] == {("$G", "orders"): 1}
    assert found["jetraft_spark_lag_messages"] == {("$G", "S0", "c0", "orders"): 10}
    assert found["jetraft_spark_rows"] == {("$G", "S0", "c0", "orders"): 0}


def test_what_is_above_the_limits_is_counted_and_not_shown(leader: Server) -> None:
    found = metrics(leader, "?consumers=1&streams=2")
    assert set(found["jetraft_stream_messages"]) == {("$G", "S0"), ("$G", "S1")}
    assert set(found["jetraft_consumer_num_pending"]) == {("$G", "S0", "c0")}
    assert found["jetraft_omitted"] == {("streams",): STREAMS - 2, ("consumers",): CONSUMERS - 1}
    assert "jetraft_stream_messages" not in metrics(leader, "?acc=OTHER")
    assert "jetraft_consumer_num_pending" not in metrics(leader, "?consumers=-5")


def test_a_follower_shows_its_replica_and_leaves_consumers_to_the_leader(cluster: Cluster, leader: Server) -> None:
    follower = next(node for node in cluster if node is not leader)
    follower.running.wait_until(
        lambda: metrics(follower)["jetraft_stream_last_seq"]["$G", "S0"] == 10, what="the replica had everything"
    )
    found = metrics(follower)
    assert ("$G", "S0") not in {key[:2] for key in found.get("jetraft_stream_replica_lag", {})}
    assert ("$G", "S0", "c0") not in found.get("jetraft_consumer_num_pending", {})


@pytest.mark.parametrize("arguments", ["?streams=many", "?consumers=1.5"])
def test_wrong_arguments_are_refused(leader: Server, arguments: str) -> None:
    status, text = get(leader, f"/metrics{arguments}")
    assert status == 400
    assert "Error decoding int" in text


def test_a_server_without_jetstream_has_the_page_too(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, jetstream=False) as server:
        found = metrics(server)
    assert found["jetraft_connections"][()] == 0
    assert "jetraft_streams" not in found


def test_every_publish_is_counted_with_the_time_until_its_ack_and_entries_with_that_until_their_commit(
    tmp_path: Path,
) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        with RawClient(server.address) as client:
            client.api("STREAM.CREATE.ONE", {"name": "ONE", "subjects": ["one"]})
            inbox = client.new_inbox()
            sid = client.subscribe(inbox)
            client.send(b"".join(b"PUB one %s 1\r\nx\r\n" % inbox.encode() for _ in range(100)))
            assert len(client.messages(sid, 100)) == 100
        found = metrics(server)
    assert found["jetraft_publish_ack_seconds_count"] == {(): 100}
    assert 1 <= found["jetraft_raft_commit_seconds_count"][()] <= 100, "one for what a turn proposes"
    for name in ("publish_ack", "raft_commit", "raft_apply", "turn", "disk_batch"):
        buckets = found[f"jetraft_{name}_seconds_bucket"]
        counts = [value for _, value in sorted(buckets.items(), key=lambda row: float(row[0][0]))]
        assert counts == sorted(counts)
        assert counts[-1] == found[f"jetraft_{name}_seconds_count"][()] > 0
        assert found[f"jetraft_{name}_seconds_sum"][()] > 0
