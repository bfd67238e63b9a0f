"""Infos of many streams: how often others are asked, and what is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs
import orjson
import pytest
import trio
import trio.testing

from jetraft.cluster.calls.messages.listing import InfosAnswer
from jetraft.cluster.requests.listing import LISTS_AT_ONCE, Listing, StreamPage
from jetraft.raft.mesh.rpc import RemoteCallError
from tests.cluster.meta.makers import N1, N2, N3, assignment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jetraft.cluster.calls.forward import MeshLike
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.cluster.requests.inquiries import Inquiries
    from jetraft.cluster.requests.locator import Owners
    from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
    from jetraft.store.model.ids import NodeId

ROWS = [attrs.evolve(assignment(f"s{number}"), preferred=(N1, N2, N3)[number % 3]) for number in range(30)]


class FakeInquiries:
    """Infos that this node makes, and those that are asked for one by one."""

    def __init__(self) -> None:
        self.asked_alone: list[str] = []
        self.not_ready: set[str] = set()

    def info_now(self, key: StreamKey, *, incarnation: int, revision: int) -> bytes | None:
        del incarnation, revision
        return None if key.name in self.not_ready else orjson.dumps({"name": key.name})

    async def info_of(self, row: StreamAssignment) -> dict[str, Any] | None:
        await trio.lowlevel.checkpoint()
        self.asked_alone.append(row.config.name)
        return None if row.config.name == "s29" else {"name": row.config.name, "alone": True}


class FakeOwners:
    """Streams are led where they began."""

    def leader_of(self, row: StreamAssignment) -> NodeId | None:
        return row.preferred


class FakeCluster:
    """All are there."""

    def online(self) -> dict[NodeId, str]:
        return {node: node for node in (N1, N2, N3)}


class Node:
    """A listing at node 1, where the others' answers take a second."""

    def __init__(self) -> None:
        self.inquiries = FakeInquiries()
        self.calls: list[NodeId] = []
        self.old: set[NodeId] = set()  # nodes that do not know the question
        self.under_way = self.most_under_way = 0
        self.nonsense: bytes | None = None  # what the others answer
        self.served: Callable[[NodeId, bytes], Awaitable[bytes]]
        self.listing = Listing(
            node_id=N1,
            mesh=cast("MeshLike", self),
            cluster=cast("ClusterView", FakeCluster()),
            owners=cast("Owners", FakeOwners()),
            inquiries=cast("Inquiries", self.inquiries),
        )

    def serve(
        self, _method: str, handler: Callable[[NodeId, bytes], Awaitable[bytes]], *, request_bytes_max: int
    ) -> None:
        assert request_bytes_max >= 256 * 300
        self.served = handler

    async def call(
        self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, behind_routes: bool = False
    ) -> bytes:
        del behind_routes
        del timeout_s
        self.calls.append(to)
        if to in self.old:
            raise RemoteCallError(f"no such method: {method}")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await trio.sleep(0.5)
        self.under_way -= 1
        if self.nonsense is not None:
            return self.nonsense
        return await self.served(N1, payload)

    async def ask(self, rows: list[StreamAssignment], pages: list[StreamPage], after_s: float = 0.0) -> None:
        await trio.sleep(after_s)
        pages.append(await self.listing.infos_of(rows))


async def test_each_node_is_asked_once_for_all_that_it_leads(autojump_clock: trio.testing.MockClock) -> None:
    node = Node()
    page = await node.listing.infos_of(ROWS)
    assert sorted(node.calls) == sorted([N2, N3])
    assert list(page.infos) == sorted(row.config.name for row in ROWS)
    assert page.missing == ()
    assert node.inquiries.asked_alone == []


async def test_a_stream_that_its_node_does_not_lead_now_is_asked_for_by_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    node = Node()
    node.inquiries.not_ready = {"s3", "s4", "s29"}
    page = await node.listing.infos_of(ROWS)
    assert sorted(node.inquiries.asked_alone) == ["s29", "s3", "s4"]
    assert page.infos["s4"] == {"name": "s4", "alone": True}
    assert page.missing == ("s29",)


async def test_a_node_that_does_not_know_the_question_is_asked_for_each(autojump_clock: trio.testing.MockClock) -> None:
    node = Node()
    node.old = {N2}
    page = await node.listing.infos_of(ROWS)
    assert len(node.inquiries.asked_alone) == 10
    assert len(page.infos) == 30


@pytest.mark.parametrize(
    "answer", [b"", b"\xc1", b"\x90", InfosAnswer(infos=(b"{",) * 10).pack(), InfosAnswer(infos=(b"[]",) * 10).pack()]
)
async def test_what_a_node_answers_wrongly_is_asked_for_each(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    node = Node()
    node.nonsense = answer
    page = await node.listing.infos_of(ROWS)
    assert len(node.inquiries.asked_alone) == 20
    assert len(page.infos) == 29
    assert f"stream.infos at {N2}: " in caplog.text


async def test_lists_that_are_asked_for_while_one_is_made_share_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    node = Node()
    pages: list[StreamPage] = []
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(node.ask, ROWS, pages, number * 0.005)
    assert len(pages) == 50
    assert node.listing.gathered == 2
    assert trio.current_time() == pytest.approx(1.0, abs=0.01)
    assert len(node.listing._runs) == 0


async def test_no_list_is_older_than_its_request(autojump_clock: trio.testing.MockClock) -> None:
    node = Node()
    pages: list[StreamPage] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.ask, ROWS[:1], pages)
        await trio.sleep(0.01)
        node.inquiries.not_ready = {"s0"}  # it changes after the first has been made up here
        nursery.start_soon(node.ask, ROWS[:1], pages, 0.0)
    assert [page.infos["s0"].get("alone", False) for page in pages] == [False, True]


async def test_lists_of_different_streams_are_made_few_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    node = Node()
    pages: list[StreamPage] = []
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(node.ask, ROWS[number:], pages)
    assert node.listing.gathered == 10
    assert node.most_under_way <= 2 * LISTS_AT_ONCE
