"""`jetraft recover`: two of three servers are destroyed for ever, and the third goes on."""

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jetraft.store.ledger.file import parse
from jetraft.store.ledger.ledger import NAMES
from tests.harness.cluster import Cluster
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Server, command, environment

CONFIRMED = "--yes-i-may-lose-data"
COUNT = 20


def recover(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command("jetraft"), "recover", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment("jetraft")},
    )


def publish(client: RawClient, text: bytes) -> dict[str, Any]:
    return client.acknowledged("s.a", text)


def replicas(client: RawClient) -> dict[str, bool]:
    """Which replicas beside the leader are current."""
    cluster = client.api("STREAM.INFO.S").get("cluster") or {}
    return {peer["name"]: peer["current"] for peer in cluster.get("replicas") or [] if not peer.get("offline")}


def fill(node: Server) -> None:
    """Make a stream on all three, and wait until all have everything."""
    with RawClient(node.address) as client:
        config = {"name": "S", "subjects": ["s.>"], "num_replicas": 3}
        assert "error" not in client.api("STREAM.CREATE.S", config)
        for seq in range(1, COUNT + 1):
            assert publish(client, b"%d" % seq)["seq"] == seq
        node.running.wait_until(lambda: all(replicas(client).values()), what="all replicas were current")


def destroy(node: Server) -> None:
    node.kill()
    shutil.rmtree(store(node))


def store(node: Server) -> Path:
    return node.directory / "store"


def identity(node: Server) -> int:
    """Which ledger the store has."""
    copy = parse((store(node) / "jetstream" / NAMES[0]).read_bytes())
    assert copy is not None
    return copy.head.ledger


def test_the_last_of_three_goes_on_and_two_new_ones_catch_up(tmp_path: Path) -> None:
    cluster = Cluster("jetraft", 3, directory=tmp_path)
    first, *others = cluster
    with cluster:
        fill(first)
        for node in others:
            destroy(node)

        in_use = recover(store(first), "--members", "n1", CONFIRMED)
        assert in_use.returncode == 1
        assert "another server process uses this store directory" in in_use.stderr
        first.stop()

        asked = recover(store(first), "--members", "n1")
        assert asked.returncode == 1
        assert "meta: kept: last entry" in asked.stdout
        assert ", n1" in asked.stdout or "voters n1" in asked.stdout, "who is left goes by name"
        assert "nothing was changed" in asked.stdout

        done = recover(store(first), "--members", "n1", CONFIRMED)
        assert (done.returncode, done.stderr) == (0, "")
        assert "WARNING" in done.stdout
        assert done.stdout.count("is kept") == 2, "the meta group and the stream's"
        before = identity(first)
        again = recover(store(first), "--members", "n1", CONFIRMED)
        assert (again.returncode, "nothing to do" in again.stdout) == (0, True)
        assert identity(first) != before, "others, put back from copies too, may know a later state of this store"

        first.start(wait=False)
        first.wait_listening()
        with RawClient(first.address) as client:
            first.running.wait_until(lambda: publish(client, b"on").get("seq", 0) > COUNT, what="publishing went on")
            found = client.api("STREAM.MSG.GET.S", {"seq": COUNT})
            assert found["message"]["subject"] == "s.a"
            for node in others:
                node.start(wait=False)
            for node in others:
                node.wait_listening()
            first.running.wait_until(
                lambda: replicas(client) == {"n2": True, "n3": True}, what="two new replicas were current"
            )


def test_what_pysyncobj_has_written_goes_on_alone_and_new_servers_need_the_other_engine(tmp_path: Path) -> None:
    """The engine keeps a group's members: it takes the configuration that is written for it, and changes it no more."""
    cluster = Cluster("jetraft", 3, directory=tmp_path, config='jetstream { raft_engine: "pysyncobj" }')
    first, *others = cluster
    with cluster:
        fill(first)
        for node in others:
            destroy(node)
        first.stop()
        done = recover(store(first), "--members", "n1", CONFIRMED)
        assert (done.returncode, done.stderr, done.stdout.count("is kept")) == (0, "", 2)

        first.start(wait=False)
        first.wait_listening()
        with RawClient(first.address) as client:
            first.running.wait_until(lambda: publish(client, b"on").get("seq", 0) > COUNT, what="publishing went on")
            assert client.api("STREAM.MSG.GET.S", {"seq": COUNT})["message"]["subject"] == "s.a"
            last_seq = publish(client, b"the last of this engine")["seq"]
        for node in others:
            node.start(wait=False)
        for node in others:
            node.wait_listening()
            node.running.wait_until(partial(says, node), what="the new server said why it waits")
        first.stop()
        for node in others:
            node.stop()

        for node in cluster:
            node.config = None
            node.start(wait=False)
        for node in cluster:
            node.wait_listening()
        with RawClient(first.address) as client:
            first.running.wait_until(
                lambda: replicas(client) == {"n2": True, "n3": True}, what="two new replicas were current", timeout_s=30
            )
            found = client.api("STREAM.MSG.GET.S", {"seq": last_seq})
            assert "error" not in found
            assert publish(client, b"on")["seq"] == last_seq + 1


def says(node: Server) -> bool:
    return "raft_engine pysyncobj keeps a group's members" in (node.directory / "server.log").read_text()


@pytest.fixture
def impostor() -> Iterator[tuple[int, list[str]]]:
    """A port where a server says a name, and the list that the name is taken from."""
    names: list[str] = []
    with socket.create_server((HOST, 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"INFO " + json.dumps({"server_name": names[0]}).encode() + b"\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1]), names
        listener.shutdown(socket.SHUT_RDWR)


def test_it_is_refused_while_a_server_that_is_not_on_the_list_answers(
    impostor: tuple[int, list[str]], tmp_path: Path
) -> None:
    port, names = impostor
    names.append("n2")
    refused = recover(tmp_path, "--members", "n1", "--ask", f"{HOST}:{port}", CONFIRMED)
    assert refused.returncode == 1
    assert f"n2 answers at {HOST}:{port}, so it is not lost" in refused.stderr
    passed = recover(tmp_path, "--members", "n1,n2", "--ask", f"{HOST}:{port}", CONFIRMED)
    assert "no store directory" in passed.stderr


@pytest.mark.parametrize("words", [(), ("somewhere",), ("somewhere", "--members")])
def test_wrong_words_are_status_2(words: tuple[str, ...]) -> None:
    outcome = recover(*words)
    assert outcome.returncode == 2
    assert "usage: jetraft recover" in outcome.stderr
