"""What nodes tell each other about streams; the questions themselves are asked by the tests of whole nodes."""

from typing import TYPE_CHECKING, cast

import attrs
import pytest
import trio
import trio.testing

from jetraft.cluster.calls.messages.forwarding import ForwardedRequest
from jetraft.cluster.calls.messages.inquiries import MetaIndex, MetaState
from jetraft.cluster.meta.lease_grants import LeaseGrants
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.requests.inquiries import Inquiries
from jetraft.cluster.requests.serving import ServedRequests
from jetraft.cluster.state.changes import StreamChanges
from jetraft.store.model import errors
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import N1, assign, assignment, entry
from tests.doubles.meta_group import AppliedMetaGroup

if TYPE_CHECKING:
    from jetraft.cluster.calls.forward import Forwarder
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.requests.locator import Owners
    from jetraft.cluster.streams.replica.replica import StreamReplica


class FakeDirectory:
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
        self.asked: list[ForwardedRequest] = []
        self.answers: bytes | None = b""
        self.arrived = trio.Event()

    async def answer(self, request: ForwardedRequest) -> bytes:
        await trio.lowlevel.checkpoint()
        self.asked.append(request)
        self.arrived.set()
        if self.answers is None:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()
        return self.answers


class Node:
    """The inquiries of one node."""

    def __init__(self, node_id: NodeId = N1) -> None:
        self.meta_group = AppliedMetaGroup()
        self.directory = FakeDirectory()
        self.forwarder = FakeForwarder()
        self.machine = MetaMachine()
        self.inquiries = Inquiries(
            node_id=node_id,
            forwarder=cast("Forwarder", self.forwarder),
            served=ServedRequests(),
            owners=cast("Owners", None),
            machine=self.machine,
            meta_group=self.meta_group.ref(),
            frontend=cast("MetaFrontend", None),
            directory=cast("ReplicaDirectory[StreamReplica]", self.directory),
            changes=StreamChanges(),
            clock=ManualClock(),
            grants=LeaseGrants(),
        )


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
    node.forwarder.answers = MetaState(index=5, is_member=True).pack()
    node.meta_group.apply_to(4)
    assert not await node.inquiries.is_current(row)
    node.meta_group.apply_to(5)
    assert await node.inquiries.is_current(row)
    assert not await node.inquiries.is_current(attrs.evolve(row, revision=9))
    node.forwarder.answers = MetaIndex(index=5).pack()  # of a leader of before 0.2.0
    assert await node.inquiries.is_current(row)
    node.forwarder.answers = MetaState(index=5, is_member=False).pack()
    assert not await node.inquiries.is_current(row), "who is no member does not hear what is committed"
    node.forwarder.answers = None
    assert not await node.inquiries.is_current(row)


async def test_an_answer_that_is_none_is_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.machine.apply([entry(1, assign("S"))])
    (row,) = node.machine.table.streams.values()
    node.forwarder.answers = b"\xc1"
    assert await node.inquiries.committed_index() is None
    assert await node.inquiries.info_of(row) is None
    assert "the meta leader: an index of the meta log: not decodable" in caplog.text
    assert "a stream's info: not decodable" in caplog.text
