"""A store that has lived: several streams, restarts, purges, consumers, checkpoints; and what clients were told of it.

Everything is acknowledged before the next step, so the record is what must be there, message by message.
"""

import json
from collections.abc import Sequence
from typing import Any

import attrs

from tests.corruption.judge import Promise
from tests.corruption.places import STREAM, Tree, group_of, places
from tests.harness.raw import RawClient

MESSAGE_BYTES = 150
KEYS = 8
REPLACED = 300  # messages of one of the keys each, in the first part: enough that its block is worth compacting
REPLACED_BYTES = 1024
KEPT_FROM, KEPT_EVERY = 100, 30  # of these, messages of a key of their own: a first block takes some 60
ROUND = 20  # messages of a part
ACKED = 8  # of them, by a consumer
KEPT = 3  # of a purge

STREAMS: dict[str, dict[str, Any]] = {
    "LIMITS": {},
    "KEYS": {"max_msgs_per_subject": 1},
    "WORK": {"retention": "workqueue"},
    "PURGED": {},
}
YOUNG = "YOUNG"  # created in the last session: a log of one block
CONSUMERS = {"LIMITS": "reader", "WORK": "worker"}


@attrs.define
class Record:
    """What clients were told about one stream so far."""

    name: str
    group: str = ""
    live: dict[int, bytes] = attrs.Factory(dict)
    subjects: dict[str, int] = attrs.Factory(dict)
    last_seq: int = 0
    floor: int = 0

    @property
    def promise(self) -> Promise:
        """It, for the judge."""
        return Promise(
            stream=self.name,
            group=self.group,
            live=dict(self.live),
            last_seq=self.last_seq,
            consumer=CONSUMERS.get(self.name, ""),
            floor=self.floor,
        )


class Life:
    """The streams of one store; each method is one part of their life."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.records: dict[str, Record] = {name: Record(name) for name in STREAMS}

    @property
    def promises(self) -> list[Promise]:
        """What clients were told."""
        return [record.promise for record in self.records.values()]

    def begin(self, client: RawClient) -> None:
        """Create the streams, one of them in memory, of which nothing is promised."""
        for name, more in STREAMS.items():
            self._create(client, name, more)
        for name, consumer in CONSUMERS.items():
            config = {"stream_name": name, "config": {"durable_name": consumer, "ack_policy": "explicit"}}
            answer = client.api(f"CONSUMER.DURABLE.CREATE.{name}.{consumer}", config)
            assert "error" not in answer, answer
        self._create(client, "MEMORY", {"storage": "memory"})

    def begin_young(self, client: RawClient) -> None:
        """Create one more stream."""
        self._create(client, YOUNG, {})
        self.records[YOUNG] = Record(YOUNG)

    def _create(self, client: RawClient, name: str, more: dict[str, Any]) -> None:
        config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": self.replicas, "allow_direct": True, **more}
        answer = client.api(f"STREAM.CREATE.{name}", config)
        assert "error" not in answer, answer

    def name_groups(self, tree: Tree) -> None:
        """Learn by which ids log lines call the streams: groups are numbered as they were created."""
        groups = {group_of(place.name): None for place in places(tree) if place.kind.startswith(STREAM)}
        for record, group in zip(self.records.values(), groups, strict=False):
            record.group = group

    def replace_keys(self, client: RawClient) -> None:
        """Write some keys again and again: of the first block all is dead then, of the second one most, but not all."""
        for number in range(REPLACED):
            keeps = number >= KEPT_FROM and number % KEPT_EVERY == 0
            key = f"kept{number}" if keeps else f"first{number % KEYS}"
            self._publish(client, "KEYS", f"KEYS.{key}", REPLACED_BYTES)

    def purge(self, client: RawClient) -> None:
        """Remove nearly everything from a stream."""
        answer = client.api("STREAM.PURGE.PURGED", {"keep": KEPT})
        assert answer.get("success"), answer
        live = self.records["PURGED"].live
        for seq in sorted(live)[:-KEPT]:
            del live[seq]

    def go_on(self, client: RawClient) -> None:
        """Publish to every stream, and acknowledge some deliveries."""
        for name in self.records:
            for number in range(ROUND):
                self._publish(client, name, f"{name}.{number % KEYS}", MESSAGE_BYTES)
        for name, consumer in CONSUMERS.items():
            self._acknowledge(client, self.records[name], consumer)

    def _publish(self, client: RawClient, name: str, subject: str, size: int) -> None:
        record = self.records[name]
        payload = (b"%d of %s " % (record.last_seq + 1, name.encode())).ljust(size, b".")
        answer = client.acknowledged(subject, payload)
        assert "error" not in answer, answer
        assert answer["seq"] == record.last_seq + 1, answer
        record.last_seq += 1
        record.live[record.last_seq] = content(subject, payload)
        if "max_msgs_per_subject" in STREAMS.get(name, {}):
            record.live.pop(record.subjects.get(subject, 0), None)
            record.subjects[subject] = record.last_seq

    @staticmethod
    def _acknowledge(client: RawClient, record: Record, consumer: str) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{record.name}.{consumer}"
        wish = json.dumps({"batch": ACKED, "expires": 5_000_000_000}).encode()
        delivered = client.request(subject, wish, replies=ACKED)
        assert len(delivered) == ACKED, delivered
        for message in delivered:
            (confirmed,) = client.request(message.reply, b"+ACK")
            assert not confirmed.status, confirmed
            seq = int(message.reply.split(".")[-4])  # $JS.ACK.stream.consumer.deliveries.seq.consumer_seq.time.pending
            assert record.live[seq].endswith(message.payload)
            record.floor = seq
            if STREAMS[record.name].get("retention") == "workqueue":
                del record.live[seq]


def content(subject: str, payload: bytes) -> bytes:
    """What the judge compares: a message under another subject is another message."""
    return subject.encode() + b" " + payload


def published(promises: Sequence[Promise]) -> int:
    """How many messages must be there."""
    return sum(len(promise.live) for promise in promises)
