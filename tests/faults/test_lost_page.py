"""A follower of three loses a page, the end or the whole of its newest block, which holds acknowledged messages.

Two members have the messages; the third was down. The damaged one and the third are a majority, and all that the third
knows is that it knows nothing: they must wait for the member that has everything before they elect, publish or answer
that there is nothing. The ledger of the damaged one may not have noted all of them yet: it has to ask the others how
far its log may have gone.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jetraft.store.inspection.inspect import inspect
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server

pytestmark = pytest.mark.campaign

STREAM = "T"
MESSAGES = 8
PAGE_BYTES = 4096
ALONE_S = 6.0  # for what must not happen: elections take 2 s at most
ACKNOWLEDGED = {seq: b"acked%d" % seq for seq in range(1, MESSAGES + 1)}

Damage = Callable[[Path], None]


def zero_first_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(PAGE_BYTES))


def cut_short(path: Path) -> None:
    os.truncate(path, 200)


def delete(path: Path) -> None:
    path.unlink()


def newest_block(node: Server) -> Path:
    group = next(group for group in inspect(node.store_dir).groups if group.group_id != "meta")
    return Path(group.path) / group.generation / group.blocks[-1].name


def leader_of(cluster: Cluster) -> Server:
    with RawClient(next(node for node in cluster if node.running.running).address) as client:
        return cluster.named(str(client.api(f"STREAM.INFO.{STREAM}")["cluster"]["leader"]))


def acknowledged_alone(node: Server, payload: bytes) -> int | None:
    """The sequence of one publish while the member that has everything is away; None when nobody acknowledges it."""
    deadline = time.monotonic() + ALONE_S
    with RawClient(node.address) as client:
        inbox = client.new_inbox()
        sid = client.subscribe(inbox)
        while time.monotonic() < deadline:
            client.publish("t.x", payload, reply=inbox, headers=[("Nats-Msg-Id", "alone")])
            for answer in client.messages(sid, 1, timeout_s=1.0):
                found = json.loads(answer.payload) if answer.payload else {}
                if "error" not in found and "seq" in found:
                    return int(found["seq"])
    return None


def stored(cluster: Cluster) -> dict[int, bytes]:
    with RawClient(cluster[0].address) as client:
        return client.stored(STREAM, MESSAGES)


@pytest.mark.parametrize("damage", [zero_first_page, cut_short, delete])
def test_a_follower_that_lost_its_newest_block_does_not_help_to_overwrite_it(tmp_path: Path, damage: Damage) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        with RawClient(cluster[0].address) as client:
            config = {"name": STREAM, "subjects": ["t.>"], "num_replicas": 3, "allow_direct": True}
            assert "error" not in client.api(f"STREAM.CREATE.{STREAM}", config)
        leader = leader_of(cluster)
        damaged, absent = (node for node in cluster if node is not leader)
        absent.kill()
        with RawClient(leader.address) as client:
            acked = [client.acknowledged("t.x", payload)["seq"] for payload in ACKNOWLEDGED.values()]
        assert acked == list(ACKNOWLEDGED)
        leader.kill()
        damaged.kill()
        damage(newest_block(damaged))

        damaged.start(wait=False)
        absent.start(wait=False)
        damaged.wait_listening()
        absent.wait_listening()
        alone = acknowledged_alone(absent, b"later")
        assert alone is None or alone > MESSAGES, "a sequence that was acknowledged is given out again"

        leader.start()
        cluster.wait_healthy(PATIENCE_S)
        assert stored(cluster) == ACKNOWLEDGED
        lines = [line for line in damaged.running.lines if "[WRN]" in line or "[ERR]" in line]
        assert any("S-R3F-" in line for line in lines), "nothing says that the follower's log was damaged"
