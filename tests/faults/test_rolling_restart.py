"""A rolling restart that trusts `/healthz`: each server is restarted when the one before says ok, and nothing is lost.

Streams in memory are what makes it hard: a server that was restarted holds nothing of them until the others have
refilled it, and one that says ok before that lets the next restart destroy what a majority had acknowledged.
"""

import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import until
from tests.harness.raw import RawClient
from tests.harness.server import Server

pytestmark = pytest.mark.campaign

MEMORY_STREAMS = tuple(f"M{number}" for number in range(5))
FILE_STREAMS = tuple(f"F{number}" for number in range(15))
MESSAGES = 100  # in each stream
PAYLOAD = b"x" * 2_000


def create(cluster: Cluster) -> None:
    with RawClient(cluster[0].address) as client:
        for name in (*MEMORY_STREAMS, *FILE_STREAMS):
            storage = "memory" if name in MEMORY_STREAMS else "file"
            config = {"name": name, "subjects": [name], "num_replicas": 3, "storage": storage}
            created = client.api(f"STREAM.CREATE.{name}", config)
            assert "error" not in created, created


def publish(cluster: Cluster, names: tuple[str, ...], count: int) -> None:
    """Everything is acknowledged when this returns."""
    with RawClient(cluster[0].address) as client:
        for name in names:
            for number in range(count):
                client.acknowledged(name, b"%d " % number + PAYLOAD)


def held(cluster: Cluster) -> Mapping[str, int]:
    """How many messages each stream has, as its leader says."""
    found = {}
    with RawClient(cluster[0].address) as client:
        for name in (*MEMORY_STREAMS, *FILE_STREAMS):
            info = client.api(f"STREAM.INFO.{name}")
            assert "error" not in info, (name, info)
            assert "lost" not in info["state"], (name, info["state"])
            found[name] = info["state"]["messages"]
    return found


def test_a_rolling_restart_by_healthz_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        create(cluster)
        publish(cluster, MEMORY_STREAMS, MESSAGES)
        publish(cluster, FILE_STREAMS, 1)
        for node in cluster:
            node.restart()
            node.wait_healthy()
        expected = dict.fromkeys(MEMORY_STREAMS, MESSAGES) | dict.fromkeys(FILE_STREAMS, 1)
        assert held(cluster) == expected


def in_memory(cluster: Cluster) -> None:
    """Each of the three has everything when this returns: a majority would do for the acknowledgements."""
    with RawClient(cluster[0].address) as client:
        config = {"name": "M", "subjects": ["m"], "num_replicas": 3, "storage": "memory", "allow_direct": True}
        assert "error" not in client.api("STREAM.CREATE.M", config)
        for number in range(MESSAGES):
            client.acknowledged("m", b"%d" % number)

        def all_current() -> bool:
            replicas = client.api("STREAM.INFO.M")["cluster"]["replicas"]
            return len(replicas) == 2 and all(each["current"] and not each.get("lag") for each in replicas)

        until(all_current)


def says(node: Server, words: str) -> bool:
    return words in str(node.get("/healthz")[1])


def says_ok_alone(node: Server) -> bool:
    return node.get("/healthz") == (200, {"status": "ok"})


def restart(*nodes: Server) -> None:
    """SIGKILL, all at once, and start again."""
    for node in nodes:
        node.running.signal(signal.SIGKILL)
    for node in nodes:
        node.running.wait()
    for node in nodes:
        node.start(wait=False)
    for node in nodes:
        node.wait_listening()


def test_the_only_member_that_remembers_a_stream_in_memory_refills_the_others(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        in_memory(cluster)
        restart(cluster[1], cluster[2])
        for node in cluster:
            node.wait_healthy()
        with RawClient(cluster[1].address) as client:
            info = client.api("STREAM.INFO.M")
            assert client.acknowledged("m", b"more")["seq"] == MESSAGES + 1
        assert info["state"]["messages"] == MESSAGES
        assert info["cluster"]["leader"] == cluster[0].name
        assert "forgotten" in info["state"]["lost"], "the two may have acknowledged more"
        restart(cluster[0])  # the others are voters again, and have everything
        for node in cluster:
            node.wait_healthy()
        with RawClient(cluster[0].address) as client:
            assert client.api("STREAM.INFO.M")["state"]["messages"] == MESSAGES + 1


def test_the_only_replica_of_a_stream_in_memory_says_that_a_restart_has_emptied_it(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        with RawClient(server.address) as client:
            for name in ("M", "N"):
                config = {"name": name, "subjects": [name], "storage": "memory"}
                assert "error" not in client.api(f"STREAM.CREATE.{name}", config)
            client.acknowledged("M", b"gone")
            assert "error" not in client.api("STREAM.DELETE.N")
        server.restart()
        told = "streams in memory have lost their messages, as all members were restarted: '$G > M'"
        server.running.wait_until(partial(says, server, told), what="/healthz said it")
        server.wait_healthy()
        with RawClient(server.address) as client:
            assert "error" not in client.api("STREAM.CREATE.N", {"name": "N", "subjects": ["N"], "storage": "memory"})
            assert "lost" not in client.api("STREAM.INFO.N")["state"], "it is another stream"
            state = client.api("STREAM.INFO.M")["state"]
            assert (state["messages"], "forgotten" in state["lost"]) == (0, True)
            client.api("STREAM.PURGE.M")
            assert "lost" not in client.api("STREAM.INFO.M")["state"]
        server.running.wait_until(partial(says_ok_alone, server), what="it has no notice any more")


def test_a_stream_in_memory_that_all_have_forgotten_says_so_until_it_is_purged(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        in_memory(cluster)
        restart(*cluster)
        told = "streams in memory have lost their messages, as all members were restarted: '$G > M'"
        for node in cluster:
            node.running.wait_until(partial(says, node, told), what="/healthz said it")
            node.wait_healthy()
        with RawClient(cluster[0].address) as client:
            assert client.acknowledged("m", b"first")["seq"] == 1
            assert "forgotten" in client.api("STREAM.INFO.M")["state"]["lost"]
            restart(cluster[1])
            cluster[1].running.wait_until(partial(says, cluster[1], told), what="it was refilled, with the note")
            purged = client.api("STREAM.PURGE.M", {"seq": 1})
            assert purged["purged"] == 0, purged
            state = client.api("STREAM.INFO.M")["state"]
        assert "lost" not in state
        assert state["messages"] == 1
        for node in cluster:
            node.running.wait_until(partial(says_ok_alone, node), what="it has no notice any more")
