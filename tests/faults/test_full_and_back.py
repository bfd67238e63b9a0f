"""A disk that fills up and gets room again, with many small streams and with a few large ones.

Each log needs a little room to give much back: an entry, a block, a checkpoint. What is shown: publishers are refused
with JetStream's own error and every publish is answered; nothing acknowledged is lost, also by a kill meanwhile;
purging works on the full disk, at once and after a restart, and publishes are taken again within BACK_S.
"""

import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import REPLY_TIMEOUT_S, RawClient
from tests.harness.server import Server
from tests.harness.small_disk import small_disks

pytestmark = pytest.mark.campaign

DISK_MIB = 300
PAYLOAD = b"x" * (16 << 10)
BACK_S = 5.0  # from the answer to a purge until publishes are taken: 0.6 to 0.9 s on a machine that does nothing else
WINDOW = 240  # publishes on their way
FULL = 10047
NO_PEERS = 10005
NO_RESPONDERS = "503"
FILL_S = 120.0
ANSWER_S = 1.0  # to a publish, before it counts as lost with its leader
EXHAUSTED_BYTES = 64 << 10


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Server]:
    """A server with a small disk for its store."""
    with small_disks([tmp_path / "store"], DISK_MIB << 10), Server("jetraft", directory=tmp_path) as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three servers with a small disk each."""
    places = [tmp_path / name for name in ("n1", "n2", "n3")]
    with small_disks(places, DISK_MIB << 10), Cluster("jetraft", 3, directory=tmp_path) as servers:
        yield servers


@attrs.define
class Streams:
    """Streams of one server, and how many messages each has acknowledged since it was purged."""

    node: Server
    acked: dict[str, int]

    @classmethod
    def created(cls, node: Server, count: int, *, replicas: int = 1) -> "Streams":
        names = [f"S{number}" for number in range(count)]
        with RawClient(node.address) as client:
            for name in names:
                config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas}
                assert "error" not in client.api(f"STREAM.CREATE.{name}", config)
        return cls(node, dict.fromkeys(names, 0))

    def fill(self, *, unanswered_max: int = 0) -> None:
        """Publish to all of them until each refuses; every publish is answered, and refused for one reason only.

        Those on their way may be lost with a leader that hands over, and while there is none nobody responds (503):
        so many of a window.
        """
        with RawClient(self.node.address) as client:
            sid = client.subscribe("answer.*")
            taking, began_s = set(self.acked), time.monotonic()
            while taking:
                assert time.monotonic() - began_s < FILL_S, f"{taking} neither take nor refuse messages"
                names = sorted(taking)
                names *= max(1, WINDOW // len(names))
                for name in names:
                    client.publish(f"{name}.a", PAYLOAD, reply=f"answer.{name}")
                messages = client.messages(sid, len(names), ANSWER_S if unanswered_max else REPLY_TIMEOUT_S)
                answers = [message for message in messages if not message.status.startswith(NO_RESPONDERS)]
                unanswered = len(names) - len(answers)
                assert unanswered <= unanswered_max, f"{unanswered} publishes were not answered"
                for answer in answers:
                    name = answer.subject.removeprefix("answer.")
                    said = json.loads(answer.payload)
                    if "error" in said:
                        assert said["error"]["err_code"] == FULL
                        taking.discard(name)
                    else:
                        self.acked[name] += 1

    def purge(self, names: list[str]) -> None:
        with RawClient(self.node.address) as client:
            for name in names:
                assert client.api(f"STREAM.PURGE.{name}") == {
                    "type": "io.nats.jetstream.api.v1.stream_purge_response",
                    "success": True,
                    "purged": self.acked[name],
                }
                self.acked[name] = 0

    def wait_taken(self, since_s: float) -> None:
        """Every stream takes messages again, soon."""
        with RawClient(self.node.address) as client:
            for name in self.acked:
                while not self._is_taken(client, name):
                    assert time.monotonic() - since_s < BACK_S, f"{name} takes no messages"
                self.acked[name] += 1
        assert time.monotonic() - since_s < BACK_S

    @staticmethod
    def _is_taken(client: RawClient, name: str) -> bool:
        """Ask once: a node that has room before the others is given the leadership, and a publish may be lost."""
        inbox = client.new_inbox()
        sid = client.subscribe(inbox)
        client.publish(f"{name}.a", b"x", reply=inbox)
        answers = client.messages(sid, 1, ANSWER_S)
        return bool(answers) and not answers[0].status and "error" not in json.loads(answers[0].payload)

    def check_kept(self) -> None:
        """Every stream is there, with exactly what it has acknowledged."""
        with RawClient(self.node.address) as client:
            found = {name: client.api(f"STREAM.INFO.{name}").get("state", {}).get("messages") for name in self.acked}
        assert found == self.acked

    @property
    def halves(self) -> tuple[list[str], list[str]]:
        names = list(self.acked)
        return names[: len(names) // 2], names[len(names) // 2 :]

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.node.store_dir)
        return status.f_bavail * status.f_frsize

    def restart_killed(self) -> None:
        self.node.kill()
        self.node.start()


def is_full(node: Server) -> bool:
    status, said = node.get("/healthz")
    return status == 503 and "the disk is nearly full" in said["error"]


@pytest.mark.parametrize("count", [60, 5])
def test_streams_on_a_full_disk_and_back(node: Server, count: int) -> None:
    streams = Streams.created(node, count)
    assert node.healthy()

    streams.fill()

    assert sum(streams.acked.values()) * len(PAYLOAD) > 0.6 * (DISK_MIB << 20), "the disk is for messages"
    assert is_full(node)
    assert node.get("/healthz?js-enabled-only=true")[0] == node.get("/healthz?js-server-only=true")[0] == 200
    with RawClient(node.address) as client:
        refused = client.api("STREAM.CREATE.LATE", {"name": "LATE", "subjects": ["late.>"]})
        assert refused["error"]["err_code"] == FULL
        consumer = {"stream_name": "S0", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        assert "error" not in client.api("CONSUMER.DURABLE.CREATE.S0.D", consumer)
        delivered = client.request("$JS.API.CONSUMER.MSG.NEXT.S0.D", b"1")[0]
        assert client.request(delivered.reply, b"+ACK")[0].payload == b""

    streams.purge(streams.halves[0])
    streams.wait_taken(time.monotonic())
    streams.fill()
    streams.check_kept()

    streams.restart_killed()
    streams.check_kept()
    streams.purge(streams.halves[1])
    streams.wait_taken(time.monotonic())
    node.wait_healthy()
    streams.check_kept()
    assert not [line for line in node.running.lines if "[ERR]" in line]


def test_three_nodes_with_full_disks_say_so_and_take_messages_again_after_a_purge(cluster: Cluster) -> None:
    streams = Streams.created(cluster[0], 5, replicas=3)

    streams.fill(unanswered_max=WINDOW)

    for node in (cluster[0], cluster[1], cluster[2]):
        node.running.wait_until(partial(is_full, node), what="it said that its disk is full")
    with RawClient(cluster[0].address) as client:
        late = {"name": "LATE", "subjects": ["late.>"], "num_replicas": 3}
        assert client.api("STREAM.CREATE.LATE", late)["error"]["err_code"] == NO_PEERS
        purged = [client.api(f"STREAM.PURGE.{name}") for name in streams.halves[0]]
    for name, said in zip(streams.halves[0], purged, strict=True):
        assert said["purged"] >= streams.acked[name]
        streams.acked[name] = 0
    streams.wait_taken(time.monotonic())
    with RawClient(cluster[0].address) as client:
        for name, count in streams.acked.items():
            assert client.api(f"STREAM.INFO.{name}")["state"]["messages"] >= count


def test_a_disk_that_somebody_else_has_filled_to_the_last_byte(node: Server) -> None:
    """Not even the reserve is left: what the emergency file held is what the logs can write."""
    streams = Streams.created(node, 30)
    with RawClient(node.address) as client:
        for name in streams.acked:
            for _ in range(20):
                assert "error" not in client.acknowledged(f"{name}.a", PAYLOAD * 8)
                streams.acked[name] += 1
    assert (node.store_dir / "jetstream" / "emergency").exists()

    node.kill()
    with (node.store_dir / "ballast").open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, streams.free_bytes)
    assert streams.free_bytes < EXHAUSTED_BYTES
    node.start()

    streams.check_kept()
    with RawClient(node.address) as client:
        assert client.acknowledged("S0.a", b"x")["error"]["err_code"] == FULL
    streams.purge(list(streams.acked))
    streams.restart_killed()
    streams.check_kept()

    (node.store_dir / "ballast").unlink()
    streams.wait_taken(time.monotonic())
    node.wait_healthy()
