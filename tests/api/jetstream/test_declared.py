"""Streams of the configuration file on real servers: made when absent, left alone when present."""

from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server


def config(replicas: int, max_msgs: int) -> str:
    """A file with one stream; the harness gives all else by flags."""
    return (
        f'jetstream {{ streams: [ {{ name: DECLARED, subjects: ["d.>"], num_replicas: {replicas},'
        f" max_msgs: {max_msgs} }} ] }}\n"
    )


def max_msgs(server: Server) -> int:
    with RawClient(server.address) as client:
        answer = client.api("STREAM.INFO.DECLARED", {})
    return -1 if "error" in answer else int(answer["config"]["max_msgs"])


def test_a_stream_is_made_once_and_a_changed_file_does_not_change_it(tmp_path: Path) -> None:
    server = Server("jetraft", directory=tmp_path, config=config(1, 10))
    try:
        server.start()
        server.running.wait_until(lambda: max_msgs(server) == 10, what="the stream is made")
        with RawClient(server.address) as client:
            assert client.acknowledged("d.a", b"x")["seq"] == 1
        server.stop()
        server.start()
        server.running.wait_for_line("stream $G > DECLARED is there as it is declared")
        server.stop()
        server.config = config(1, 20)
        server.start()
        server.running.wait_for_line("stream $G > DECLARED is not as it is declared, and stays as it is")
        assert max_msgs(server) == 10
        with RawClient(server.address) as client:
            assert client.api("STREAM.INFO.DECLARED", {})["state"]["messages"] == 1
    finally:
        server.close()


def test_servers_of_a_cluster_that_declare_the_same_stream_make_it_once(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=config(3, 10)) as cluster:
        for node in cluster.nodes:
            node.running.wait_for_line("stream $G > DECLARED is there as it is declared")
            assert max_msgs(node) == 10
        with RawClient(cluster.nodes[0].address) as client:
            assert len(client.api("STREAM.INFO.DECLARED", {})["cluster"]["replicas"]) == 2


@pytest.mark.parametrize("replicas", [3])
def test_a_stream_that_cannot_be_made_is_told_and_the_server_serves(tmp_path: Path, replicas: int) -> None:
    with Server("jetraft", directory=tmp_path, config=config(replicas, 10)) as server:
        line = "stream $G > DECLARED cannot be made: replicas > 1 not supported in non-clustered mode"
        server.running.wait_for_line(line)
        assert max_msgs(server) == -1
