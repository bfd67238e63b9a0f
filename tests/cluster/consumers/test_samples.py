"""Ack metrics: what is measured, for whom, and how many of the acks."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from jetraft.store.model.config import AckPolicy
from tests.cluster.consumers.test_pull import Client

S = 10**9
METRIC = b"$JS.EVENT.METRIC.CONSUMER.ACK.S.c"


def sampled(client: Client) -> list[dict[str, object]]:
    """The metrics of what was just acknowledged."""
    return [orjson.loads(sent.payload) for sent in client.node.turn() if sent.to == METRIC]


def test_a_sample_says_which_delivery_was_acknowledged_and_how_long_it_took() -> None:
    client = Client(b"s.a", b"s.a", ack_policy=AckPolicy.EXPLICIT, sample_freq="100%", ack_wait=2 * S)
    client.node.subscriptions.add(METRIC)
    first, second = client.pull(b'{"batch":2}', sleep_ns=S)
    client.node.publish(first.reply)
    (event,) = sampled(client)
    shown = {name: event[name] for name in ("type", "stream", "consumer", "consumer_seq", "stream_seq")}
    assert shown == {
        "type": "io.nats.jetstream.metric.v1.consumer_ack",
        "stream": "S",
        "consumer": "c",
        "consumer_seq": 1,
        "stream_seq": 1,
    }
    assert (event["ack_time"], event["deliveries"]) == (S, 1)
    client.pull(b'{"batch":1,"expires":60000000000}', sleep_ns=5 * S // 2)
    client.node.publish(second.reply, b"+ACK", reply=b"_INBOX.r")
    (event,) = sampled(client)
    assert (event["stream_seq"], event["ack_time"], event["deliveries"]) == (2, 3 * S // 2, 2)


def test_a_plain_ack_of_a_redelivery_is_measured_as_the_delivery_that_it_names() -> None:
    client = Client(b"s.a", b"s.b", ack_policy=AckPolicy.EXPLICIT, sample_freq="100%", ack_wait=2 * S)
    client.node.subscriptions.add(METRIC)
    client.pull(b'{"batch":2}')
    again = client.pull(b'{"batch":2,"expires":60000000000}', sleep_ns=5 * S // 2)
    for message in again:
        client.node.publish(message.reply)
    events = sampled(client)
    assert [(event["stream_seq"], event["consumer_seq"], event["deliveries"]) for event in events] == [
        (1, 3, 2),
        (2, 4, 2),
    ]


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"ack_policy": AckPolicy.EXPLICIT}, b""),
        ({"ack_policy": AckPolicy.EXPLICIT, "sample_freq": "0"}, b""),
        ({"ack_policy": AckPolicy.EXPLICIT, "sample_freq": "100"}, b"+TERM"),
        ({"ack_policy": AckPolicy.EXPLICIT, "sample_freq": "100"}, b"-NAK"),
        ({"ack_policy": AckPolicy.ALL, "sample_freq": "100"}, b""),
    ],
)
def test_nothing_else_is_sampled(fields: dict[str, Any], body: bytes) -> None:
    client = Client(b"s.a", **fields)
    client.node.subscriptions.add(METRIC)
    (message,) = client.pull()
    client.node.publish(message.reply, body)
    assert sampled(client) == []


def test_a_share_of_the_acks_is_sampled() -> None:
    client = Client(*[b"s.a"] * 400, ack_policy=AckPolicy.EXPLICIT, sample_freq="25")
    object.__setattr__(client.node.site, "rng", random.Random(7))
    client.node.subscriptions.add(METRIC)
    for message in client.pull(b'{"batch":400}'):
        client.node.publish(message.reply)
    assert 70 <= len(sampled(client)) <= 140


def test_who_is_not_listened_to_measures_nothing() -> None:
    client = Client(b"s.a", ack_policy=AckPolicy.EXPLICIT, sample_freq="100")
    (message,) = client.pull()
    client.node.publish(message.reply)
    assert sampled(client) == []
    info = client.replica.consumer_info("c")
    assert info is not None
    assert info.num_ack_pending == 0
