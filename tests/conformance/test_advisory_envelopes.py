"""Each advisory and metric that a cluster publishes: both servers are provoked in one way, and envelopes compared.

What is compared is which events come, on which subjects, and the fields of each with the types of their values.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind

pytestmark = [pytest.mark.reference]

PREFIX: Final = "$JS.EVENT."
EXPECTED: Final = (
    "ADVISORY.API",
    "ADVISORY.CONSUMER.CREATED.S.d",
    "ADVISORY.CONSUMER.DELETED.S.g",
    "ADVISORY.CONSUMER.LEADER_ELECTED.S.d",
    "ADVISORY.CONSUMER.MAX_DELIVERIES.S.d",
    "ADVISORY.CONSUMER.MSG_NAKED.S.d",
    "ADVISORY.CONSUMER.MSG_TERMINATED.S.d",
    "ADVISORY.CONSUMER.PAUSE.S.d",
    "ADVISORY.CONSUMER.PINNED.S.g",
    "ADVISORY.CONSUMER.UNPINNED.S.g",
    "ADVISORY.STREAM.BATCH_ABANDONED.S",
    "ADVISORY.STREAM.CREATED.S",
    "ADVISORY.STREAM.DELETED.S",
    "ADVISORY.STREAM.LEADER_ELECTED.S",
    "ADVISORY.STREAM.RESTORE_COMPLETE.R",
    "ADVISORY.STREAM.RESTORE_CREATE.R",
    "ADVISORY.STREAM.SNAPSHOT_COMPLETE.S",
    "ADVISORY.STREAM.SNAPSHOT_CREATE.S",
    "ADVISORY.STREAM.UPDATED.S",
    "METRIC.CONSUMER.ACK.S.d",
)
OPTIONAL: Final = ("lag", "offline", "request")  # left out where there is none
ATTEMPTS: Final = 3
Shape = dict[str, str]  # path of a field -> type of its value
CLIENT_TEXTS: Final = ("start", "host", "acc", "lang", "ver", "server", "cluster", "kind", "client_type")
RESTORED: Final[Shape] = {  # as heard of 2.15.1, when it has ended one
    **{f".{name}": "str" for name in ("type", "id", "timestamp", "stream", "start", "end")},
    ".bytes": "int",
    **{f".client.{name}": "str" for name in CLIENT_TEXTS},
    **{f".client.{name}": "int" for name in ("id", "rtt")},
    "type": "io.nats.jetstream.advisory.v1.restore_complete",
}
STREAM: Final = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "allow_atomic": True}
REPLY: Final = "_INBOX.snapshot"


def shape(found: Any, path: str = "") -> Shape:
    """The fields of a document with their types; of a list the first item."""
    if isinstance(found, dict):
        fields: Shape = {}
        for name, item in found.items():
            if name not in OPTIONAL:
                fields |= shape(item, f"{path}.{name}")
        return fields
    if isinstance(found, list):
        return shape(found[0], f"{path}[]") if found else {path: "empty list"}
    return {path: type(found).__name__}


class Provocation:
    """One cluster of a kind, who listens, and what was heard."""

    def __init__(self, cluster: Cluster) -> None:
        self.listener = RawClient(cluster[0].address)
        self.listener.subscribe(PREFIX + ">")
        self.listener.settle()
        self.client = RawClient(cluster[0].address)
        self.heard: dict[str, Shape] = {}

    def listen(self, *kinds: str) -> None:
        """Return when one of each of these was heard, from now on or before."""
        deadline = time.monotonic() + PATIENCE_S
        while not set(kinds) <= set(self.heard):
            left_s = deadline - time.monotonic()
            event = self.listener.next_event(left_s) if left_s > 0 else None
            if event is None:
                return
            if isinstance(event, Message):
                body = json.loads(event.payload)
                self.heard.setdefault(event.subject.removeprefix(PREFIX), {**shape(body), "type": body["type"]})

    def api(self, subject: str, body: object = None) -> dict[str, Any]:
        return self.client.api(subject, body)

    def pull(self, consumer: str, **wish: object) -> Message:
        body = json.dumps({"batch": 1, "expires": 10**10, **wish}).encode()
        (found,) = self.client.request(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", body)
        return found

    def provoke(self) -> None:
        """Do all that leads to events."""
        self.api("STREAM.CREATE.S", STREAM)
        self.listen("ADVISORY.STREAM.LEADER_ELECTED.S", "ADVISORY.STREAM.CREATED.S")
        self.api("STREAM.UPDATE.S", {**STREAM, "max_msgs": 1000})
        self._consumers()
        self._backups()
        hdr = (("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "1"))
        self.client.request("s.a", b"x", headers=hdr)
        self.client.request("s.a", b"x", headers=(("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "3")))
        self.listen("ADVISORY.STREAM.BATCH_ABANDONED.S", "ADVISORY.API")
        self.api("STREAM.DELETE.S")  # and with it the consumer that is left
        self.listen(*EXPECTED)

    def _consumers(self) -> None:
        self._consume("d", ack_policy="explicit", max_deliver=2, sample_freq="100")
        self.listen("ADVISORY.CONSUMER.LEADER_ELECTED.S.d", "ADVISORY.CONSUMER.CREATED.S.d")
        for _ in range(4):
            self.client.request("s.a", b"x")
        self.client.publish(self.pull("d").reply, b"-NAK")
        self.client.publish(self.pull("d").reply, b"-NAK")  # the same message: the last delivery of it
        self.client.publish(self.pull("d").reply, b"+TERM for a reason")
        self.client.request(self.pull("d").reply, b"+ACK")
        self._consume("g", ack_policy="explicit", priority_groups=["A"], priority_policy="pinned_client")
        self.pull("g", group="A")
        self.api("CONSUMER.UNPIN.S.g", {"group": "A"})
        self.listen("ADVISORY.CONSUMER.UNPINNED.S.g")
        self.api("CONSUMER.PAUSE.S.d", {"pause_until": "2100-01-01T00:00:00Z"})
        self.listen("ADVISORY.CONSUMER.PAUSE.S.d")
        self.api("CONSUMER.DELETE.S.g")

    def _consume(self, name: str, **config: object) -> None:
        body = {"stream_name": "S", "config": {"durable_name": name, **config}}
        self.api(f"CONSUMER.CREATE.S.{name}", body)

    def _backups(self) -> None:
        sid = self.client.subscribe(REPLY)
        told = self.api("STREAM.SNAPSHOT.S", {"deliver_subject": REPLY})
        chunks: list[bytes] = []
        while not chunks or chunks[-1]:
            for message in self.client.messages(sid, 1):
                chunks.append(message.payload)
                if message.reply:
                    self.client.publish(message.reply)
        self.listen("ADVISORY.STREAM.SNAPSHOT_COMPLETE.S")
        config = {**told["config"], "name": "R", "subjects": ["r.>"]}
        for _attempt in range(ATTEMPTS):  # the reference takes an archive for none now and then
            begun = self.api("STREAM.RESTORE.R", {"config": config, "state": told["state"]})
            answers = [self.client.request(begun["deliver_subject"], chunk) for chunk in chunks]
            if answers[-1][0].payload:
                break
        self.listen("ADVISORY.STREAM.RESTORE_COMPLETE.R")

    def close(self) -> None:
        self.client.close()
        self.listener.close()


def provoked(kind: Kind, directory: Path) -> dict[str, Shape]:
    """What was heard, by kind."""
    with Cluster(kind, 3, directory=directory) as cluster:
        found = Provocation(cluster)
        try:
            found.provoke()
        finally:
            found.close()
        return found.heard


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Shape]]]:
    directory = tmp_path_factory.mktemp("clusters")
    kinds: tuple[Kind, Kind] = ("reference", "jetraft")
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = [pool.submit(provoked, kind, directory / kind) for kind in kinds]
        yield [one.result() for one in running]


@pytest.mark.parametrize("kind", EXPECTED)
def test_an_event_has_the_fields_of_the_reference(both: list[dict[str, Shape]], kind: str) -> None:
    expected, actual = (heard.get(kind) for heard in both)
    if expected is None and "RESTORE_COMPLETE" in kind:
        expected = RESTORED  # nats-server has ended none of its restores
    assert expected is not None, "the reference was not provoked"
    assert actual is not None, "no such event"
    assert actual == expected
