"""A stream with a subject transform, on one node in memory."""

from __future__ import annotations

import attrs

from jetraft.store.model.config import SubjectTransform
from tests.cluster.lab import Node, start_stream

TRANSFORM = SubjectTransform(src="s.*.*", dest="m.{{wildcard(2)}}")


def acks(node: Node, *subjects: bytes, hdr: bytes = b"") -> list[bytes]:
    for subject in subjects:
        node.publish(subject, b"x", hdr=hdr, reply=b"_INBOX.p")
    return [sent.payload for sent in node.turn()]


def test_messages_are_stored_under_mapped_subjects_and_others_as_they_come() -> None:
    node = Node()
    replica = start_stream(node, subject_transform=TRANSFORM)
    assert len(acks(node, b"s.a.b", b"s.a")) == 2
    assert [replica.machine.store.subject_of(seq) for seq in (1, 2)] == [b"m.b", b"s.a"]


def test_limits_by_subject_see_the_mapped_subject() -> None:
    node = Node()
    replica = start_stream(node, subject_transform=TRANSFORM, max_msgs_per_subject=1)
    acks(node, b"s.a.b", b"s.c.b")
    assert replica.info().state.messages == 1
    assert replica.machine.store.last_for(b"m.b") == 2


def test_expectations_see_the_mapped_subject() -> None:
    node = Node()
    start_stream(node, subject_transform=TRANSFORM)
    hdr = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"
    assert acks(node, b"s.a.b", hdr=hdr) == [b'{"stream":"S","seq":1}']
    assert b"wrong last sequence: 1" in acks(node, b"s.c.b", hdr=hdr)[0]


def test_another_transform_holds_from_its_configuration_on() -> None:
    node = Node()
    replica = start_stream(node, subject_transform=TRANSFORM)
    acks(node, b"s.a.b")
    config = attrs.evolve(replica.config, subject_transform=SubjectTransform(src="s.>", dest="n.>"))
    replica.reconfigure(attrs.evolve(replica.assignment, config=config))
    node.turn()
    acks(node, b"s.a.b")
    assert [replica.machine.store.subject_of(seq) for seq in (1, 2)] == [b"m.b", b"n.a.b"]


def test_a_subject_that_would_be_too_long_stays() -> None:
    node = Node()
    long = SubjectTransform(src="s.*", dest=".".join(["$1"] * 100))
    replica = start_stream(node, subject_transform=long)
    subject = b"s." + b"x" * 1000
    acks(node, subject)
    assert replica.machine.store.subject_of(1) == subject
