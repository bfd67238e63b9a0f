"""A stream that republishes, on one node in memory."""

from __future__ import annotations

import attrs

from jetraft.store.log.mem_log import MemLog
from jetraft.store.model import message
from jetraft.store.model.config import Republish
from tests.cluster.lab import Node, Sent, start_stream

RULE = Republish(src="s.*", dest="r.$1")


def publish(node: Node, *subjects: bytes, hdr: bytes = b"") -> list[Sent]:
    """What is sent under the destination."""
    for subject in subjects:
        node.publish(subject, b"0123456789", hdr=hdr, reply=b"_INBOX.p")
    return [sent for sent in node.turn() if sent.to.startswith(b"r.")]


def listening() -> Node:
    node = Node()
    node.subscriptions.add(b"r.>")
    return node


def lasts(copies: list[Sent]) -> list[bytes | None]:
    return [message.get(sent.hdr, message.LAST_SEQUENCE) for sent in copies]


def test_copies_leave_when_the_messages_are_committed_and_not_before() -> None:
    node = listening()
    log = MemLog()
    start_stream(node, log, republish=RULE)
    log._durable_on_submit = False
    assert publish(node, b"s.a") == []
    log.complete()
    (copy,) = [sent for sent in node.turn() if sent.to == b"r.a"]
    assert copy.payload == b"0123456789"
    assert dict(message.items(copy.hdr)) | {message.TIME_STAMP: b""} == {
        message.STREAM: b"S",
        message.SUBJECT: b"s.a",
        message.SEQUENCE: b"1",
        message.TIME_STAMP: b"",
        message.LAST_SEQUENCE: b"0",
    }


def test_nothing_is_republished_after_leadership_is_lost() -> None:
    node = listening()
    log = MemLog()
    replica = start_stream(node, log, republish=RULE)
    log._durable_on_submit = False
    publish(node, b"s.a")
    replica.group.fail(RuntimeError("disk"), node.clock.mono_ns())
    log.complete()
    assert publish(node, b"s.a") == []


def test_the_last_sequence_is_right_among_messages_of_one_turn() -> None:
    node = listening()
    start_stream(node, republish=RULE)
    assert lasts(publish(node, b"s.a", b"s.b", b"s.a", b"s.a")) == [b"0", b"0", b"1", b"3"]
    assert lasts(publish(node, b"s.b", b"s.a")) == [b"2", b"4"]


def test_the_last_sequence_is_right_among_several_entries_that_are_committed_together() -> None:
    node = listening()
    log = MemLog()
    start_stream(node, log, republish=RULE)
    log._durable_on_submit = False
    publish(node, b"s.a", b"s.b")
    publish(node, b"s.a")
    publish(node, b"s.b")
    log.complete()
    copies = [sent for sent in node.turn() if sent.to.startswith(b"r.")]
    assert lasts(copies) == [b"0", b"0", b"1", b"2"]


def test_only_headers_are_sent_when_the_rule_says_so() -> None:
    node = listening()
    replica = start_stream(node, republish=RULE)
    rule = attrs.evolve(RULE, headers_only=True)
    replica.reconfigure(attrs.evolve(replica.assignment, config=attrs.evolve(replica.config, republish=rule)))
    node.turn()
    (copy,) = publish(node, b"s.a", hdr=b"NATS/1.0\r\nA: b\r\n\r\n")
    assert copy.payload == b""
    assert message.valid_block(copy.hdr)
    assert (message.get(copy.hdr, b"A"), message.get(copy.hdr, message.MSG_SIZE)) == (b"b", b"10")
