"""A stream of counters, on one node in memory; refusals and their order are in the conformance scenes."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import encode_capture
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


def copy(seq: int, payload: bytes, *lines: bytes) -> bytes:
    """A copy of an origin's message, as a source hands it to its stream."""
    hdr = message.append(b"", b"Nats-Stream-Source", b"O %d > > o.x id" % seq)
    for line in lines:
        name, _, value = line.partition(b": ")
        hdr = message.append(hdr, name, value)
    return encode_capture(b"s.x", hdr=hdr, payload=payload)


def test_a_copy_adds_what_its_origin_has_grown_by() -> None:
    node = Node()
    replica = start_stream(node, allow_msg_counter=True)
    leadership = replica._leadership
    assert leadership is not None
    add(node, b"s.x", "100")
    copies = [copy(seq, b'{"val":"%s"}' % told, b"Nats-Incr: 1") for seq, told in enumerate([b"5", b"7", b"-3"], 1)]
    assert leadership.admit_copies(b"".join(copies)) == (0, None)
    node.turn()
    found = [replica.machine.store.load(seq) for seq in (2, 3, 4)]
    assert [one.payload for one in found if one] == [b'{"val":"105"}', b'{"val":"107"}', b'{"val":"97"}']
    assert [message.get(one.hdr, b"Nats-Incr") for one in found if one] == [b"5", b"2", b"-10"]
    assert found[2] is not None
    assert message.get(found[2].hdr, b"Nats-Counter-Sources") == b'{"O":{"o.x":"-3"}}'


@pytest.mark.parametrize(
    "unwanted",
    [
        copy(1, b"x"),
        copy(1, b"x", b"Nats-Incr: 1"),
        copy(1, b'{"val":7}', b"Nats-Incr: 1"),
        copy(1, b'{"val":"7"}'),
        encode_capture(b"s.x", hdr=b"NATS/1.0\r\nNats-Incr: 1\r\n\r\n", payload=b'{"val":"7"}'),
    ],
)
def test_a_copy_that_is_no_counter_is_passed_over(unwanted: bytes) -> None:
    node = Node()
    replica = start_stream(node, allow_msg_counter=True)
    leadership = replica._leadership
    assert leadership is not None
    wanted = copy(2, b'{"val":"4"}', b"Nats-Incr: 4")
    assert leadership.admit_copies(wanted + unwanted) == (1, None)
    assert leadership.admit_copies(unwanted + wanted) == (0, None)
    node.turn()
    assert replica.machine.last_seq == 2
