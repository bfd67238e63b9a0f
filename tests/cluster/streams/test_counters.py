"""A stream of counters, on one node in memory; refusals and their order are in the conformance scenes."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.log.mem_log import MemLog
from jetraft.store.model import message
from jetraft.store.model.requests import JSApiStreamPurgeRequest
from tests.cluster.lab import Node, finish, start_stream

NUMBERS = st.lists(st.integers(min_value=-(10**40), max_value=10**40), max_size=12)


def add(node: Node, subject: bytes, *increments: str, reply: bytes = b"_INBOX.p") -> list[Any]:
    for text in increments:
        node.publish(subject, hdr=b"NATS/1.0\r\nNats-Incr: %s\r\n\r\n" % text.encode(), reply=reply)
    return [json.loads(sent.payload) for sent in node.turn()]


def values(answers: list[Any]) -> list[str]:
    return [answer["val"] for answer in answers]


@given(NUMBERS)
def test_sums_are_those_of_whole_numbers(numbers: list[int]) -> None:
    node = Node()
    start_stream(node, allow_msg_counter=True)
    told = values(add(node, b"s.a", *map(str, numbers)))
    assert told == [str(sum(numbers[: at + 1])) for at in range(len(numbers))]


def test_messages_in_flight_count() -> None:
    node = Node()
    log = MemLog()
    replica = start_stream(node, log, allow_msg_counter=True)
    log._durable_on_submit = False
    add(node, b"s.a", "+2", "3")
    add(node, b"s.b", "7")
    assert add(node, b"s.a", "-1") == []
    log.complete()
    assert sorted(values([json.loads(sent.payload) for sent in node.turn()])) == ["2", "4", "5", "7"]
    found = replica.machine.store.load(4)
    assert found is not None
    assert found.payload == b'{"val":"4"}'


def test_a_number_may_be_longer_than_the_limit_of_int() -> None:
    node = Node()
    start_stream(node, allow_msg_counter=True)
    digits = sys.int_info.default_max_str_digits + 1000
    first, second = values(add(node, b"s.a", "9" * digits, "1"))
    assert (first, second) == ("9" * digits, "1" + "0" * digits)


def test_a_sum_survives_a_restart() -> None:
    node = Node()
    log = MemLog()
    first = start_stream(node, log, allow_msg_counter=True)
    add(node, b"s.a", "5")
    first.stop()
    start_stream(node, log, allow_msg_counter=True)
    assert values(add(node, b"s.a", "1")) == ["6"]


def test_a_purge_begins_at_zero() -> None:
    node = Node()
    replica = start_stream(node, allow_msg_counter=True)
    add(node, b"s.a", "5")
    finish(node, lambda: replica.purge(JSApiStreamPurgeRequest(filter="s.a")))
    assert values(add(node, b"s.a", "1")) == ["1"]


def test_sources_are_kept_from_message_to_message_in_flight_too() -> None:
    node = Node()
    replica = start_stream(node, allow_msg_counter=True)
    hdr = b'NATS/1.0\r\nNats-Incr: 1\r\nNats-Counter-Sources: {"O":{"a":"1"}}\r\n\r\n'
    node.publish(b"s.a", hdr=hdr)
    add(node, b"s.a", "1")
    found = replica.machine.store.load(2)
    assert found is not None
    assert message.get(found.hdr, b"Nats-Counter-Sources") == b'{"O":{"a":"1"}}'


@pytest.mark.parametrize("reply", [b"", b"_INBOX.p"])
def test_a_refused_increment_changes_nothing(reply: bytes) -> None:
    node = Node()
    replica = start_stream(node, allow_msg_counter=True)
    add(node, b"s.a", "x", reply=reply)
    assert replica.info().state.messages == 0
    assert values(add(node, b"s.a", "1")) == ["1"]
