"""Messages above the limits of a new configuration: a bounded number goes in each entry, and exactly those go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from jetraft.cluster.streams.replica.surplus import is_tighter
from jetraft.raft.proposals import Outcome
from jetraft.store.stream.retention import UNLIMITED, StoreLimits
from tests.cluster.lab import Node, start_stream
from tests.cluster.streams.replica.test_replica import publish

if TYPE_CHECKING:
    from jetraft.store.stream.stream_store import StreamStore

SUBJECTS = (b"s.a", b"s.b", b"s.a", b"s.c", b"s.a", b"s.b", b"s.d") * 4
LIMITS: list[dict[str, Any]] = [
    {"max_msgs": 5},
    {"max_bytes": 300},
    {"max_msgs_per_subject": 2},
    {"max_msgs": 9, "max_msgs_per_subject": 1},
    {"max_bytes": 400, "max_msgs_per_subject": 3},
    {"metadata": {"jetraft.max_bytes_per_subject": "100"}},
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("REMOVED_MAX", 3), ("AT_ONCE_MAX", 3), ("VISITS_MAX", 2)):
        monkeypatch.setattr(f"jetraft.cluster.streams.replica.surplus.{name}", value)


class Counted:
    """How many messages each removal and each change of the limits has dropped."""

    def __init__(self, store: StreamStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.removed: list[int] = []
        self.limited: list[int] = []
        remove, set_limits = store.remove, store.set_limits

        def removing(seqs: Any, *, erase: bool = False) -> list[int]:
            gone = remove(seqs, erase=erase)
            self.removed.append(len(gone))
            return gone

        def limiting(limits: StoreLimits) -> int:
            self.limited.append(set_limits(limits))
            return self.limited[-1]

        monkeypatch.setattr(store, "remove", removing)
        monkeypatch.setattr(store, "set_limits", limiting)


def settle(node: Node) -> None:
    for _ in range(100):
        node.sleep(1000)


@pytest.mark.parametrize("changes", LIMITS)
def test_an_update_drops_what_it_would_drop_at_once_in_bounded_entries(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = Node(), Node()
    replica, at_once = start_stream(node), start_stream(other)
    publish(node, *SUBJECTS)
    publish(other, *SUBJECTS)
    counted = Counted(replica.machine.store, monkeypatch)
    config = attrs.evolve(replica.config, **changes)
    replica.reconfigure(attrs.evolve(replica.assignment, config=config))
    settle(node)
    monkeypatch.setattr("jetraft.cluster.streams.replica.surplus.AT_ONCE_MAX", 1000)
    at_once.reconfigure(attrs.evolve(at_once.assignment, config=config))
    settle(other)
    assert replica.has_config(config)
    assert at_once.has_config(config)
    assert replica.machine.store.next_matches((), 0, 99) == at_once.machine.store.next_matches((), 0, 99)
    assert sum(counted.removed) + sum(counted.limited) == len(SUBJECTS) - replica.machine.messages > 6
    assert max(counted.removed + counted.limited) <= 3
    assert len(counted.removed) > 1


def test_what_is_published_meanwhile_is_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, *SUBJECTS)
    counted = Counted(replica.machine.store, monkeypatch)
    replica.reconfigure(attrs.evolve(replica.assignment, config=attrs.evolve(replica.config, max_msgs=4)))
    for _ in range(30):
        publish(node, b"s.new")
        node.sleep(1000)
    settle(node)
    assert replica.config.max_msgs == 4
    assert replica.machine.messages == 4
    assert max(counted.removed + counted.limited) <= 3


def test_a_newer_revision_takes_the_place_of_one_that_still_makes_room() -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, *SUBJECTS)
    first = attrs.evolve(replica.assignment, config=attrs.evolve(replica.config, max_msgs=4), revision=8)
    replica.reconfigure(first)
    node.sleep(1)
    before = replica.machine.messages
    assert before > 4, "it is still under way"
    replica.reconfigure(attrs.evolve(first, config=attrs.evolve(first.config, max_msgs=20), revision=9))
    settle(node)
    assert (replica.config.max_msgs, replica.machine.config_revision) == (20, 9)
    assert replica.machine.messages >= min(before - 3, 20)


def test_the_configuration_is_proposed_again_when_room_cannot_be_made() -> None:
    """As after a change of leaders: nothing rests on what was under way."""
    node = Node()
    replica = start_stream(node)
    publish(node, *SUBJECTS)
    replica.reconfigure(attrs.evolve(replica.assignment, config=attrs.evolve(replica.config, max_msgs=4), revision=8))
    assert replica._surplus is not None
    replica._surplus._end(Outcome.UNKNOWN)
    assert replica.config.max_msgs == UNLIMITED
    replica.reconcile()
    settle(node)
    assert (replica.config.max_msgs, replica.machine.messages) == (4, 4)


@pytest.mark.parametrize(
    ("before", "limits", "expected"),
    [
        (StoreLimits(), StoreLimits(max_msgs=9), (True, False)),
        (StoreLimits(max_msgs=9), StoreLimits(max_msgs=10), (False, False)),
        (StoreLimits(max_msgs=9), StoreLimits(), (False, False)),
        (StoreLimits(max_bytes=9), StoreLimits(max_bytes=8), (True, False)),
        (StoreLimits(max_msgs_per_subject=2), StoreLimits(max_msgs_per_subject=1), (False, True)),
        (StoreLimits(), StoreLimits(max_msgs=1, max_bytes_per_subject=1), (True, True)),
    ],
)
def test_only_what_leaves_less_room_asks_for_a_look(
    before: StoreLimits, limits: StoreLimits, expected: tuple[bool, bool]
) -> None:
    assert is_tighter(limits, before) == expected
