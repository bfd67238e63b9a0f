"""A deletion, and the removal of a server, are answered when no node acts any more on the row of before."""

from typing import TYPE_CHECKING, cast

import attrs
import pytest
import trio
import trio.testing

from jetraft.cluster.calls.forward import Forwarder
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest
from jetraft.cluster.calls.messages.inquiries import CAUGHT_UP, LOOK
from jetraft.cluster.meta.lease_grants import MARGIN_NS, LeaseGrants
from jetraft.cluster.meta.table_lease import LEASE_NS
from jetraft.cluster.requests.releases import ASK_S, Releases
from jetraft.cluster.requests.serving import ServedRequests
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.errors import ApiError
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import N1, N2, N3, assignment
from tests.cluster.wire import Wire, WireMesh
from tests.doubles.meta_group import AppliedMetaGroup

if TYPE_CHECKING:
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.streams.replica.replica import StreamReplica

OVER_S = (LEASE_NS + MARGIN_NS) / NS_PER_S


class TrioClock:
    """Trio's time, which jumps in these tests."""

    def mono_ns(self) -> int:
        return int(trio.current_time() * NS_PER_S)

    unix_ns = mono_ns


class Replicas:
    """A directory whose replicas end at once, or after a while."""

    def __init__(self) -> None:
        self.takes_s = 0.0

    async def settle(self) -> None:
        await trio.sleep(self.takes_s)


@attrs.define(eq=False, slots=False)
class Node:
    """What one node has for this."""

    wire: Wire
    node_id: NodeId
    clock: TrioClock = attrs.field(factory=TrioClock)
    grants: LeaseGrants = attrs.field(factory=LeaseGrants)
    replicas: Replicas = attrs.field(factory=Replicas)
    looked: int = 0

    def __attrs_post_init__(self) -> None:
        self.meta_group = AppliedMetaGroup()
        served, mesh = ServedRequests(), WireMesh(self.wire, self.node_id)
        served.serve(LOOK, self._look)
        self.forwarder = Forwarder(
            node_id=self.node_id, mesh=mesh, locate=lambda _request, _asked: None, execute=served.execute
        )
        self.releases = Releases(
            node_id=self.node_id,
            mesh=mesh,
            forwarder=self.forwarder,
            served=served,
            meta_group=self.meta_group.ref(),
            directory=cast("ReplicaDirectory[StreamReplica]", self.replicas),
            grants=self.grants,
            clock=self.clock,
        )

    async def _look(self, _request: ForwardedRequest) -> bytes:
        self.looked += 1
        await self.replicas.settle()
        return b""


def nodes(*linked: NodeId) -> tuple[Wire, Node, Node, Node]:
    wire = Wire()
    wire.link(*linked)
    one, two, three = (Node(wire, node) for node in (N1, N2, N3))
    one.grants.lead(1, one.clock.mono_ns())
    one.meta_group.apply_to(7)
    return wire, one, two, three


async def deleted_after(node: Node, *peers: NodeId) -> float:
    began = trio.current_time()
    await node.releases.stream_gone(assignment("S", peers=peers))
    return trio.current_time() - began


async def test_a_holder_is_waited_for_until_it_has_applied_the_deletion_and_its_replica_has_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    _, one, two, _ = nodes(N1, N2, N3)
    two.replicas.takes_s = 0.2

    async def apply_later() -> None:
        await trio.sleep(ASK_S / 2)
        two.meta_group.apply_to(7)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(apply_later)
        took_s = await deleted_after(one, N2)
    assert ASK_S / 2 + 0.2 <= took_s < ASK_S


async def test_a_holder_without_a_link_is_asked_over_a_third_node(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    wire, one, two, _ = nodes(N1, N3)
    wire.link(N2, N3)
    two.meta_group.apply_to(7)
    assert await deleted_after(one, N2) < 0.1


async def test_the_only_holder_that_cannot_be_asked_is_waited_for_until_its_lease_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    _, one, _, _ = nodes(N1, N3)
    await trio.sleep(1)
    one.grants.answered(N2, one.clock.mono_ns())
    assert await deleted_after(one, N2) == pytest.approx(OVER_S, abs=0.01)
    assert await deleted_after(one, N2) < 0.01, "it has had no lease since"


async def test_a_holder_that_has_not_applied_the_deletion_is_no_confirmation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It answers, and goes by the row of before."""
    del autojump_clock
    _, one, two, _ = nodes(N1, N2, N3)
    two.meta_group.apply_to(6)
    assert await deleted_after(one, N2) >= OVER_S - 0.01


async def test_a_majority_of_the_holders_is_enough_as_nothing_can_be_committed_then(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    _, one, two, _ = nodes(N1, N2)
    two.meta_group.apply_to(7)
    assert await deleted_after(one, N1, N2, N3) < 0.1


async def test_while_a_majority_of_the_holders_may_go_on_the_deletion_is_not_confirmed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    _, one, _, _ = nodes(N1)
    with pytest.raises(ApiError) as refused:
        await deleted_after(one, N1, N2, N3)
    assert refused.value.err_code == 10008


async def test_many_deletions_cost_one_question_and_one_lease(autojump_clock: trio.testing.MockClock) -> None:
    """As a purge of an account asks: some have a replica here, some on a node that cannot be asked."""
    del autojump_clock
    _, one, two, _ = nodes(N1, N2)
    two.meta_group.apply_to(7)
    one.grants.answered(N3, one.clock.mono_ns())
    rows = [assignment(f"S{number}", peers=(N1, N2, N3)[number % 3 :][:1]) for number in range(300)]
    began_s = trio.current_time()
    await one.releases.streams_gone(rows)
    assert trio.current_time() - began_s == pytest.approx(OVER_S, abs=0.01)


async def test_one_that_may_go_on_is_enough_not_to_confirm_many(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    _, one, two, _ = nodes(N1, N2)
    two.meta_group.apply_to(7)
    four = NodeId("node0004")
    rows = [assignment("S", peers=(N1, N2, N3)), assignment("T", peers=(N1, N3, four))]
    with pytest.raises(ApiError) as refused:
        await one.releases.streams_gone(rows)
    assert refused.value.err_code == 10008


async def test_a_removed_server_is_waited_for_until_it_has_ended_its_replicas(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    _, one, two, _ = nodes(N1, N2, N3)
    two.replicas.takes_s = 0.7
    began = trio.current_time()
    await one.releases.server_gone(N2)
    assert trio.current_time() - began == pytest.approx(0.7, abs=0.01)
    assert two.looked == 1


async def test_a_removed_server_that_cannot_be_told_is_waited_for_until_its_lease_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    _, one, two, _ = nodes(N1, N3)
    began = trio.current_time()
    await one.releases.server_gone(N2)
    assert trio.current_time() - began == pytest.approx(OVER_S, abs=0.01)
    assert not two.looked
    await one.releases.server_gone(N2)
    assert trio.current_time() - began < OVER_S + 0.01


def test_the_question_has_one_name_on_both_ways() -> None:
    assert CAUGHT_UP == "meta.caught-up", "nodes of before ask it"
