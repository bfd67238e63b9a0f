"""A stream of one node reads an origin that the test plays: what it copies, and when it says that it has done so."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson
import pytest

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.capture.reach import MessageOrigin
from jetraft.cluster.memory_budget import LOOK_NS, MemoryBudget
from jetraft.cluster.origins.reader import ANSWER_WAIT_NS, RETRY_NS
from jetraft.store.disk.cgroup import MemoryGroup
from jetraft.store.model.config import StorageType, StreamSource, SubjectTransform
from tests.cluster.lab import Node, Sent, start_stream

if TYPE_CHECKING:
    from pathlib import Path

    from jetraft.cluster.streams.replica.replica import StreamReplica

ACK: Final = b"$JS.ACK.O.c.1.%d.%d.%d.0"
CREATE: Final = b".CONSUMER.CREATE."
QUESTION: Final = b"$JS.FC.O.c.1"
SOURCE: Final = StreamSource(name="O")
READERS: Final = [{"sources": (SOURCE,)}, {"mirror": SOURCE, "subjects": ()}]


class Watched(Node):
    """A node that keeps how far its stream was applied when an answer left."""

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions |= {b"$JS.API.CONSUMER.>", QUESTION}
        self.replica: StreamReplica | None = None
        self.applied_at: list[tuple[bytes, int]] = []

    def send(  # noqa: PLR0913  (the port's)
        self,
        to: bytes,
        *,
        subject: bytes | None = None,
        reply: bytes = b"",
        hdr: bytes = b"",
        payload: bytes = b"",
        origin: MessageOrigin = MessageOrigin.ANSWER,
    ) -> int:
        if self.replica is not None:
            self.applied_at.append((to, self.replica.machine.last_seq))
        return super().send(to, subject=subject, reply=reply, hdr=hdr, payload=payload, origin=origin)


def reading(node: Watched, **fields: Any) -> bytes:
    """Start a stream that reads O, and answer its request; returns the subject that it wants deliveries on."""
    node.replica = start_stream(node, **fields)
    request = [sent for sent in node.sleep(ANSWER_WAIT_NS + RETRY_NS) if CREATE in sent.to][-1]
    config = orjson.loads(request.payload)["config"]
    answer = {"name": config["name"], "delivered": {"consumer_seq": 0, "stream_seq": 0}, "num_pending": 3}
    answer["config"] = {**config, "ack_policy": "flow_control"}
    node.publish(request.reply, orjson.dumps(answer))
    node.turn()
    deliver: str = config["deliver_subject"]
    return deliver.encode()


def delivered(subject: bytes, seq: int) -> bytes:
    """A delivery as it is captured: under the subject of the message."""
    return encode_capture(subject, ACK % (seq, seq, 1000 + seq), b"", b"%d" % seq)


def deliver_batch(node: Watched, deliver: bytes, *records: bytes) -> list[Sent]:
    """Let the consumer's subject receive records in one turn."""
    (handler,) = [handler for pattern, handler in node.sinks.values() if pattern == deliver]
    handler(b"".join(records))
    return node.turn()


def stored(node: Watched) -> list[tuple[bytes, bytes]]:
    assert node.replica is not None
    store = node.replica.machine.store
    return [(found.subject, found.payload) for found in store.load_many(store.next_matches((), 1, 100))]


@pytest.mark.parametrize("fields", READERS)
def test_what_is_acknowledged_to_the_origin_is_applied(fields: dict[str, Any]) -> None:
    """The origin removes what is acknowledged (decision 100): an answer that left before would lose it in a crash."""
    node = Watched()
    deliver = reading(node, **fields)
    asked = encode_capture(deliver, QUESTION, b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"")
    sent = deliver_batch(node, deliver, *(delivered(b"s.a", seq) for seq in (1, 2, 3)), asked)
    (answer,) = [one for one in sent if one.to == QUESTION]
    assert b"Nats-Last-Stream: 3\r\n" in answer.hdr
    assert [seq for to, seq in node.applied_at if to == QUESTION] == [3]


def test_plain_copies_get_the_subjects_that_the_stream_gives_its_messages() -> None:
    node = Watched()
    deliver = reading(node, sources=(SOURCE,), subject_transform=SubjectTransform(src="s.*", dest="to.{{wildcard(1)}}"))
    deliver_batch(node, deliver, delivered(b"s.a", 1), delivered(b"t.a", 2))
    assert stored(node) == [(b"to.a", b"1"), (b"t.a", b"2")]


def test_a_node_without_room_takes_no_copies_and_asks_again(tmp_path: Path) -> None:
    """What is refused comes again: the position stays before it."""
    (tmp_path / "memory.stat").write_text("")
    (tmp_path / "memory.current").write_text("0")
    node = Watched()
    watch = MemoryBudget((MemoryGroup(directory=tmp_path, kind="cgroup2", limit_bytes=1 << 20),))
    node.site = attrs.evolve(node.site, memory=watch)
    deliver = reading(node, sources=(SOURCE,), storage=StorageType.MEMORY)
    (tmp_path / "memory.current").write_text(str(1 << 20))
    node.sleep(LOOK_NS)
    deliver_batch(node, deliver, *(delivered(b"s.a", seq) for seq in (1, 2)))
    assert stored(node) == []

    (tmp_path / "memory.current").write_text("0")
    (again,) = [orjson.loads(sent.payload)["config"] for sent in node.sleep(RETRY_NS) if CREATE in sent.to]
    assert again["deliver_policy"] == "all"


@pytest.mark.parametrize("fields", READERS, ids=["source", "mirror"])
def test_an_origin_that_does_not_answer_is_asked_for_ever_and_named(
    fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    node, kind = Watched(), next(iter(fields)).removesuffix("s")
    start_stream(node, **fields)
    with caplog.at_level(logging.INFO):
        asked = [sent for sent in node.sleep(100 * ANSWER_WAIT_NS) if CREATE in sent.to]
    assert len(asked) > 90
    assert f"stream $G > S: its {kind} O: it does not answer" in caplog.messages
    assert len(caplog.messages) < 20, "once a minute"
