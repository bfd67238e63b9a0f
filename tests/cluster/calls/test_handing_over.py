"""What reaches a leader while it hands over is captured by it or by the next one, once, and in order (decision 92)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing

from jetraft.cluster.calls.handing_over import ASK_S, KEEP_NS, SIGN_S, Handovers, HeldPublishes, LeftSink
from jetraft.cluster.calls.messages.handing_over import (
    FENCE,
    HELD_BYTES_MAX,
    METHOD,
    HandoverQuestion,
    HeldMessages,
)
from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.capture.reach import TRACED_ONLY, TRACED_ORIGIN, SinkKind
from jetraft.cluster.streams.mandate import Mandate
from jetraft.cluster.streams.replica.leader import TRANSFER_LOOK_NS, StreamLeadership
from jetraft.raft.engine.leadership import Transfer
from jetraft.raft.freshness import Freshness
from jetraft.raft.mesh.rpc import CallTimeoutError
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import NodeId
from tests.cluster.lab import NODE, Node, start_stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

B = NodeId("BBBBBBBB")


def payloads(batch: bytes) -> list[bytes]:
    return [found.payload for found in captures(batch)]


@attrs.frozen
class Peer:
    up: bool = True
    metadata: dict[str, Any] = attrs.Factory(dict)


@attrs.define(eq=False)
class FakeMesh:
    """One peer, whose answers tests give."""

    peers: dict[NodeId, Peer] = attrs.Factory(lambda: {B: Peer()})
    own_routes: int = 0
    handlers: dict[str, Callable[[NodeId, bytes], Awaitable[bytes]]] = attrs.Factory(dict)
    on_call: dict[str, Callable[[bytes], bytes]] = attrs.Factory(lambda: {FENCE: lambda _payload: b""})
    silent: set[str] = attrs.Factory(set)  # what it does not answer

    def routes_to(self, _nodes: object) -> int:
        return 0

    def relay_to(self, _node: NodeId) -> None:
        return None

    async def call(
        self, _to: NodeId, method: str, payload: bytes, *, timeout_s: float, behind_routes: bool = False
    ) -> bytes:
        del behind_routes
        if method in self.silent:
            await trio.sleep(timeout_s)
            raise CallTimeoutError(method)
        return self.on_call[method](payload)

    def serve(self, method: str, handler: Callable[[NodeId, bytes], Awaitable[bytes]], **_: int) -> None:
        self.handlers[method] = handler


def with_handovers(node: Node) -> tuple[FakeMesh, Handovers]:
    mesh = FakeMesh()
    handovers = Handovers(mesh=mesh, timers=node, clock=node.clock)
    node.site = attrs.evolve(node.site, handovers=handovers)
    return mesh, handovers


def test_what_is_held_is_given_in_order_once_and_without_traces() -> None:
    held = HeldPublishes()
    held.add(encode_capture(b"s.a", b"r", b"", b"1"))
    held.add(encode_capture(b"s.a", b"r", b"", b"2", TRACED_ORIGIN | 5) + encode_capture(b"s.b", b"", b"", b"3"))
    held.add(encode_capture(b"s.a", b"r", b"", b"4", TRACED_ORIGIN | TRACED_ONLY))
    taken = held.take()
    assert payloads(taken) == [b"1", b"2", b"3"]
    assert {found.origin for found in captures(taken)} == {0}
    assert (held.take(), bool(held)) == (b"", False)


def test_what_is_held_is_bounded() -> None:
    held = HeldPublishes()
    first = encode_capture(b"s.a", b"r", b"", bytes(HELD_BYTES_MAX - 100))
    held.add(first)
    held.add(encode_capture(b"s.a", b"r", b"", bytes(200)))
    assert held.take() == first


def test_a_leader_holds_publishes_during_a_transfer_and_admits_them_if_it_led_nowhere() -> None:
    node = Node()
    replica = start_stream(node)
    leading = replica.group.core.leadership  # type: ignore[attr-defined]
    leading.transfer = Transfer(target=B, deadline_ns=2**62, waits_for_disk=True)
    for payload in (b"1", b"2"):
        node.publish(b"s.a", payload, reply=b"_INBOX.p")
        assert node.turn() == []
    leading.transfer = None
    node.publish(b"s.a", b"3", reply=b"_INBOX.p")
    assert [sent.payload for sent in node.turn()] == [b'{"stream":"S","seq":%d}' % seq for seq in (1, 2, 3)]

    leading.transfer = Transfer(target=B, deadline_ns=2**62, waits_for_disk=True)
    node.publish(b"s.a", b"4", reply=b"_INBOX.p")
    assert node.turn() == []
    leading.transfer = None
    assert [sent.payload for sent in node.sleep(2 * TRANSFER_LOOK_NS)] == [b'{"stream":"S","seq":4}']
    assert [stored.payload for stored in map(replica.machine.store.load, range(1, 5)) if stored] == [
        b"1",
        b"2",
        b"3",
        b"4",
    ]


def test_a_new_leader_captures_nothing_until_the_one_before_has_given_what_it_holds() -> None:
    node = Node()
    _, handovers = with_handovers(node)
    replica = start_stream(node)
    before = set(node.sinks)
    replica.group.core.handed_by = B  # type: ignore[misc]
    leadership = StreamLeadership.start(
        node.site, replica.group, replica.machine, Mandate(Freshness(), lapsed=lambda: None)
    )
    leadership.config_changed(replica.config)
    assert b"s.>" not in {node.sinks[handle][0] for handle in node.sinks.keys() - before}
    ((_, asked, take),) = handovers._wanted
    assert asked == B
    take(encode_capture(b"s.a", b"_INBOX.p", b"", b"held"))
    assert [sent.payload for sent in node.turn()] == [b'{"stream":"S","seq":1}']
    assert b"s.>" in {node.sinks[handle][0] for handle in node.sinks.keys() - before}


async def test_the_leader_before_answers_when_nothing_can_come_any_more() -> None:
    node = Node()
    mesh, handovers = with_handovers(node)
    replica = start_stream(node)
    leadership = replica._leadership
    assert leadership is not None
    replica.group.core.has_handed_over = True  # type: ignore[misc]
    told_before = set(node.sinks)
    leadership.end()
    node.publish(b"s.a", b"1", reply=b"_INBOX.p")
    node.turn()
    assert handovers.is_waited_for

    def pass_fence(_: bytes) -> bytes:
        """A message of a node that had not heard of the end of the interest, ahead of its sign."""
        assert b"s.>" not in {node.sinks[handle][0] for handle in node.sinks.keys() & told_before}
        node.publish(b"s.a", b"2", reply=b"_INBOX.p")
        node.turn()
        return b""

    mesh.on_call[FENCE] = pass_fence
    question = HandoverQuestion(group_id=str(replica.group.group_id), incarnation=replica.incarnation).pack()
    answers: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handovers.run)

        async def ask() -> None:
            answers.append(await mesh.handlers[METHOD](B, question))
            answers.append(await mesh.handlers[METHOD](B, question))
            nursery.cancel_scope.cancel()

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        node.turn()
    assert [payloads(HeldMessages.unpack(answer).batch) for answer in answers] == [[b"1", b"2"], []]
    assert not handovers.is_waited_for
    assert b"s.>" not in {subject for subject, _ in node.sinks.values()}


async def test_a_leader_that_hands_over_before_it_has_fetched_passes_on_what_it_gets() -> None:
    node = Node()
    mesh, handovers = with_handovers(node)
    replica = start_stream(node)
    replica.group.core.handed_by = B  # type: ignore[misc]
    leadership = StreamLeadership.start(
        node.site, replica.group, replica.machine, Mandate(Freshness(), lapsed=lambda: None)
    )
    leadership.config_changed(replica.config)
    ((_, _, take),) = handovers._wanted
    replica.group.core.has_handed_over = True  # type: ignore[misc]
    leadership.end()
    assert handovers.is_waited_for
    question = HandoverQuestion(group_id=str(replica.group.group_id), incarnation=replica.incarnation).pack()
    answers: list[bytes] = []

    async def ask() -> None:
        answers.append(await mesh.handlers[METHOD](B, question))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [], "it does not know yet"
        take(encode_capture(b"s.a", b"_INBOX.p", b"", b"held"))
    assert [payloads(HeldMessages.unpack(answer).batch) for answer in answers] == [[b"held"]]
    assert not handovers.is_waited_for


def left_sink(node: Node, term: int = 1) -> LeftSink:
    held = HeldPublishes()
    held.add(encode_capture(b"s.a", b"_INBOX.p", b"", b"1"))
    return LeftSink(
        outbox=node,
        handle=node.add_sink(b"s.>", held.add, kind=SinkKind.STREAM),
        subjects=("s.>",),
        held=held,
        term=term,
    )


def test_what_nobody_fetches_is_dropped_after_a_while_and_a_node_that_leads_again_takes_it_back() -> None:
    node = Node()
    _, handovers = with_handovers(node)
    replica = start_stream(node)
    others = set(node.sinks)
    handovers.leave(replica.group, left_sink(node))
    node.sleep(KEEP_NS + 1)
    assert (set(node.sinks), handovers.take_back(replica.group, newest_before=1)) == (others, b"")
    handovers.leave(replica.group, left_sink(node))
    assert payloads(handovers.take_back(replica.group, newest_before=1)) == [b"1"]
    assert (set(node.sinks), handovers.is_waited_for) == (others, False)


@pytest.mark.parametrize("newest_before", [6, None])
def test_what_another_leader_may_have_stored_meanwhile_is_not_taken_back(newest_before: int | None) -> None:
    """It gave this one up when it gave no sign, and has captured the same messages."""
    node = Node()
    _, handovers = with_handovers(node)
    replica = start_stream(node)
    others = set(node.sinks)
    handovers.leave(replica.group, left_sink(node, term=5))
    assert handovers.take_back(replica.group, newest_before=newest_before) == b""
    assert (set(node.sinks), handovers.is_waited_for) == (others, False)


@pytest.mark.parametrize("another_led", [False, True])
def test_a_leader_looks_in_its_log_for_a_leader_in_between(*, another_led: bool) -> None:
    node, log = Node(), MemLog()
    first = start_stream(node, log)
    node.publish(b"s.a", b"0", reply=b"_INBOX.p")
    node.turn()
    term, node = first.group.term, Node()
    _, handovers = with_handovers(node)
    handovers.leave(first.group, left_sink(node, term=term - 1 if another_led else term))
    again = start_stream(node, log)
    node.turn()
    assert again.group.term > term
    assert again.machine.messages == (1 if another_led else 2)


def test_a_node_that_does_not_answer_held_nothing() -> None:
    node = Node()
    mesh, handovers = with_handovers(node)
    replica = start_stream(node)
    taken: list[bytes] = []

    def refuse(_: bytes) -> bytes:
        return b"\xc1"  # of no message

    mesh.on_call[METHOD] = refuse
    replica.group.core.handed_by = NODE  # type: ignore[misc]
    handovers.fetch(replica.group, taken.append)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handovers.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(run)
    assert taken == [b""]


async def test_a_leader_before_that_stands_still_is_waited_for_no_longer_than_for_its_sign(
    autojump_clock: trio.testing.MockClock,
) -> None:
    node = Node()
    mesh, handovers = with_handovers(node)
    mesh.silent = {METHOD, FENCE}
    assert await waited_s(node, handovers) == SIGN_S
    mesh.silent, mesh.on_call[FENCE] = {METHOD}, lambda _payload: b""
    assert await waited_s(node, handovers) == ASK_S, "it runs: what it holds may come"


async def waited_s(node: Node, handovers: Handovers) -> float:
    """How long the next leader captures nothing."""
    group = start_stream(node, name=f"S{node.clock.now_ns}").group
    group.core.handed_by = B  # type: ignore[misc]
    began, taken = trio.current_time(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handovers.run)
        handovers.fetch(group, lambda _held: taken.set())
        await taken.wait()
        nursery.cancel_scope.cancel()
    return round(trio.current_time() - began, 6)
