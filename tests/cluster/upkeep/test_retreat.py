"""Streams of an account that has lost its hub are led by nodes that reach it, and as ever when it is back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from jetraft.cluster.meta.profile import NOT_LOST
from jetraft.cluster.upkeep.retreat import AGAIN_NS, TRANSFERS_MAX, Retreat
from jetraft.raft.transfer_candidates import Rank
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.ids import GroupId, NodeId
from tests.cluster.upkeep.test_leader_balancing import B, C, Led

if TYPE_CHECKING:
    from jetraft.raft.group import Group


class Stage:
    """A node that leads some groups, and which accounts others have lost the hub of."""

    def __init__(self, **groups: list[Led]) -> None:
        self.clock = ManualClock()
        self.lost: dict[NodeId, set[str]] = {}
        self.retreat = Retreat(
            clock=self.clock,
            groups=lambda: [(account, cast("Group", group)) for account, found in groups.items() for group in found],
            ranking=self.ranking,
        )

    def ranking(self, accounts: Mapping[GroupId, str]) -> Rank["Group"]:
        return lambda group, node: NOT_LOST * (accounts[group.group_id] in self.lost.get(node, set()))

    def look(self, *accounts: str) -> None:
        self.retreat.look(frozenset(accounts))


def test_groups_of_the_account_are_handed_over_while_it_has_lost_its_hub() -> None:
    of_a, of_b = Led(group_id=GroupId("a")), Led(group_id=GroupId("b"))
    stage = Stage(A=[of_a], B=[of_b])
    stage.look()
    assert (of_a.transfers, of_a.stands_back) == ([], False)
    for _ in range(3):
        stage.look("A")
    assert (len(of_a.transfers), of_a.stands_back) == (1, True)
    assert (of_b.transfers, of_b.stands_back) == ([], False)
    stage.clock.advance(AGAIN_NS)
    stage.look("A")
    assert len(of_a.transfers) == 2  # it came back, and goes again
    stage.look()
    assert of_a.stands_back is False


def test_no_group_goes_to_a_node_that_has_lost_the_hub_too() -> None:
    group = Led()
    stage = Stage(A=[group])
    stage.lost = {B: {"A"}, C: {"A"}}
    stage.look("A")
    assert (group.transfers, group.stands_back) == ([], True)
    stage.lost[C] = {"other"}
    stage.look("A")
    assert group.transfers == [C]


def test_what_another_node_leads_is_left_alone_but_not_stood_for() -> None:
    other = Led(is_leader=False)
    Stage(A=[other]).look("A")
    assert (other.transfers, other.stands_back) == ([], True)


def test_elections_of_many_groups_do_not_come_at_once() -> None:
    many = [Led(group_id=GroupId(str(number))) for number in range(TRANSFERS_MAX + 1)]
    stage = Stage(A=many)
    stage.look("A")
    assert sum(len(group.transfers) for group in many) == stage.retreat.handed_over == TRANSFERS_MAX
    stage.look("A")
    assert [len(group.transfers) for group in many] == [1] * len(many)
