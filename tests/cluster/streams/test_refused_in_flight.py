"""A publish that is refused because of one that is in flight hears of it when that one is committed, and not before."""

from __future__ import annotations

import json

import pytest

from jetraft.store.log.mem_log import MemLog
from tests.cluster.lab import Node, start_stream

WRONG = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_refusal_leaves_with_what_it_rests_on_or_never(*, is_committed: bool) -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log, num_replicas=3)
    log._durable_on_submit = False
    node.publish(b"s.a", b"x", reply=b"_INBOX.first")
    node.publish(b"s.a", b"y", hdr=WRONG, reply=b"_INBOX.second")
    assert node.turn() == [], "neither is answered before the first is durable"
    if not is_committed:
        replica.group.fail(RuntimeError("disk"), node.clock.mono_ns())
    log.complete()
    answers = {sent.to: json.loads(sent.payload) for sent in node.turn()}
    if not is_committed:
        assert answers == {}
        return
    assert answers[b"_INBOX.first"]["seq"] == 1
    assert answers[b"_INBOX.second"]["error"]["description"] == "wrong last sequence: 1"
