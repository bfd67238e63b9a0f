"""A changed config is answered when the replicas that can be reached go by it, and after a second at the latest."""

from typing import TYPE_CHECKING, cast

import pytest
import trio
import trio.testing

from jetraft.cluster.meta.commands import ReconfigureStream
from jetraft.cluster.meta.directory import ReplicaDirectory, Running
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.requests.in_force import IN_FORCE_WAIT_S, ConfigsInForce
from jetraft.cluster.state.assignment import StreamAssignment
from jetraft.cluster.state.changes import StreamChanges
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, assign, config, entry
from tests.cluster.wire import Wire, WireMesh

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

HOLDERS = (N1, N2)
OLD, NEW = config("S"), config("S", max_msgs=7)


class Replica:
    """What a replica says of its config."""

    incarnation = 1

    def __init__(self) -> None:
        self.config = OLD

    def has_config(self, wanted: StreamConfig) -> bool:
        return self.config == wanted


class Node:
    """One node with the stream, whose table and whose replica follow when the test says so."""

    def __init__(self, wire: Wire, node_id: NodeId) -> None:
        self.machine = MetaMachine()
        self.changes = StreamChanges()
        self.directory: ReplicaDirectory[StreamReplica] = ReplicaDirectory(self.changes)
        self.machine.on_change.connect(self.directory.note)
        self.replica = Replica()
        self.machine.apply([entry(1, assign("S", peers=HOLDERS))])
        if node_id in HOLDERS:
            running = Running(replica=cast("StreamReplica", self.replica), assignment=self.row)
            self.directory.set(self.row.key, running)
        self.in_force = ConfigsInForce(
            node_id=node_id,
            mesh=WireMesh(wire, node_id),
            machine=self.machine,
            directory=self.directory,
            changes=self.changes,
        )

    @property
    def row(self) -> StreamAssignment:
        (row,) = self.machine.table.streams.values()
        return row

    def learn(self) -> None:
        """The meta group's entry is applied here."""
        command = ReconfigureStream(account=ACCOUNT, incarnation=1, config=NEW, peers=(), based_on=1)
        self.machine.apply([entry(2, command)])

    def follow(self) -> None:
        """The entry of the stream's group is applied here."""
        self.replica.config = NEW
        self.changes.notify(self.row.key)


@pytest.fixture
def nodes() -> list[Node]:
    wire = Wire()
    wire.link(N1, N2, N3)
    found = [Node(wire, node) for node in (N1, N2, N3)]
    found[2].learn()  # it leads the meta group, and is asked
    return found


@pytest.mark.parametrize("last", ["learn", "follow"])
@pytest.mark.parametrize("late", [0, 1])
async def test_a_change_is_answered_when_the_last_replica_has_its_row_and_its_config(
    nodes: list[Node], late: int, last: str, autojump_clock: trio.testing.MockClock
) -> None:
    prompt = nodes[1 - late]
    prompt.learn()
    prompt.follow()
    steps = [nodes[late].learn, nodes[late].follow]
    if last == "learn":
        steps.reverse()
    began = trio.current_time()

    async def catch_up() -> None:
        for step in steps:
            await trio.sleep(IN_FORCE_WAIT_S / 4)
            step()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(catch_up)
        await nodes[2].in_force.let_replicas_follow(nodes[2].row)
        assert IN_FORCE_WAIT_S / 2 <= trio.current_time() - began < IN_FORCE_WAIT_S


async def test_a_replica_that_does_not_follow_holds_a_change_up_for_a_second(
    nodes: list[Node], autojump_clock: trio.testing.MockClock
) -> None:
    nodes[0].learn()
    nodes[0].follow()
    began = trio.current_time()
    await nodes[2].in_force.let_replicas_follow(nodes[2].row)
    assert trio.current_time() - began == pytest.approx(IN_FORCE_WAIT_S)


async def test_a_node_that_was_cut_off_holds_nothing_up(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    wire.link(N1, N3)
    one, three = Node(wire, N1), Node(wire, N3)
    Node(wire, N2)
    for node in (one, three):
        node.learn()
        node.follow()
    began = trio.current_time()
    await three.in_force.let_replicas_follow(three.row)
    assert trio.current_time() - began < IN_FORCE_WAIT_S / 2
