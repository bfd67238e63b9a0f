"""Creations of consumers that cross each other."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import trio

from jetraft.store.model import errors
from jetraft.store.model.config import AckPolicy, ConsumerAction, ConsumerConfig, RetentionPolicy
from tests.cluster.lab import Node, add_consumer, finish, start_stream


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
