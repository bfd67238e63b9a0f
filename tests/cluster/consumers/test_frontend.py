"""Creations of consumers that cross each other."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import trio
import trio.testing

from jetraft.cluster.capture._capture import encode_capture
from jetraft.store.model import errors
from jetraft.store.model.config import AckPolicy, ConsumerAction, ConsumerConfig, DeliverPolicy, RetentionPolicy
from tests.cluster.consumers.test_pull import Client, seqs
from tests.cluster.lab import Node, Sent, add_consumer, finish, info_of, start_stream


@pytest.mark.parametrize(
    ("stream", "made", "refused"),
    [
        ({"max_consumers": 2}, 2, errors.MAXIMUM_CONSUMERS_LIMIT),
        ({"retention": RetentionPolicy.WORK_QUEUE}, 1, errors.CONSUMER_WQ_MULTIPLE_UNFILTERED),
        ({}, 5, None),
    ],
)
def test_creations_that_cross_each_other_keep_to_the_limits(
    stream: dict[str, Any], made: int, refused: errors.ApiErrorSpec | None
) -> None:
    node = Node()
    replica = start_stream(node, **stream)
    outcomes: list[int] = []

    async def create(number: int) -> None:
        config = ConsumerConfig(durable_name=f"c{number}", ack_policy=AckPolicy.EXPLICIT)
        try:
            await replica.create_consumer(config, action=ConsumerAction.CREATE_OR_UPDATE, pedantic=False)
        except errors.ApiError as error:
            outcomes.append(error.err_code)
        else:
            outcomes.append(0)

    async def create_all() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(functools.partial(create, number))

    finish(node, create_all)
    assert len(replica.machine.consumers) == made
    assert sorted(outcomes) == [0] * made + [refused.err_code if refused else 0] * (5 - made)


def test_an_update_without_the_durable_name_keeps_the_consumer() -> None:
    node = Node()
    replica = start_stream(node)
    add_consumer(node, replica, durable_name="c", name="c")
    add_consumer(node, replica, name="c", description="new")
    node.sleep(60 * 10**9)
    state = replica.machine.consumers["c"]
    assert (state.config.inactive_threshold, state.config.description) == (0, "new")


def test_an_update_of_an_ephemeral_has_the_default_threshold_again() -> None:
    node = Node()
    replica = start_stream(node)
    add_consumer(node, replica, name="e", inactive_threshold=60 * 10**9)
    add_consumer(node, replica, name="e")
    assert replica.machine.consumers["e"].config.inactive_threshold == 5 * 10**9


def reset(client: Client, seq: int = 0) -> list[Sent]:
    """Reset the consumer as the API does; what was sent meanwhile."""
    client.node.kept.clear()
    assert finish(client.node, lambda: client.replica.reset_consumer("c", seq)) is not None
    return client.node.kept + client.node.turn()


def test_a_reset_consumer_delivers_again_from_its_floor_to_those_who_wait() -> None:
    client = Client(b"s.a", b"s.a", b"s.a")
    sent = client.pull(b"3")
    client.ack(sent[0])
    client.pull(b'{"batch":5,"expires":60000000000}')
    assert seqs(reset(client)) == [2, 3]
    info = info_of(client.replica, "c")
    assert (info.delivered.consumer_seq, info.ack_floor.stream_seq, info.num_waiting) == (2, 1, 1)


def test_acks_of_what_was_delivered_before_a_reset_count_no_more() -> None:
    client = Client(b"s.a", b"s.a", b"s.a")
    sent = client.pull(b"3")
    reset(client, 2)
    client.ack(sent[2])
    assert client.ack(sent[2], reply=b"_INBOX.d") == []
    assert seqs(client.pull(b"3")) == [2, 3]


def test_nothing_is_delivered_or_acknowledged_behind_a_reset_that_is_on_its_way() -> None:
    """A delivery that the log had behind the reset would move the consumer past what it is to deliver again."""
    client = Client(b"s.a", b"s.a", b"s.a", b"s.a")
    sent = client.pull(b"2")

    async def reset_and_pull() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(client.replica.reset_consumer, "c", 1))
            await trio.testing.wait_all_tasks_blocked()
            dispatcher = client.replica._leadership and client.replica._leadership.dispatcher
            assert dispatcher
            dispatcher.on_acks(encode_capture(sent[0].reply, b"", b"", b""))
            dispatcher.on_pulls(encode_capture(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"_INBOX.r", b"", b"4"))
            client.node.kept += client.node.turn()

    client.node.kept.clear()
    trio.run(reset_and_pull)
    assert seqs(client.node.kept + client.node.turn()) == [1, 2, 3, 4]
    client.node.sleep(10**9)
    assert client.replica.machine.consumers["c"].delivered_consumer == 4
    assert len(client.replica.machine.consumers["c"].pending) == 4


def test_of_resets_that_cross_each_other_the_last_one_lets_the_consumer_go_on() -> None:
    """What the first one delivered would be in the log behind the second one, and move the consumer past the rest."""
    client = Client(b"s.a", b"s.a", b"s.a", b"s.a")
    client.pull(b"2")
    client.pull(b'{"batch":9,"expires":60000000000}')
    client.node.kept.clear()

    async def reset_twice() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(client.replica.reset_consumer, "c", 4))
            nursery.start_soon(functools.partial(client.replica.reset_consumer, "c", 2))
            await trio.testing.wait_all_tasks_blocked()
            client.node.kept += client.node.turn()

    trio.run(reset_twice)
    client.node.kept += client.node.turn()
    client.node.sleep(10**9)
    consumer = client.replica.machine.consumers["c"]
    assert consumer.delivered_consumer == len(consumer.pending) == len(seqs(client.node.kept))
    assert seqs(client.node.kept) in ([2, 3, 4], [4])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"deliver_policy": DeliverPolicy.NEW}, "not allowed"),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 3}, "below start seq"),
        ({"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": 2**61}, "below start time"),
    ],
)
def test_a_reset_keeps_to_the_start_policy(fields: dict[str, Any], reason: str) -> None:
    client = Client(b"s.a", b"s.a", b"s.a", **fields)
    with pytest.RaisesGroup(pytest.RaisesExc(errors.ApiError, match=reason)):
        finish(client.node, lambda: client.replica.reset_consumer("c", 1))
