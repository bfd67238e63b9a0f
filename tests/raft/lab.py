"""A small laboratory for groups: several managers in one process, joined by links that deliver when told."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import msgpack

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.group_spec import GroupSetting, GroupSpec
from jetraft.raft.machine import NO_LIVE_MESSAGES
from jetraft.raft.manager import Manager
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import FRAME_HEADER_BYTES
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.model.signal import Signal
from jetraft.store.port import Entry

MS = 1_000_000


class ListMachine:
    """Keeps the bodies of all commands; the result of a command is its index."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.roles: list[tuple[str, int, NodeId | None]] = []
        self.first_live_seq = NO_LIVE_MESSAGES

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        self.bodies.extend(entry.frame[FRAME_HEADER_BYTES:] for entry in entries)
        return [entry.index for entry in entries]

    def snapshot(self) -> bytes:
        return bytes(msgpack.packb(self.bodies))

    def restore(self, state: bytes) -> None:
        self.bodies = msgpack.unpackb(state)

    def became_leader(self, term: int) -> None:
        self.roles.append(("leader", term, None))

    def became_follower(self, term: int, leader: NodeId | None) -> None:
        self.roles.append(("follower", term, leader))


class LabLinks:
    """One node's end of the lab's network."""

    def __init__(self, lab: "Lab", node_id: NodeId) -> None:
        self._lab = lab
        self.node_id = node_id
        self.on_peer_up: Signal[[NodeId]] = Signal()
        self.on_peer_down: Signal[[NodeId]] = Signal()
        self.handlers: dict[int, Callable[[NodeId, memoryview], None]] = {}

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        if not self.is_up(to):
            return False
        self._lab.queue.append((self.node_id, to, channel, payload))
        return True

    def on_frame(self, channel: int, handler: Callable[[NodeId, memoryview], None]) -> None:
        self.handlers[channel] = handler

    def is_up(self, node: NodeId) -> bool:
        return self._lab.is_linked(self.node_id, node)


@attrs.define
class Lab:
    """`settle` delivers and flushes until nothing moves; `run` lets time pass as well."""

    nodes: tuple[NodeId, ...]
    clock: ManualClock = attrs.Factory(ManualClock)
    queue: deque[tuple[NodeId, NodeId, int, bytes]] = attrs.Factory(deque)
    cut: set[frozenset[NodeId]] = attrs.Factory(set)
    links: dict[NodeId, LabLinks] = attrs.Factory(dict)
    managers: dict[NodeId, Manager] = attrs.Factory(dict)
    checkpoints: CheckpointPolicy = attrs.Factory(CheckpointPolicy)
    turns: Mapping[str, Any] = attrs.Factory(dict)  # what the managers are told of turns: `on_dirty` and the others

    def __attrs_post_init__(self) -> None:
        for seed, node in enumerate(self.nodes):
            self.links[node] = LabLinks(self, node)
            setting = GroupSetting(node_id=node, seal=seal, rng=random.Random(seed), checkpoints=self.checkpoints)
            self.managers[node] = Manager(setting, links=self.links[node], clock=self.clock, **self.turns)

    def is_linked(self, one: NodeId, other: NodeId) -> bool:
        return other in self.links and frozenset((one, other)) not in self.cut

    def create(
        self, name: str = "S-R3F-test0000", *, preferred: NodeId | None = None, incarnation: int = 7
    ) -> dict[NodeId, ListMachine]:
        """The same group on every node, over fresh logs in memory."""
        spec = GroupSpec(
            group_id=GroupId(name), incarnation=incarnation, members=self.nodes, preferred_leader=preferred
        )
        machines = {node: ListMachine() for node in self.nodes}
        for node in self.nodes:
            self.managers[node].create(spec, MemLog(), machines[node])
        return machines

    def unlink(self, one: NodeId, other: NodeId) -> None:
        self.cut.add(frozenset((one, other)))
        self.queue = deque(item for item in self.queue if {item[0], item[1]} != {one, other})
        for here, there in ((one, other), (other, one)):
            self.links[here].on_peer_down.emit(there)

    def link(self, one: NodeId, other: NodeId) -> None:
        self.cut.discard(frozenset((one, other)))
        for here, there in ((one, other), (other, one)):
            self.links[here].on_peer_up.emit(there)

    def settle(self) -> None:
        """Flush and deliver until every queue is empty."""
        for _ in range(10_000):
            for manager in self.managers.values():
                manager.flush()
            if not self.queue:
                return
            while self.queue:
                sender, to, channel, payload = self.queue.popleft()
                self.links[to].handlers[channel](sender, memoryview(payload))
        raise AssertionError("the lab does not settle")

    def run(self, duration_ns: int, step_ns: int = 5 * MS) -> None:
        """Let virtual time pass."""
        end_ns = self.clock.now_ns + duration_ns
        self.settle()
        while self.clock.now_ns < end_ns:
            self.clock.advance(step_ns)
            for manager in self.managers.values():
                manager.tick(self.clock.now_ns)
            self.settle()

    def leader_of(self, name: str = "S-R3F-test0000") -> NodeId:
        return self.leader_of_those(self.nodes, GroupId(name))

    def leader_of_those(self, nodes: Sequence[NodeId], name: GroupId) -> NodeId:
        leaders = [node for node in nodes if self.managers[node].groups[name].is_leader]
        assert len(leaders) == 1, leaders
        return leaders[0]
