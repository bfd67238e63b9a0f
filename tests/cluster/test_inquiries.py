"""What nodes tell each other about streams; the questions themselves are asked by the tests of whole nodes."""

from typing import TYPE_CHECKING, cast

import attrs
import trio
import trio.testing

from jetraft.cluster.forward import Forwarder, Request
from jetraft.cluster.inquiries import CAUGHT_UP_WAIT_S, Inquiries
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.store.model import errors
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import N1, N2, N3, assign, assignment, entry
from tests.cluster.wire import Wire, WireMesh

if TYPE_CHECKING:
    from jetraft.cluster.meta.backend import MetaBackend
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.owners import Owners
    from jetraft.cluster.streams.shell import StreamShell


@attrs.define
class FakeOwners:
    """How far the meta log is applied here."""

    applied_index: int = 0


class FakeBackend:
    """Counts who waited until it matches the table."""

    def __init__(self) -> None:
        self.settled = 0

    def get(self, key: object) -> None:
        del key

    async def settle(self) -> None:
        self.settled += 1
        await trio.lowlevel.checkpoint()


class FakeForwarder:
    """Gives every question the same answer, or an error."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answers: bytes | None = b""
        self.arrived = trio.Event()

    async def answer(self, request: Request) -> bytes:
        await trio.lowlevel.checkpoint()
        self.asked.append(request)
        self.arrived.set()
        if self.answers is None:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()
        return self.answers


class Node:
    """The inquiries of one node, over a wire."""

    def __init__(self, wire: Wire | None = None, node_id: NodeId = N1) -> None:
        self.owners = FakeOwners()
        self.backend = FakeBackend()
        self.forwarder = FakeForwarder()
        self.machine = MetaMachine()
        self.inquiries = Inquiries(
            node_id=node_id,
            mesh=None if wire is None else WireMesh(wire, node_id),
            forwarder=cast("Forwarder", self.forwarder),
            owners=cast("Owners", self.owners),
            machine=self.machine,
            frontend=cast("MetaFrontend", None),
            backend=cast("MetaBackend[StreamShell]", self.backend),
        )


async def test_holders_are_waited_for_until_they_have_applied_what_the_asking_node_has(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wire = Wire()
    wire.link(N1, N2, N3)
    one, two, three = (Node(wire, node) for node in (N1, N2, N3))
    one.owners.applied_index = 7
    began = trio.current_time()

    async def apply_later() -> None:
        await trio.sleep(CAUGHT_UP_WAIT_S / 2)
        two.owners.applied_index = 7

    async with trio.open_nursery() as nursery:
        nursery.start_soon(apply_later)
        await one.inquiries.let_holders_catch_up(assignment("S", peers=(N1, N2)))
        assert CAUGHT_UP_WAIT_S / 2 <= trio.current_time() - began < CAUGHT_UP_WAIT_S
    assert (one.backend.settled, two.backend.settled) == (1, 1)
    assert three.backend.settled == 0, "it holds nothing of the stream"


async def test_holders_that_stay_behind_or_away_are_not_waited_for_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wire = Wire()
    wire.link(N1, N2)
    one = Node(wire, N1)
    Node(wire, N2)
    one.owners.applied_index = 7
    began = trio.current_time()
    await one.inquiries.let_holders_catch_up(assignment("S", peers=(N1, N2, N3)))
    assert trio.current_time() - began <= CAUGHT_UP_WAIT_S


async def test_a_stream_that_has_settled_is_reported_to_the_meta_leader_even_when_an_earlier_report_failed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    node = Node()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.inquiries.run)
        for answers in (None, b""):
            node.forwarder.answers, node.forwarder.arrived = answers, trio.Event()
            node.inquiries.report_settled(assignment("S"))
            with trio.fail_after(1):
                await node.forwarder.arrived.wait()
        nursery.cancel_scope.cancel()
    assert len(node.forwarder.asked) == 2


async def test_a_row_is_current_when_it_stands_in_a_table_that_is_as_far_as_the_meta_leaders() -> None:
    node = Node()
    node.machine.apply([entry(1, assign("S"))])
    (row,) = node.machine.table.streams.values()
    node.forwarder.answers = b"\x05"  # what the meta leader had committed: index 5
    node.owners.applied_index = 4
    assert not await node.inquiries.is_current(row)
    node.owners.applied_index = 5
    assert await node.inquiries.is_current(row)
    assert not await node.inquiries.is_current(attrs.evolve(row, revision=9))
    node.forwarder.answers = None
    assert not await node.inquiries.is_current(row)
