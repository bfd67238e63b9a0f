"""Detours: three nodes in memory, links that come and go, frames that are late."""

from collections import deque
from collections.abc import Collection, Mapping
from itertools import combinations
from random import Random

import attrs
import pytest

from jetraft.raft.mesh import detours as detours_module
from jetraft.raft.mesh.detours import Detours
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_DETOUR
from jetraft.store.model.ids import NodeId, node_id_of

A, B, C, D = (node_id_of(name) for name in "abcd")


@attrs.frozen
class Peer:
    up: bool
    links: Collection[NodeId] | None


class Net:
    """All nodes. Frames arrive when they are carried; each end notices by itself that a link has ended."""

    def __init__(self, *names: NodeId) -> None:
        self.names = names
        self.linked: set[frozenset[NodeId]] = set()
        self.queues: dict[tuple[NodeId, NodeId], deque[bytes | tuple[NodeId, ...]]] = {}
        self.unnoticed: list[tuple[NodeId, NodeId]] = []  # a node, and a peer that it still takes for linked
        self.full: set[frozenset[NodeId]] = set()
        self.old: set[NodeId] = set()
        self.nodes = {name: Node(self, name) for name in names}
        for one, other in combinations(names, 2):
            self.link(one, other)
        self.carry()
        for node in self.nodes.values():  # while links were made there may have been detours
            node.events.clear()
            node.frames = 0

    def link(self, one: NodeId, other: NodeId) -> None:
        if frozenset((one, other)) in self.linked:
            return
        for pair in ((one, other), (other, one)):
            if pair in self.unnoticed:
                self.notice(pair)
        self.linked.add(frozenset((one, other)))
        for pair in ((one, other), (other, one)):
            self.queues[pair] = deque([self.nodes[pair[0]].links()])

    def cut(self, one: NodeId, other: NodeId) -> None:
        if frozenset((one, other)) in self.linked:
            self.linked.discard(frozenset((one, other)))
            for pair in ((one, other), (other, one)):
                del self.queues[pair]
                self.unnoticed.append(pair)

    def notice(self, pair: tuple[NodeId, NodeId]) -> None:
        self.unnoticed.remove(pair)
        self.nodes[pair[0]].lost(pair[1])

    def step(self, rng: Random) -> bool:
        """Deliver any frame, in order on each link, or have an end notice that its link has ended."""
        waiting = [*sorted(pair for pair, queue in self.queues.items() if queue), *self.unnoticed]
        if not waiting:
            return False
        pair = rng.choice(waiting)
        if pair in self.unnoticed:
            self.notice(pair)
            return True
        sender, to = pair
        frame = self.queues[pair].popleft()
        if isinstance(frame, tuple):
            self.nodes[to].told(sender, frame)
        else:
            self.nodes[to].frames += 1
            self.nodes[to].detours.on_frame(sender, memoryview(frame))
        return True

    def carry(self, rng: Random | None = None) -> None:
        """Deliver all there is."""
        rng = rng or Random(0)
        assert any(not self.step(rng) for _ in range(10_000)), "frames without end"


class Node:
    """One node: what it was told, and the links it uses."""

    def __init__(self, net: Net, node_id: NodeId) -> None:
        self.net, self.node_id = net, node_id
        self.up: dict[NodeId, tuple[NodeId, ...]] = {}  # peers, and whom they say they are linked with
        self.heard: list[tuple[NodeId, bytes]] = []
        self.events: list[tuple[str, NodeId]] = []
        self.numbers = 0
        self.frames = 0  # of detours, that came here
        self.detours = Detours(
            self,
            on_up=lambda node: self.events.append(("up", node)),
            on_down=lambda node: self.events.append(("down", node)),
            on_records=lambda node, records: self.heard.append((node, bytes(records))),
            new_number=self._number,
        )

    def _number(self) -> int:
        self.numbers += 1
        return self.net.names.index(self.node_id) * 1000 + self.numbers

    def told(self, peer: NodeId, links: tuple[NodeId, ...]) -> None:
        begins = peer not in self.up
        self.up[peer] = links
        if begins:
            self._tell()
        self.detours.update()

    def lost(self, peer: NodeId) -> None:
        if self.up.pop(peer, None) is not None:
            self._tell()
            self.detours.update()

    def links(self) -> tuple[NodeId, ...]:
        return tuple(sorted(self.up))

    def _tell(self) -> None:
        for peer in self.up:
            if (self.node_id, peer) in self.net.queues:
                self.net.queues[self.node_id, peer].append(self.links())

    @property
    def peers(self) -> Mapping[NodeId, Peer]:
        return {
            name: Peer(name in self.up, None if name in self.net.old else self.up.get(name, ()))
            for name in self.net.names
            if name != self.node_id
        }

    def is_up(self, node: NodeId) -> bool:
        return node in self.up

    def relay_to(self, node: NodeId) -> NodeId | None:
        return min((name for name, peer in self.peers.items() if peer.up and node in (peer.links or ())), default=None)

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        assert channel == CHANNEL_DETOUR
        if self.node_id in self.net.old:
            return False
        if to in self.up and (self.node_id, to) in self.net.queues:
            self.net.queues[self.node_id, to].append(payload)
        return to in self.up

    def wanted(self) -> set[NodeId]:
        """Those that a detour should lead to."""
        return {name for name in self.peers if not self.is_up(name) and self.relay_to(name)}

    def queued_bytes(self, node: NodeId) -> int:
        return detours_module.RELAYED_BYTES_MAX + 1 if frozenset((self.node_id, node)) in self.net.full else 0


