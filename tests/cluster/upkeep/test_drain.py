"""A drain hands over what others can lead, once each, and stands back until it ends."""

from collections.abc import Collection, Sequence
from typing import Any

import attrs

from jetraft.cluster.meta.profile import NOT_DRAINED
from jetraft.cluster.upkeep.drain import AGAIN_NS, Drain, DrainStatistics
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.group_spec import ReplicaLag, StandsBack
from jetraft.store.model.ids import GroupId, NodeId

A, B, C = (NodeId(name) for name in "abc")


CASES = (("three", (A, B, C)), ("two", (A, B)))


@attrs.define(eq=False)
class FakeClock:
    now_ns: int = 0

    def mono_ns(self) -> int:
        return self.now_ns


@attrs.define(eq=False)
class FakeGroup:
    """A group of node a, which leads it."""

    group_id: GroupId
    configuration: Configuration
    leader: NodeId | None = A
    term: int = 1
    reluctant: bool = False
    asked: int = 0
    to: NodeId | None = None

    @property
    def is_leader(self) -> bool:
        return self.leader == A

    def replica_lag(self) -> Sequence[ReplicaLag]:
        others = (node for node in self.configuration.members if node != A)
        return [ReplicaLag(node=node, current=True, offline=False, active_ns=0, lag_entries=0) for node in others]

    def transfer_leadership(self, to: NodeId | None) -> bool:
        self.asked += 1
        self.to = to
        return True

    def prefer_others(self, _why: StandsBack, *, wanted: bool) -> None:
        self.reluctant = wanted


def drain_of(*groups: FakeGroup, drained: Collection[NodeId] = ()) -> tuple[Drain[FakeGroup], FakeClock]:
    clock: Any = FakeClock()
    drain = Drain[FakeGroup](
        clock=clock,
        groups=lambda: groups,
        is_handed=lambda _group: False,
        ranking=lambda: lambda _group, node: NOT_DRAINED * (node in drained),
        tell=lambda: None,
    )
    return drain, clock


def test_only_what_has_another_member_is_handed_over() -> None:
    both = FakeGroup(GroupId("both"), Configuration(voters=frozenset({A, B})))
    alone = FakeGroup(GroupId("alone"), Configuration(voters=frozenset({A})))
    drain, _ = drain_of(both, alone)
    assert drain.statistics() == DrainStatistics(draining=False, led=1, stay=0, leaderless=0, alone=1)
    assert drain.look() == DrainStatistics(draining=True, led=1, stay=0, leaderless=0, alone=1)
    assert (both.asked, alone.asked) == (1, 0)
    assert (both.reluctant, alone.reluctant) == (True, False)
    both.leader = None
    assert drain.look() == DrainStatistics(draining=True, led=0, stay=0, leaderless=1, alone=1)
    both.leader = B
    assert drain.look() == DrainStatistics(draining=True, led=0, stay=0, leaderless=0, alone=1)
    assert drain.end() == DrainStatistics(draining=False, led=0, stay=0, leaderless=0, alone=1)
    assert not both.reluctant


def test_a_group_that_was_handed_back_stays_for_a_while_or_until_it_is_asked_anew() -> None:
    group = FakeGroup(GroupId("both"), Configuration(voters=frozenset({A, B})))
    drain, clock = drain_of(group)
    drain.look()
    group.term = 3
    drain.look()
    assert group.asked == 1
    drain.look(anew=True)
    assert group.asked == 2
    group.term = 5
    drain.look()
    assert group.asked == 2
    clock.now_ns += AGAIN_NS
    drain.look()
    assert group.asked == 3


def test_nothing_goes_to_a_node_that_is_drained_as_well() -> None:
    group, of_both = (FakeGroup(GroupId(name), Configuration(voters=voters)) for name, voters in CASES)
    drain, _ = drain_of(group, of_both, drained={B})
    assert drain.look() == DrainStatistics(draining=True, led=2, stay=1, leaderless=0, alone=0)
    assert (group.to, of_both.to, of_both.asked) == (C, None, 0)
