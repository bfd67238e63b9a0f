"""What is left over in a large interest stream goes in slices, in entries of a bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.state.consumer_deletion import APPLIED_AT_ONCE_MAX
from jetraft.cluster.streams.replica import leftovers
from jetraft.store.model.config import RetentionPolicy
from tests.cluster.lab import Node, add_consumer, finish, start_stream

if TYPE_CHECKING:
    import pytest

MESSAGES = APPLIED_AT_ONCE_MAX + 2_000


def test_what_only_a_deleted_consumer_wanted_goes_soon_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "REMOVALS_MAX", 1_000)
    node = Node()
    replica = start_stream(node, retention=RetentionPolicy.INTEREST)
    add_consumer(node, replica, durable_name="all")
    add_consumer(node, replica, durable_name="few", filter_subject="s.few")
    for number in range(MESSAGES):
        node.publish(b"s.few" if number % 1_000 == 0 else b"s.x", b"")
    node.turn()
    assert replica.machine.messages == MESSAGES

    before = replica.group.log.last_index
    assert finish(node, lambda: replica.consumers.delete("all"))
    for _ in range(MESSAGES // leftovers.LOOKS_MAX + 2):
        node.sleep(1_000)
    assert replica.machine.messages == MESSAGES // 1_000
    assert replica.group.log.last_index - before > MESSAGES // 1_000
