"""A leader without room hands over to a member that has some, and only to such a one."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import trio

from jetraft.cluster.meta.profile import NOT_SHORT
from jetraft.cluster.state.assignment import StreamKey
from jetraft.cluster.upkeep.leader_balancing import AGAIN_NS, LeaderBalancing
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.group_spec import ReplicaLag, StandsBack
from jetraft.store.disk.io import DiskSize
from jetraft.store.disk.space import LOOK_NS, RESERVE_BYTES, SpaceWatch
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.ids import GroupId, NodeId
from tests.cluster.inprocess import InProcessCluster, InProcessNode, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.raft.group import Group

A, B, C = (NodeId(name * 8) for name in "ABC")
ALL = Configuration(voters=(A, B, C))
GROUP_ID = GroupId("S-R3F-abcdefgh")
ROOM_BYTES = 2 * RESERVE_BYTES


@attrs.define(eq=False)
class Led:
    """A group that node A leads while tests do not say otherwise; both others keep up."""

    group_id: GroupId = GROUP_ID
    is_leader: bool = True
    leader: NodeId = A
    stands_back: bool = False
    transfers: list[NodeId | None] = attrs.Factory(list)
    configuration: Configuration = ALL

    def replica_lag(self) -> list[ReplicaLag]:
        return [ReplicaLag(node=node, current=True, offline=False, active_ns=0, lag_entries=0) for node in (B, C)]

    def prefer_others(self, _why: StandsBack, *, wanted: bool) -> None:
        self.stands_back = wanted

    def transfer_leadership(self, to: NodeId | None) -> bool:
        self.transfers.append(to)
        return True


class Stage:
    """A node with some groups. `short` are the others that have said so."""

    def __init__(self, *groups: Led) -> None:
        self.clock = ManualClock()
        self.free_bytes = ROOM_BYTES
        self.short: set[NodeId] = set()
        self.told: list[bool] = []
        self.yielding = LeaderBalancing(
            clock=self.clock,
            space=SpaceWatch(lambda: DiskSize(free=self.free_bytes, total=1 << 40)),
            groups=lambda: cast("Sequence[Group]", groups),  # the part of a group that is looked at
            ranking=lambda: lambda _group, node: NOT_SHORT * (node in self.short),
            tell=lambda: self.told.append(self.yielding.is_short),
        )

    def look(self, wait_ns: int = LOOK_NS) -> None:
        self.clock.advance(wait_ns)
        self.yielding.look()


def test_who_has_room_leads_on() -> None:
    group = Led()
    stage = Stage(group)
    stage.look()
    assert (group.transfers, group.stands_back, stage.told) == ([], False, [])


def test_who_has_none_hands_over_to_one_that_has() -> None:
    group = Led()
    stage = Stage(group)
    stage.short = {B}
    stage.free_bytes = 0
    stage.look()
    assert group.transfers == [C]
    assert group.stands_back
    assert stage.told == [True]
    assert stage.yielding.statistics().handed_over == 1


def test_where_nobody_has_room_the_leader_stays() -> None:
    group = Led()
    stage = Stage(group)
    stage.short, stage.free_bytes = {B, C}, 0
    stage.look()
    assert group.transfers == []
    stage.short = {B}
    stage.look()
    assert group.transfers == [C], "as soon as somebody has"


def test_what_comes_back_is_kept_for_a_while() -> None:
    """Otherwise two members, each with a reason not to lead, would hand it to and fro without an end."""
    group = Led()
    stage = Stage(group)
    stage.free_bytes = 0
    stage.look()
    stage.look()
    assert len(group.transfers) == 1
    stage.look(AGAIN_NS)
    assert len(group.transfers) == 2


def test_when_there_is_room_again_the_others_hear_of_it_and_elections_are_as_before() -> None:
    group = Led(is_leader=False)
    stage = Stage(group)
    stage.free_bytes = 0
    stage.look()
    stage.free_bytes = ROOM_BYTES
    stage.look()
    assert stage.told == [True, False]
    assert not group.stands_back
    assert group.transfers == []


def leader_of(cluster: InProcessCluster) -> InProcessNode | None:
    for node in cluster.running:
        found = node.node.directory.get(StreamKey("$G", "S"))
        if found is not None and found.is_leader:
            return node
    return None


async def test_a_real_group_leaves_a_full_node_and_stays_away_from_it(tmp_path: Path, nursery: trio.Nursery) -> None:
    cluster = InProcessCluster(tmp_path, nursery)
    await cluster.start("n1", "n2", "n3")
    await cluster.meta_leader()
    config = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "storage": "file"}
    assert "error" not in await cluster["n1"].ask("STREAM.CREATE.S", config)
    await until(lambda: leader_of(cluster) is not None)
    full = leader_of(cluster)
    assert full is not None
    full.node.parts.space._look = lambda: DiskSize(free=0, total=1 << 40)

    await until(lambda: leader_of(cluster) not in {full, None})

    heir = leader_of(cluster)
    assert heir is not None
    await until(lambda: heir.node.view.profile_of(full.mesh.node_id).is_short)
    await cluster.stop(heir)
    await until(lambda: leader_of(cluster) is not None)
    assert leader_of(cluster) is not full
