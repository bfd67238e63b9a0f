"""A node that is stopped answers what clients of other nodes have published by then, or the next leader does."""

import json
import signal
import time
from collections.abc import Iterator

import attrs
import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

STREAM = "H"
WINDOW = 64  # of each client
STOPS = 2  # in each of them another node leads
BEFORE = 500  # acknowledged before the leader is told to stop, and as many after it has gone


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("handing-over")) as running:
        with RawClient(running[0].address) as client:
            config = {"name": STREAM, "subjects": ["h"], "num_replicas": 3, "allow_direct": True}
            assert "error" not in client.api(f"STREAM.CREATE.{STREAM}", config)
        yield running


@attrs.define(eq=False)
class Publisher:
    """Numbers its publishes, and asks for an answer to each on a subject of its own."""

    client: RawClient
    sent: int = 0
    acknowledged: dict[int, int] = attrs.Factory(dict)  # number to sequence in the stream
    refused: dict[int, str] = attrs.Factory(dict)

    @classmethod
    def at(cls, node: Server) -> "Publisher":
        client = RawClient(node.address)
        client.subscribe(f"{client.inbox}.*")
        return cls(client)

    @property
    def waiting(self) -> int:
        return self.sent - len(self.acknowledged) - len(self.refused)

    def publish(self) -> None:
        """Fill the window."""
        while self.waiting < WINDOW:
            inbox = self.client.inbox
            self.client.publish("h", f"{inbox}-{self.sent}".encode(), reply=f"{inbox}.{self.sent}")
            self.sent += 1

    def read(self) -> bool:
        """Take one answer; False when none came."""
        event = self.client.next_event(1.0)
        if isinstance(event, Message):
            number = int(event.subject.rpartition(".")[2])
            assert number not in self.acknowledged, "answered twice"
            answer = json.loads(event.payload) if event.payload else {}
            if "seq" in answer:
                self.acknowledged[number] = answer["seq"]
            else:
                self.refused[number] = event.status or json.dumps(answer)
        return event is not None


def leader_of(node: Server) -> str:
    with RawClient(node.address) as client:
        return str(client.api(f"STREAM.INFO.{STREAM}")["cluster"]["leader"])


def stored(node: Server) -> dict[int, bytes]:
    """All messages of the stream, by sequence."""
    with RawClient(node.address) as client:
        state = client.api(f"STREAM.INFO.{STREAM}")["state"]
        found: dict[int, bytes] = {}
        while len(found) < state["messages"]:
            body = json.dumps({"seq": max(found, default=0) + 1, "batch": 1000}).encode()
            for message in client.request(f"$JS.API.DIRECT.GET.{STREAM}", body, replies=1001, until_status=True):
                fields = dict(message.headers)
                if "Nats-Sequence" in fields:
                    found[int(fields["Nats-Sequence"])] = message.payload
        return found


@pytest.mark.parametrize("stop", range(STOPS))
def test_what_others_have_published_is_answered_though_its_leader_stops(cluster: Cluster, stop: int) -> None:
    leader = cluster.named(leader_of(cluster[0]))
    publishers = [Publisher.at(node) for node in cluster if node is not leader]
    deadline = time.monotonic() + PATIENCE_S

    def go_on(until: int) -> None:
        while any(len(publisher.acknowledged) < until for publisher in publishers):
            assert time.monotonic() < deadline
            for publisher in publishers:
                publisher.publish()
                publisher.read()

    go_on(BEFORE)
    leader.running.signal(signal.SIGTERM)
    while leader.running.running:
        go_on(min(len(publisher.acknowledged) for publisher in publishers) + 1)
    go_on(min(len(publisher.acknowledged) for publisher in publishers) + BEFORE)
    for publisher in publishers:
        while publisher.waiting and publisher.read():
            pass
    assert leader.running.wait() == 0
    leader.start()
    cluster.wait_healthy()
    held = stored(cluster[0])
    assert [publisher.waiting for publisher in publishers] == [0, 0], f"without an answer: {stop}"
    for publisher in publishers:
        for number, seq in publisher.acknowledged.items():
            assert held[seq] == f"{publisher.client.inbox}-{number}".encode()
        publisher.client.close()
    assert len(set(held.values())) == len(held), "nothing is stored twice"
