"""Groups that change hands together spread over those that can lead them."""

from collections import Counter

import attrs

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.group_spec import ReplicaLag
from jetraft.raft.transfer_candidates import TRANSFERS_AT_ONCE, TransferCandidates, hand_over
from jetraft.store.model.ids import NodeId

A, B, C = (NodeId(name) for name in "abc")


@attrs.define(eq=False)
class Led:
    """A group that node a leads; b and c are as far as the test says."""

    b_is_current: bool = True
    c_is_voter: bool = True
    leader: NodeId | None = A

    @property
    def configuration(self) -> Configuration:
        return Configuration(voters=(A, B, C)) if self.c_is_voter else Configuration(voters=(A, B), learners=(C,))

    def replica_lag(self) -> list[ReplicaLag]:
        return [
            ReplicaLag(node=node, current=current, offline=False, active_ns=0, lag_entries=0)
            for node, current in ((B, self.b_is_current), (C, True))
        ]


def test_many_groups_go_to_all_who_can_lead_them() -> None:
    groups = [Led() for _ in range(10)]
    candidates = TransferCandidates(groups)
    assert Counter(candidates.choose(group) for group in groups) == {B: 5, C: 5}


def test_who_leads_most_already_gets_least() -> None:
    candidates = TransferCandidates([*(Led(leader=B) for _ in range(4)), Led()])
    assert [candidates.choose(Led()) for _ in range(5)] == [C, C, C, C, B]


def test_only_current_voters_inherit() -> None:
    assert TransferCandidates([]).choose(Led(b_is_current=False)) == C
    assert TransferCandidates([]).choose(Led(c_is_voter=False)) == B
    assert TransferCandidates([]).choose(Led(b_is_current=False, c_is_voter=False)) is None


def test_who_is_not_fit_inherits_nothing() -> None:
    candidates = TransferCandidates([], is_fit=lambda node: node != B)
    assert [candidates.choose(Led()) for _ in range(3)] == [C, C, C]
    assert candidates.choose(Led(c_is_voter=False)) is None


@attrs.define(eq=False)
class Moving(Led):
    """A group whose leadership is about to move."""

    is_leader: bool = True
    to: NodeId | None = None

    def transfer_leadership(self, to: NodeId | None) -> bool:
        self.to = to
        return True

    @property
    def is_moving(self) -> bool:
        return self.is_leader and self.to is not None


def test_a_server_that_stops_hands_over_a_few_groups_at_a_time_and_the_others_serve_on() -> None:
    groups = [Moving() for _ in range(3 * TRANSFERS_AT_ONCE)]
    waves = 0
    while hand_over(groups, lambda group: group.is_moving):
        waves += 1
        moving = [group for group in groups if group.is_moving]
        assert len(moving) <= TRANSFERS_AT_ONCE
        for group in moving[:-1]:
            group.is_leader, group.leader = False, group.to
        moving[-1].to = None if waves == 1 else moving[-1].to  # its target has not taken over: tried again
        moving[-1].is_leader = waves == 1
    given = Counter(group.to for group in groups)
    assert given.total() == len(groups)
    assert abs(given[B] - given[C]) <= 2, "they spread"


def test_a_group_that_nobody_can_take_holds_up_nothing() -> None:
    @attrs.define(eq=False)
    class Stuck(Moving):
        def transfer_leadership(self, to: NodeId | None) -> bool:
            del to
            return False

    stuck, moving = Stuck(), Moving()
    assert hand_over([stuck, moving], lambda group: group.is_moving)
    moving.is_leader = False
    assert not hand_over([stuck, moving], lambda group: group.is_moving)