def test_where_all_are_linked_nothing_is_sent() -> None:
    net = Net(A, B, C)
    for node in net.nodes.values():
        node.detours.update()
    assert not any(net.queues.values())


def test_two_that_lost_their_link_reach_each_other_over_the_third() -> None:
    net = Net(A, B, C)
    net.cut(A, B)
    net.carry()
    assert net.nodes[A].events == [("up", B)]
    assert net.nodes[B].events == [("up", A)]
    assert net.nodes[A].detours.send(B, b"one")
    assert net.nodes[A].detours.send(B, b"two")
    assert net.nodes[B].detours.send(A, b"three")
    net.carry()
    assert net.nodes[B].heard == [(A, b"one"), (A, b"two")]
    assert net.nodes[A].heard == [(B, b"three")]
    assert net.nodes[C].events == []


def test_the_direct_link_ends_a_detour_at_both_ends() -> None:
    net = Net(A, B, C)
    net.cut(A, B)
    net.carry()
    net.nodes[A].detours.send(B, b"late")
    net.link(A, B)
    net.carry(Random(1))
    assert net.nodes[A].events == [("up", B), ("down", B)]
    assert net.nodes[B].events == [("up", A), ("down", A)]
    assert not net.nodes[A].detours.send(B, b"x")
    net.carry()
    assert net.nodes[B].heard == [], "what was on its way is of an old session"


def test_a_lost_link_of_the_one_between_ends_it_and_another_one_is_found() -> None:
    net = Net(A, B, C, D)
    net.cut(A, B)
    net.carry()
    first = net.nodes[A].relay_to(B)
    assert first is not None
    net.cut(first, B)
    net.carry()
    assert net.nodes[A].events == [("up", B), ("down", B), ("up", B)]
    net.nodes[A].detours.send(B, b"x")
    net.carry()
    assert net.nodes[B].heard == [(A, b"x")]


def test_what_an_old_session_left_on_another_way_is_not_seen_in_a_new_one() -> None:
    net = Net(A, B, C)
    net.cut(A, B)
    net.carry()
    net.nodes[A].detours.send(B, b"old")
    late = net.queues[A, C].pop()
    assert isinstance(late, bytes)
    net.link(A, B)
    net.carry()
    net.cut(A, B)
    net.carry()
    assert net.nodes[B].detours.nodes == [A]
    net.nodes[C].detours.on_frame(A, memoryview(late))
    net.nodes[A].detours.send(B, b"new")
    net.carry()
    assert net.nodes[B].heard == [(A, b"new")]


def test_no_detour_goes_over_two_nodes() -> None:
    net = Net(A, B, C, D)
    for one, other in ((A, B), (A, C), (D, B)):  # what is left is A - D - C - B
        net.cut(one, other)
    net.carry()
    assert ("up", B) not in net.nodes[A].events


def test_a_node_between_that_has_too_much_waiting_refuses_and_is_tried_again_later() -> None:
    net = Net(A, B, C)
    net.cut(A, B)
    net.carry()
    net.full = {frozenset((C, B))}
    assert net.nodes[A].detours.send(B, b"x")
    net.carry()
    assert net.nodes[A].events == [("up", B), ("down", B)]
    assert net.nodes[B].heard == []
    net.full = set()
    net.nodes[A].detours.update()
    net.carry()
    assert net.nodes[A].events[-1] == ("up", B)
    assert net.nodes[B].events == [("up", A), ("down", A), ("up", A)], "both begin again, with all their interest"


def test_a_node_that_does_not_know_detours_is_sent_none() -> None:
    net = Net(A, B, C)
    net.old = {B}
    net.cut(A, B)
    net.carry()
    assert net.nodes[A].events == []
    assert net.nodes[B].frames == 0


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_to_links_both_ends_of_a_detour_see_the_same_sessions(seed: int) -> None:
    rng = Random(seed)
    net = Net(A, B, C, D)
    sent = 0
    for _ in range(80):
        one, other = rng.sample(net.names, 2)
        kind = rng.random()
        if kind < 0.2:
            net.cut(one, other)
        elif kind < 0.4:
            net.link(one, other)
        elif kind < 0.6:
            sent += 1
            net.nodes[one].detours.send(other, b"%d" % sent)
        else:
            for _ in range(rng.randrange(8)):
                net.step(rng)
    net.carry(rng)
    for node in net.nodes.values():
        node.detours.update()
    net.carry(rng)
    for node in net.nodes.values():
        assert set(node.detours.nodes) == node.wanted()
        heard = [[int(records) for one, records in node.heard if one == sender] for sender in net.names]
        assert all(numbers == sorted(set(numbers)) for numbers in heard), "in order, and nothing twice"
        for name in node.wanted():
            assert node.detours.send(name, b"0")
    net.carry(rng)
    for node in net.nodes.values():
        assert {sender for sender, records in node.heard if records == b"0"} == node.wanted()


@pytest.mark.parametrize("payload", [b"", b"x" * 10, b"\x00" + b"\xff" * 40], ids=["empty", "short", "no id"])
def test_a_frame_that_is_none_ends_the_link(payload: bytes) -> None:
    net = Net(A, B, C)
    with pytest.raises(RemoteProtocolError):
        net.nodes[A].detours.on_frame(C, memoryview(payload))
