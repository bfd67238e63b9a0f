"""A drain hands over what others can lead, once each, and stands back until it ends."""

from collections.abc import Sequence
from typing import Any

import attrs

from jetraft.cluster.upkeep.drain import AGAIN_NS, Drain, DrainStatistics
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.group_spec import ReplicaLag
from jetraft.store.model.ids import GroupId, NodeId

A, B = NodeId("a"), NodeId("b")


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

    @property
    def is_leader(self) -> bool:
        return self.leader == A

    def replica_lag(self) -> Sequence[ReplicaLag]:
        return ()

    def transfer_leadership(self, _to: NodeId | None) -> bool:
        self.asked += 1
        return True

    def prefer_others(self, *, wanted: bool) -> None:
        self.reluctant = wanted


def drain_of(*groups: FakeGroup) -> tuple[Drain[FakeGroup], FakeClock]:
    clock: Any = FakeClock()
    return Drain(clock=clock, groups=lambda: groups, is_handed=lambda _group: False), clock


def test_only_what_has_another_member_is_handed_over() -> None:
    both = FakeGroup(GroupId("both"), Configuration(voters=frozenset({A, B})))
    alone = FakeGroup(GroupId("alone"), Configuration(voters=frozenset({A})))
    drain, _ = drain_of(both, alone)
    assert drain.statistics() == DrainStatistics(draining=False, led=1, leaderless=0, alone=1)
    assert drain.look() == DrainStatistics(draining=True, led=1, leaderless=0, alone=1)
    assert (both.asked, alone.asked) == (1, 0)
    assert (both.reluctant, alone.reluctant) == (True, False)
    both.leader = None
    assert drain.look() == DrainStatistics(draining=True, led=0, leaderless=1, alone=1)
    both.leader = B
    assert drain.look() == DrainStatistics(draining=True, led=0, leaderless=0, alone=1)
    assert drain.end() == DrainStatistics(draining=False, led=0, leaderless=0, alone=1)
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
