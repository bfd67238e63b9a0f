"""A mesh without sockets: nodes that may be linked ask each other, one millisecond away."""

from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any

import attrs
import trio

from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store.model.ids import NodeId

Handler = Callable[[NodeId, bytes], Awaitable[bytes]]


@attrs.frozen
class Peer:
    up: bool
    metadata: Mapping[str, Any] = attrs.field(factory=dict)


class Wire:
    """All nodes of a test: who is linked with whom, and what they serve."""

    def __init__(self) -> None:
        self.linked: set[frozenset[NodeId]] = set()
        self.own_routes = 0
        self.without_jetstream: set[NodeId] = set()
        self.without_route: set[NodeId] = set()
        self.handlers: dict[tuple[NodeId, str], Handler] = {}

    def link(self, *nodes: NodeId) -> None:
        self.linked |= {frozenset((one, other)) for one in nodes for other in nodes if one != other}


class WireMesh:
    """One node's end."""

    def __init__(self, wire: Wire, node_id: NodeId) -> None:
        self._wire = wire
        self._node_id = node_id

    @property
    def peers(self) -> Mapping[NodeId, Peer]:
        others = (next(iter(pair - {self._node_id})) for pair in self._wire.linked if self._node_id in pair)
        without = self._wire.without_jetstream
        return {other: Peer(up=True, metadata={"jetstream": other not in without}) for other in sorted(others)}

    def heard_ns(self, node: NodeId) -> int | None:
        del node
        return None

    @property
    def own_routes(self) -> int:
        return self._wire.own_routes

    def routes_to(self, nodes: Container[NodeId]) -> int:
        return sum(node in nodes for node in self.peers if node not in self._wire.without_route)

    def relay_to(self, node: NodeId) -> NodeId | None:
        others = self.peers
        return next((other for other in others if frozenset((other, node)) in self._wire.linked), None)

    def serve(self, method: str, handler: Handler, *, request_bytes_max: int = 0) -> None:
        del request_bytes_max
        self._wire.handlers[self._node_id, method] = handler

    async def call(
        self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, behind_routes: bool = False
    ) -> bytes:
        del behind_routes
        await trio.sleep(0.001)
        if frozenset((self._node_id, to)) not in self._wire.linked:
            raise PeerUnavailableError(f"no link to {to} in {timeout_s}")
        handler = self._wire.handlers.get((to, method))
        if handler is None:
            raise RemoteCallError(f"{to} does not know {method}")
        with trio.move_on_after(timeout_s):
            return await handler(self._node_id, payload)
        raise CallTimeoutError(f"no answer of {to} in {timeout_s}")
