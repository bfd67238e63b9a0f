"""Questions to the leader, against real servers."""

import json
from collections.abc import Iterator

import pytest

from pyspark_jetstream import leader as leader_module
from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import ServerError, ServersUnavailableError, StreamNotFoundError
from pyspark_jetstream.leader import ApiRefusalError, Leader, read_answer
from pyspark_jetstream.options import Access
from pyspark_jetstream.wire import Frame
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.fake_replica import FakeReplica
from tests.spark.streams import create, delete_messages, publish


@pytest.fixture
def connections() -> Iterator[ConnectionCache]:
    cache = ConnectionCache()
    yield cache
    cache.close()


def asked(server: Server, stream: str, connections: ConnectionCache) -> Leader:
    return Leader(Access(servers=(server.url,), retry_timeout_s=2), stream, connections)


def test_the_view_has_the_streams_ends(server: Server, client: RawClient, connections: ConnectionCache) -> None:
    created = create(client, "ENDS")
    leader = asked(server, "ENDS", connections)
    empty = leader.view()
    assert (empty.first_seq, empty.last_seq, empty.end_seq, empty.last_time_ns) == (1, 0, 1, 0)
    publish(client, "ENDS", 5)
    delete_messages(client, "ENDS", 1)
    view = leader.view()
    assert (view.created, view.first_seq, view.last_seq, view.messages) == (created, 2, 5, 4)
    assert view.allow_direct
    assert view.replicas == {"n1"}
    assert client.api("STREAM.PURGE.ENDS")["success"]
    assert (leader.view().first_seq, leader.view().last_seq) == (6, 5)


def test_the_next_live_message_is_found(server: Server, client: RawClient, connections: ConnectionCache) -> None:
    create(client, "LIVE")
    publish(client, "LIVE", 6)
    delete_messages(client, "LIVE", 2, 3, 6)
    leader = asked(server, "LIVE", connections)
    assert [leader.next_live(seq) for seq in range(1, 8)] == [1, 4, 4, 4, 5, None, None]


def test_a_time_becomes_a_sequence(server: Server, client: RawClient, connections: ConnectionCache) -> None:
    create(client, "TIMES")
    for _ in range(5):  # messages that are stored together may have one time
        publish(client, "TIMES", 1)
    leader = asked(server, "TIMES", connections)
    third = client.api("STREAM.MSG.GET.TIMES", {"seq": 3})["message"]["time"]
    assert leader.seq_at(third) == 3
    assert leader.seq_at("2000-01-01T00:00:00Z") == 1
    assert leader.seq_at("2100-01-01T00:00:00Z") == 6
    assert leader.seq_at("2999-01-01T00:00:00Z") == 6  # no int64 of nanoseconds


def test_a_missing_stream_is_told_at_once(server: Server, connections: ConnectionCache) -> None:
    with pytest.raises(StreamNotFoundError, match="'NONE' does not exist"):
        asked(server, "NONE", connections).view()


def test_a_dead_server_is_passed_over(server: Server, client: RawClient, connections: ConnectionCache) -> None:
    create(client, "DEAD")
    access = Access(servers=("nats://127.0.0.1:1", server.url), retry_timeout_s=PATIENCE_S)
    assert Leader(access, "DEAD", connections).view().last_seq == 0


def test_nobody_there_is_an_error_after_the_deadline(connections: ConnectionCache) -> None:
    access = Access(servers=("nats://127.0.0.1:1",), retry_timeout_s=0.1)
    with pytest.raises(ServersUnavailableError, match=r"within 0\.1 s: nats://127\.0\.0\.1:1: cannot connect"):
        Leader(access, "S", connections).view()


def test_the_answer_survives_the_death_of_the_leader(cluster: Cluster, connections: ConnectionCache) -> None:
    with RawClient(cluster[0].address) as client:
        create(client, "SURVIVES", num_replicas=3)
        publish(client, "SURVIVES", 10)
        victim = cluster.named(client.api("STREAM.INFO.SURVIVES")["cluster"]["leader"])
    leader = Leader(Access(servers=(victim.url,)), "SURVIVES", connections)
    assert leader.view().last_seq == 10
    victim.kill()
    assert leader.view().last_seq == 10
    victim.start()
    cluster.wait_healthy()


def answer(**error: object) -> Frame:
    return Frame(verb=b"MSG", payload=json.dumps({"error": error} if error else {"ok": True}).encode())


def test_errors_are_sorted_by_what_helps() -> None:
    assert read_answer(answer(), "S") == {"ok": True}
    with pytest.raises(ServerError, match="no leader"):
        read_answer(answer(code=503, err_code=10008, description="no leader"), "S")
    with pytest.raises(StreamNotFoundError):
        read_answer(answer(code=404, err_code=10059, description="stream not found"), "S")
    with pytest.raises(ApiRefusalError, match="not enabled"):
        read_answer(answer(code=503, err_code=10076, description="not enabled"), "S")
    with pytest.raises(ServerError, match="is malformed"):
        read_answer(Frame(verb=b"MSG", payload=b"[]"), "S")
    with pytest.raises(ServerError, match="503 no responders"):
        read_answer(Frame(verb=b"MSG", header=b"NATS/1.0 503\r\n\r\n"), "S")


def test_a_silent_server_is_given_up_for_the_next(
    server: Server, client: RawClient, connections: ConnectionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_module, "ANSWER_TIMEOUT_S", 0.1)
    create(client, "MUTE")
    with FakeReplica(server.url, mute=True) as mute:
        access = Access(servers=(mute.url, server.url), retry_timeout_s=PATIENCE_S)
        assert Leader(access, "MUTE", connections).view().last_seq == 0
