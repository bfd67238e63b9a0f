"""A node's view of itself is exact; what it tells the others is true enough."""

from pathlib import Path

import attrs
import trio
import trio.testing

from jetraft.cluster.meta.gossip import TELL_S, ProfileGossip, first_profile
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.meta.profile import TOLD_STEP_BYTES, NodeProfile, unpack_profile
from jetraft.cluster.meta.view import ClusterView
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.ledger.node_dir import NodeDir
from jetraft.store.model.config import StorageType
from tests.cluster.meta.makers import N1

FILE, MEMORY = StorageType.FILE, StorageType.MEMORY
TAGGED = NodeProfile(tags=frozenset({"ssd"}), capacity={FILE: 1 << 30})


@attrs.define
class FakeMesh:
    """Keeps what it was told, in order."""

    told: list[NodeProfile] = attrs.Factory(list)

    def describe(self, key: str, value: object) -> None:
        self.told.append(unpack_profile({key: value}))


@attrs.define
class Node:
    """A node whose figures the test sets."""

    mesh: FakeMesh | None = attrs.Factory(FakeMesh)
    held_bytes: int = 0
    is_short: bool = False
    view: ClusterView = attrs.field(init=False)
    telling: ProfileGossip = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.view = ClusterView(node_id=N1, server_name="one", cluster_name="C", peers=None, machine=MetaMachine())
        self.telling = ProfileGossip.start(
            TAGGED,
            view=self.view,
            mesh=self.mesh,
            held=lambda: {FILE: self.held_bytes},
            is_short=lambda: self.is_short,
        )


def told(node: Node) -> list[NodeProfile]:
    assert node.mesh is not None
    return node.mesh.told


def test_the_others_hear_of_a_node_before_it_holds_anything() -> None:
    assert told(Node()) == [TAGGED]


def test_a_small_change_is_known_here_and_told_when_it_has_grown() -> None:
    node = Node()
    node.held_bytes = TOLD_STEP_BYTES - 1
    node.telling.tell()
    assert node.view.own_profile.held == {FILE: TOLD_STEP_BYTES - 1}
    assert told(node) == [TAGGED]
    node.held_bytes = TOLD_STEP_BYTES
    node.telling.tell()
    assert [profile.held for profile in told(node)] == [{}, {FILE: TOLD_STEP_BYTES}]


def test_that_a_disk_is_short_is_told_whatever_else_is_true() -> None:
    node = Node()
    for is_short in (True, True, False):
        node.is_short = is_short
        node.telling.tell()
    assert [profile.is_short for profile in told(node)] == [False, True, False]


def test_a_server_that_stands_alone_tells_nobody_and_knows_itself() -> None:
    node = Node(mesh=None, held_bytes=5)
    node.telling.tell()
    assert node.view.own_profile == attrs.evolve(TAGGED, held={FILE: 5})


def test_other_tags_and_limits_are_told_at_once_and_stay() -> None:
    node = Node()
    node.telling.follow(["HDD"], {MEMORY: 9})
    expected = NodeProfile(tags=frozenset({"hdd"}), capacity={FILE: 1 << 30, MEMORY: 9})
    assert told(node) == [TAGGED, expected]
    node.telling.tell()
    assert (node.view.own_profile.tags, node.view.own_profile.capacity) == (expected.tags, expected.capacity)


async def test_it_is_told_again_without_being_asked(autojump_clock: trio.testing.MockClock) -> None:
    node = Node()
    with trio.move_on_after(1.5 * TELL_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.telling.run)
            await trio.testing.wait_all_tasks_blocked()
            node.is_short = True
    assert told(node)[-1].is_short


def test_a_limit_that_is_not_configured_is_a_part_of_what_there_is(tmp_path: Path) -> None:
    writer = Writer(1)
    node_dir = NodeDir.open(LocalDisk(writer), tmp_path, server_name="one", named=True, cluster="C")
    try:
        profile = first_profile(node_dir, ["SSD"], {MEMORY: 7}, level=2, server_id="ID")
    finally:
        node_dir.close()
        writer.stop()
    assert profile.tags == {"ssd"}
    assert profile.capacity[MEMORY] == 7
    assert profile.capacity[FILE] > 0
    assert profile.server_id == "ID"
