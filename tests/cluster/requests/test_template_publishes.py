"""A template is answered when the nodes that can be reached capture its subjects."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio
import trio.testing

from jetraft.cluster.meta.commands import AddTemplate
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.requests.serving import ServedRequests
from jetraft.cluster.requests.template_publishes import FOLLOW_WAIT_S, TemplatePublishes
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, config, entry
from tests.cluster.wire import Wire, WireMesh
from tests.doubles.meta_group import AppliedMetaGroup

if TYPE_CHECKING:
    from jetraft.cluster.calls.forward import Forwarder
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.ports import Outboxes
    from jetraft.cluster.streams.replica.replica import StreamReplica

INDEX = 5


class Sinks:
    """What a node captures."""

    def __init__(self) -> None:
        self.subjects: list[bytes] = []

    def add_sink(self, subject: bytes, _handler: Callable[[bytes], None], **_options: Any) -> int:
        self.subjects.append(subject)
        return len(self.subjects)

    def remove_sink(self, _handle: int) -> None:
        self.subjects.clear()


class Node:
    """One node, whose table follows when the test says so."""

    def __init__(self, wire: Wire, node_id: NodeId) -> None:
        self.machine = MetaMachine()
        self.meta_group = AppliedMetaGroup()
        self.sinks = Sinks()
        self.publishes = TemplatePublishes(
            mesh=WireMesh(wire, node_id),
            machine=self.machine,
            meta_group=self.meta_group.ref(),
            outboxes=cast("Outboxes", lambda _account: self.sinks),
            forwarder=cast("Forwarder", None),
            served=ServedRequests(),
            frontend=cast("MetaFrontend", None),
            directory=cast("ReplicaDirectory[StreamReplica]", None),
        )

    def learn(self) -> None:
        self.machine.apply(
            [entry(INDEX, AddTemplate(account=ACCOUNT, name="T", config=config("", "t.*"), max_streams=1))]
        )
        self.meta_group.apply_to(INDEX)


async def test_the_nodes_that_can_be_reached_capture_a_templates_subjects_before_it_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wire = Wire()
    wire.link(N1, N2)
    one, two, away = (Node(wire, node) for node in (N1, N2, N3))
    async with trio.open_nursery() as nursery:
        for node in (one, two, away):
            nursery.start_soon(node.publishes.run)
        await trio.testing.wait_all_tasks_blocked()
        one.learn()
        nursery.start_soon(partial(_after, FOLLOW_WAIT_S / 2, two.learn))
        began = trio.current_time()
        await one.publishes.let_all_follow()
        assert (one.sinks.subjects, two.sinks.subjects, away.sinks.subjects) == ([b"t.*"], [b"t.*"], [])
        assert FOLLOW_WAIT_S / 2 <= trio.current_time() - began < FOLLOW_WAIT_S
        nursery.cancel_scope.cancel()


async def test_a_node_that_does_not_follow_holds_a_template_up_for_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wire = Wire()
    wire.link(N1, N2)
    one, two = Node(wire, N1), Node(wire, N2)
    async with trio.open_nursery() as nursery:
        for node in (one, two):
            nursery.start_soon(node.publishes.run)
        one.learn()
        began = trio.current_time()
        await one.publishes.let_all_follow()
        assert FOLLOW_WAIT_S <= trio.current_time() - began < FOLLOW_WAIT_S + 0.1
        nursery.cancel_scope.cancel()


async def _after(seconds: float, act: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    act()
