"""The founding of a meta group between nodes that talk through a fake mesh, in virtual time."""

from collections.abc import Mapping

import pytest
import trio
import trio.testing

from jetraft.cluster.calls.messages.founding import FoundersView
from jetraft.cluster.meta.members.bootstrap import Bootstrap, expected_nodes, load_record, view_message, view_of
from jetraft.cluster.meta.members.founding import Founders, View, founders_of
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import N1, N2, N3
from tests.cluster.wire import Wire, WireMesh


class Disk:
    """A record file in memory; what was saved survives the node."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.accepts = 1_000_000  # saves until it breaks

    def load(self) -> bytes | None:
        return self.content

    async def save(self, content: bytes) -> None:
        if self.accepts <= 0:
            raise OSError("broken")
        self.accepts -= 1
        self.content = content


def node(wire: Wire, node_id: NodeId, disk: Disk, expected: int = 3) -> Bootstrap:
    return Bootstrap(
        record=load_record(disk, node_id=node_id, cluster="C"),
        mesh=WireMesh(wire, node_id),
        expected=expected,
        file=disk,
    )


async def run_all(nodes: Mapping[NodeId, Bootstrap]) -> dict[NodeId, Founders | None]:
    results: dict[NodeId, Founders | None] = {}

    async def run(node_id: NodeId) -> None:
        results[node_id] = await nodes[node_id].run()

    async with trio.open_nursery() as nursery:
        for node_id in nodes:
            nursery.start_soon(run, node_id)
    return results


async def test_three_nodes_found_one_group(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    wire.link(N1, N2, N3)
    disks = {node_id: Disk() for node_id in (N1, N2, N3)}
    started = trio.current_time()
    results = await run_all({node_id: node(wire, node_id, disk) for node_id, disk in disks.items()})
    assert set(results.values()) == {founders_of("C", [N1, N2, N3])}
    assert trio.current_time() - started < 1.0


async def test_a_server_that_stands_alone_founds_at_once_and_remembers() -> None:
    disk = Disk()
    alone = Bootstrap(record=load_record(disk, node_id=N1, cluster=""), mesh=None, expected=1, file=disk)
    assert await alone.run() == founders_of("", [N1])
    again = Bootstrap(record=load_record(disk, node_id=N1, cluster=""), mesh=None, expected=1, file=disk)
    assert again.founded == founders_of("", [N1])


async def test_who_is_admitted_again_knows_whether_its_store_has_forgotten_groups() -> None:
    disk = Disk()
    alone = Bootstrap(record=load_record(disk, node_id=N1, cluster=""), mesh=None, expected=1, file=disk)
    founders = await alone.run()
    assert founders is not None
    joined = []
    for index in (0, 7, 0):
        await alone.joined(founders, index)
        again = Bootstrap(record=load_record(disk, node_id=N1, cluster=""), mesh=None, expected=1, file=disk)
        joined.append(again.joined_index)
    assert joined == [1, 7, 7]  # 1: it is no founder's any more, and no stream begins at the first index


async def test_nothing_is_founded_while_a_configured_node_is_missing(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    wire.link(N1, N2)
    waiting = node(wire, N1, Disk())
    node(wire, N2, Disk())
    with trio.move_on_after(60) as scope:
        await waiting.run()
    assert scope.cancelled_caught
    assert waiting.statistics().waiting_for == 1


async def test_a_node_without_jetstream_is_no_founder(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    wire.link(N1, N2, N3)
    wire.without_jetstream = {N3}
    results = await run_all({node_id: node(wire, node_id, Disk()) for node_id in (N1, N2)})
    assert set(results.values()) == {founders_of("C", [N1, N2])}


async def test_a_node_without_jetstream_that_has_no_route_stands_for_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Both sides of a cut could see such nodes, and each could found a group of its own."""
    wire = Wire()
    wire.link(N1, N2, N3)
    wire.without_jetstream = wire.without_route = {N3}
    waiting = node(wire, N1, Disk())
    node(wire, N2, Disk())
    with trio.move_on_after(60) as scope:
        await waiting.run()
    assert scope.cancelled_caught
    assert waiting.statistics().waiting_for == 1


async def test_a_founder_that_crashed_before_writing_the_founding_joins_after_its_restart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It vouched, and the vouch is on disk: so it is a founder and has never voted."""
    wire = Wire()
    wire.link(N1, N2, N3)
    disks = {node_id: Disk() for node_id in (N1, N2, N3)}
    everybody = {node_id: node(wire, node_id, disk) for node_id, disk in disks.items()}
    disks[N3].accepts = 1  # the vouch, not the founding
    with pytest.raises(BaseExceptionGroup), trio.fail_after(10):
        await run_all(everybody)
    others = {node_id: node(wire, node_id, disks[node_id]) for node_id in (N1, N2)}
    disks[N3].accepts = 1_000_000
    assert set((await run_all(others)).values()) == {founders_of("C", [N1, N2, N3])}
    assert (await node(wire, N3, disks[N3]).run()) == founders_of("C", [N1, N2, N3])


async def test_a_member_with_a_lost_disk_stays_outside(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    wire.link(N1, N2, N3)
    await run_all({node_id: node(wire, node_id, Disk()) for node_id in (N1, N2, N3)})
    wiped = node(wire, N3, Disk())
    assert await wiped.run() is None
    assert wiped.statistics().outside


async def test_a_restarted_founder_needs_nobody(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    wire.link(N1, N2, N3)
    disks = {node_id: Disk() for node_id in (N1, N2, N3)}
    await run_all({node_id: node(wire, node_id, disk) for node_id, disk in disks.items()})
    wire.linked.clear()
    assert await node(wire, N1, disks[N1]).run() == founders_of("C", [N1, N2, N3])


@pytest.mark.parametrize(
    ("routes", "own", "expected"), [(0, 0, 2), (1, 0, 2), (1, 1, 2), (2, 0, 3), (3, 1, 3), (5, 1, 5)]
)
def test_as_many_nodes_are_expected_as_are_configured_and_never_one(routes: int, own: int, expected: int) -> None:
    """Every node of a cluster may be given the same list of routes; only a dial shows which one is its own."""
    wire = Wire()
    wire.own_routes = own
    assert node(wire, N1, Disk(), expected=expected_nodes(routes)).statistics().waiting_for == expected


@pytest.mark.parametrize("founders", [None, founders_of("C", [N1, N2])])
def test_a_view_survives_the_wire(founders: Founders | None) -> None:
    view = View(founders=founders, vouches=(N1, N2))
    assert view_of(FoundersView.unpack(view_message(view).pack()), cluster="C") == view


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x92\x01\x02"])
def test_a_view_that_is_none_is_refused(packed: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="view"):
        FoundersView.unpack(packed)
