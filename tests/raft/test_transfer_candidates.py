"""Groups that change hands together spread over those that can lead them."""

from collections import Counter

import attrs

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.group_spec import ReplicaLag
from jetraft.raft.transfer_candidates import TRANSFERS_AT_ONCE, HandingOver, TransferCandidates
from jetraft.store.model.ids import GroupId, NodeId

A, B, C = (NodeId(name) for name in "abc")
GROUP = GroupId("g")


@attrs.define(eq=False)
class Led:
    """A group that node a leads; b and c are as far as the test says."""

    b_is_current: bool = True
    c_is_voter: bool = True
    leader: NodeId | None = A
    group_id: GroupId = GROUP

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
    candidates = TransferCandidates[Led](groups)
    assert Counter(candidates.choose(group) for group in groups) == {B: 5, C: 5}


def test_who_leads_most_already_gets_least() -> None:
    candidates = TransferCandidates[Led]([*(Led(leader=B) for _ in range(4)), Led()])
    assert [candidates.choose(Led()) for _ in range(5)] == [C, C, C, C, B]


def test_only_current_voters_inherit() -> None:
    assert TransferCandidates[Led]([]).choose(Led(b_is_current=False)) == C
    assert TransferCandidates[Led]([]).choose(Led(c_is_voter=False)) == B
    assert TransferCandidates[Led]([]).choose(Led(b_is_current=False, c_is_voter=False)) is None


def test_who_should_not_lead_inherits_only_where_nobody_else_can() -> None:
    candidates = TransferCandidates[Led]([], lambda _group, node: 2 * (node == B))
    assert [candidates.choose(Led()) for _ in range(3)] == [C, C, C]
    assert candidates.choose(Led(c_is_voter=False)) == B
    assert candidates.choose(Led(c_is_voter=False), below=2) is None
    assert candidates.choose(Led(), below=0) is None


@attrs.define(eq=False)
class Moving(Led):
    """A group whose leadership is about to move."""

    group_id: GroupId = GROUP
    is_leader: bool = True
    to: NodeId | None = None
    term: int = 1

    def transfer_leadership(self, to: NodeId | None) -> bool:
        self.to = to
        return True

    @property
    def is_moving(self) -> bool:
        return self.is_leader and self.to is not None


def test_a_server_that_stops_hands_over_a_few_groups_at_a_time_and_the_others_serve_on() -> None:
    groups = [Moving(group_id=GroupId(f"g{number}")) for number in range(3 * TRANSFERS_AT_ONCE)]
    waves, handing_over = 0, HandingOver[Moving](lambda group: group.is_moving)
    while handing_over.step(groups):
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

    stuck, moving = Stuck(group_id=GroupId("stuck")), Moving()
    handing_over = HandingOver[Moving](lambda group: group.is_moving)
    assert handing_over.step([stuck, moving])
    moving.is_leader = False
    assert not handing_over.step([stuck, moving])


def test_a_group_that_comes_back_is_not_handed_over_again() -> None:
    """Servers that are stopped together would hand it to each other: each time an election, and silence."""
    group, handing_over = Moving(), HandingOver[Moving](lambda group: group.is_moving)
    assert handing_over.step([group])
    group.to = None
    assert handing_over.step([group]), "the transfer has failed: it is tried again"
    group.is_leader = False
    assert not handing_over.step([group])
    group.is_leader, group.to, group.term = True, None, 3
    assert not handing_over.step([group])
    assert group.to is None
