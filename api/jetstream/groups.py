"""The Raft groups of a node in the reactor's turns: links that deliver within a turn, and what a turn calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.store.model.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.api.turns.reactor import Reactor
    from jetraft.api.turns.timers import TrioTimers
    from jetraft.raft.manager import Manager
    from jetraft.raft.mesh.peers import Mesh
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import NodeId


@attrs.define(eq=False)
class NoLinks:
    """The links of a server without a cluster. Implements raft.manager.Links."""

    node_id: NodeId
    on_peer_up: Signal[[NodeId]] = attrs.field(factory=Signal)
    on_peer_down: Signal[[NodeId]] = attrs.field(factory=Signal)

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        """Return False: no link is up."""
        del to, channel, payload
        return False

    def on_frame(self, channel: int, handler: Callable[[NodeId, memoryview], None]) -> None:
        """Ignore the handler: no frame arrives."""

    def is_up(self, node: NodeId) -> bool:
        """Return False: no link is up."""
        del node
        return False


@attrs.define(eq=False)
class MeshLinks:
    """The mesh as the groups see it: frames are handled in the turn that ends after them."""

    mesh: Mesh
    reactor: Reactor

    @property
    def node_id(self) -> NodeId:
        """The id of this node in handshakes."""
        return self.mesh.node_id

    @property
    def on_peer_up(self) -> Signal[[NodeId]]:
        """A link session began."""
        return self.mesh.on_peer_up

    @property
    def on_peer_down(self) -> Signal[[NodeId]]:
        """A link session ended."""
        return self.mesh.on_peer_down

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        """Queue a payload; False when the link is down."""
        return self.mesh.send(to, channel, payload)

    def on_frame(self, channel: int, handler: Callable[[NodeId, memoryview], None]) -> None:
        """Hand the channel's payloads to `handler`, within a turn."""
        self.mesh.on_frame(channel, self.reactor.within_turn(handler))

    def is_up(self, node: NodeId) -> bool:
        """Whether there is a link session with the node."""
        return self.mesh.is_up(node)


class ManagerTurns:
    """The groups' part of a turn, with a timer for the earliest deadline. Implements reactor.GroupTurns."""

    def __init__(self, manager: Manager, timers: TrioTimers, clock: Clock) -> None:
        self._manager = manager
        self._timers = timers
        self._clock = clock
        self._tick_at_ns: int | None = None  # the earliest deadline that has a timer
        self.write = manager.write  # see reactor.GroupTurns

    def flush(self) -> None:
        """Advance the groups, queue what they send, and set a timer for the next deadline."""
        self._manager.flush()
        deadline_ns = self._manager.next_deadline_ns
        if deadline_ns is not None and (self._tick_at_ns is None or deadline_ns < self._tick_at_ns):
            self._tick_at_ns = deadline_ns
            self._timers.call_at(deadline_ns, self._tick)

    def _tick(self) -> None:
        self._tick_at_ns = None
        self._manager.tick(self._clock.mono_ns())
