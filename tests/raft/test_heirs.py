"""Groups that change hands together spread over those that can lead them."""

from collections import Counter

import attrs

from jetraft.raft.group_spec import ReplicaLag
from jetraft.raft.heirs import Heirs
from jetraft.raft.membership import Configuration
from jetraft.store.model.ids import NodeId

A, B, C = (NodeId(name) for name in "abc")


@attrs.frozen
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
    heirs = Heirs(groups)
    assert Counter(heirs.choose(group) for group in groups) == {B: 5, C: 5}


def test_who_leads_most_already_gets_least() -> None:
    heirs = Heirs([*(Led(leader=B) for _ in range(4)), Led()])
    assert [heirs.choose(Led()) for _ in range(5)] == [C, C, C, C, B]


def test_only_current_voters_inherit() -> None:
    assert Heirs([]).choose(Led(b_is_current=False)) == C
    assert Heirs([]).choose(Led(c_is_voter=False)) == B
    assert Heirs([]).choose(Led(b_is_current=False, c_is_voter=False)) is None


def test_who_is_not_fit_inherits_nothing() -> None:
    heirs = Heirs([], is_fit=lambda node: node != B)
    assert [heirs.choose(Led()) for _ in range(3)] == [C, C, C]
    assert heirs.choose(Led(c_is_voter=False)) is None
