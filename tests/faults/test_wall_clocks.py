"""Somebody sets the wall clock of one server of three by an hour, and back: real processes, and a library that lies.

`wall_clock.c` is loaded into each server and adds what a file says to CLOCK_REALTIME; it is compiled here.
"""

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster
from tests.harness.log_lines import wait_for_event
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server

HOUR_S = 3600
S = 10**9
STREAM = "W"
MESSAGES = 50
LEAST_S = 2  # a TTL of the tests
SOURCE = Path(__file__).parent / "wall_clock.c"
# Each server finds the file of its own by its name, which stands behind -n.
START = """
import os, sys
name = sys.argv[sys.argv.index("-n") + 1]
os.environ["WALL_FILE"] = os.path.join({walls!r}, name)
os.environ["LD_PRELOAD"] = {library!r}
os.execv(sys.executable, [sys.executable, "-m", "jetraft", *sys.argv[1:]])
"""

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")]


@pytest.fixture
def walls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files lie that say how wrong each server's wall clock is; servers that are started now look there."""
    library, walls, start = tmp_path / "wall_clock.so", tmp_path / "walls", tmp_path / "start.py"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    walls.mkdir()
    for name in ("n1", "n2", "n3"):
        (walls / name).write_bytes(struct.pack("q", 0))
    start.write_text(START.format(walls=str(walls), library=str(library)), encoding="utf-8")
    monkeypatch.setenv("JETRAFT_SERVER_CMD", f"{sys.executable} {start}")
    return walls


@pytest.fixture
def cluster(walls: Path, tmp_path: Path) -> Iterator[Cluster]:
    assert walls.is_dir()
    with Cluster("jetraft", 3, directory=tmp_path) as started:
        yield started


def set_wall(walls: Path, node: Server, wrong_by_s: int) -> None:
    """Set the clock of a running server; returns when the server has seen it."""
    with (walls / node.name).open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack("q", wrong_by_s), 0)
    wait(lambda: abs(own_wall_s(node) - wrong_by_s) < 2, f"{node.name} is {wrong_by_s} s ahead")


def own_wall_s(node: Server) -> float:
    """How far the machine's clock is ahead of that of what is stored, as the server says."""
    _, document = node.get("/varz")
    return int(document["jetraft"]["clocks"]["own_wall_ns"]) / S


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def leader_of(cluster: Cluster, client: RawClient) -> Server:
    found: list[str] = []

    def has_leader() -> bool:
        found[:] = [str(client.api(f"STREAM.INFO.{STREAM}").get("cluster", {}).get("leader") or "")]
        return found[0] != ""

    wait(has_leader, "the stream has a leader")
    return cluster.named(found[0])


def publish_ids(client: RawClient) -> list[dict[str, Any]]:
    """The same messages each time."""
    return [
        client.acknowledged("w.x", b"%d" % number, headers=[("Nats-Msg-Id", str(number))]) for number in range(MESSAGES)
    ]


def outlive(client: RawClient) -> float:
    """Publish a message that lasts LEAST_S and return how long it was there, in seconds of the test."""
    begin = time.monotonic()
    seq = client.acknowledged("w.ttl", b"short", headers=[("Nats-TTL", f"{LEAST_S}s")])["seq"]
    wait(lambda: "error" in client.api(f"STREAM.MSG.GET.{STREAM}", {"seq": seq}), "a message with a TTL has left")
    return time.monotonic() - begin


def messages(client: RawClient) -> int:
    return int(client.api(f"STREAM.INFO.{STREAM}")["state"]["messages"])


def check(client: RawClient) -> None:
    """TTLs take their time, nothing younger than max_age has left, and no id is forgotten."""
    assert outlive(client) > LEAST_S * 0.9
    assert messages(client) == MESSAGES
    assert all(answer.get("duplicate") for answer in publish_ids(client))


@pytest.mark.parametrize("wrong_by_s", [HOUR_S, -HOUR_S])
def test_no_age_is_wrong_when_the_leader_s_wall_clock_is_set(cluster: Cluster, walls: Path, wrong_by_s: int) -> None:
    with RawClient(cluster[0].address) as client:
        config = {"name": STREAM, "subjects": ["w.>"], "num_replicas": 3, "allow_msg_ttl": True}
        created = client.api(f"STREAM.CREATE.{STREAM}", {**config, "max_age": 600 * S, "duplicate_window": 600 * S})
        assert "error" not in created, created
        publish_ids(client)
        leader = leader_of(cluster, client)
        set_wall(walls, leader, wrong_by_s)
        check(client)
        differ = wait_for_event(leader.running, "text", "clocks_differ")
        assert abs(float(differ["ahead_s"]) - wrong_by_s) < 60
        set_wall(walls, leader, 0)
        check(client)
        wait_for_event(leader.running, "text", "clocks_agree")


def test_a_server_that_comes_back_with_a_wrong_wall_clock_leads_with_the_time_of_the_others(
    cluster: Cluster, walls: Path
) -> None:
    config = {"name": STREAM, "subjects": ["w.>"], "num_replicas": 3, "allow_msg_ttl": True}
    with RawClient(cluster[0].address) as client:
        created = client.api(f"STREAM.CREATE.{STREAM}", {**config, "max_age": 600 * S, "duplicate_window": 600 * S})
        assert "error" not in created, created
        publish_ids(client)
        old = leader_of(cluster, client)
    other = next(node for node in cluster if node is not old)
    old.kill()
    (walls / old.name).write_bytes(struct.pack("q", HOUR_S))
    old.start()
    cluster.wait_healthy()
    with RawClient(other.address) as client:
        wait(lambda: lead_by(client, cluster, old), f"{old.name} leads again")
        check(client)
        assert abs(own_wall_s(old) - HOUR_S) < 60


def lead_by(client: RawClient, cluster: Cluster, wanted: Server) -> bool:
    """Ask the present leader to hand over to this one; True when it leads."""
    if leader_of(cluster, client) is wanted:
        return True
    client.api(f"STREAM.LEADER.STEPDOWN.{STREAM}", {"placement": {"preferred": wanted.name}})
    return leader_of(cluster, client) is wanted
