"""Core NATS between nodes: the plane's route records ride on the mesh; clients learn where else they can connect.

A node that is not linked with this one, while a third is linked with both, has a route too: by a detour over that one
(raft/detours.py). A node has one route at a time, so no message goes both ways.
"""

import secrets
from collections.abc import Iterator

import attrs
import trio

from jetraft.api.reactor import Reactor
from jetraft.api.routing._plane import Plane, RouteFormatError
from jetraft.api.session import Sessions
from jetraft.raft.detours import Detours
from jetraft.raft.framing import CHANNEL_DETOUR, CHANNEL_ROUTE
from jetraft.raft.peers import Mesh
from jetraft.raft.wire import RemoteProtocolError
from jetraft.store.model.ids import NodeId

DETOURS_LOOK_S = 1.0  # a detour that the node between has refused is tried again
FRAME_BYTES_TARGET = 16 * 1024 * 1024  # records of one turn are cut into frames of about this size


def cut_records(records: bytes, target: int = FRAME_BYTES_TARGET) -> Iterator[bytes]:
    """Cut back-to-back route records into pieces of about `target` bytes, never inside a record."""
    if len(records) <= target:
        yield records
        return
    start = at = 0
    while at < len(records):
        length = int.from_bytes(records[at : at + 4], "little")
        if at > start and at + length - start > target:
            yield records[start:at]
            start = at
        at += length
    yield records[start:]


@attrs.define(eq=False)
class Routes:
    """Joins the plane to the mesh: one route per peer whose link is up, or that is reached by a detour."""

    mesh: Mesh
    plane: Plane
    sessions: Sessions
    reactor: Reactor
    advertise: bool = True
    by_node: dict[NodeId, int] = attrs.field(factory=dict)
    by_route: dict[int, NodeId] = attrs.field(factory=dict)
    detours: Detours = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.detours = Detours(
            self.mesh,
            on_up=self._open,
            on_down=self._close,
            on_records=self._on_frame,
            new_number=lambda: secrets.randbits(63),
        )

    def start(self) -> None:
        """Listen to the mesh; call before it runs."""
        self.mesh.on_peer_up.append(self._up)
        self.mesh.on_peer_down.append(self._down)
        self.mesh.on_peer_changed.append(self._changed)
        self.reactor.route_bytes = self.queued_bytes
        self.mesh.on_frame(CHANNEL_ROUTE, self.reactor.within_turn(self._on_frame))
        self.mesh.on_frame(CHANNEL_DETOUR, self.reactor.within_turn(self.detours.on_frame))

    async def run(self) -> None:
        """Look for detours now and then, until cancelled; most are found when links come and go."""
        while True:
            await trio.sleep(DETOURS_LOOK_S)
            self.detours.update()

    def _up(self, node: NodeId) -> None:
        self.detours.update()  # one to this node ends before its route begins
        self._open(node)
        self.update_connect_urls()

    def _down(self, node: NodeId) -> None:
        self._close(node)
        self.detours.update()
        self.update_connect_urls()

    def _changed(self, _node: NodeId) -> None:
        self.detours.update()
        self.update_connect_urls()

    def _open(self, node: NodeId) -> None:
        route = self.plane.open_route()
        self.by_node[node], self.by_route[route] = route, node
        self.reactor.kick_outside()

    def _close(self, node: NodeId) -> None:
        route = self.by_node.pop(node, None)
        if route is not None:
            del self.by_route[route]
            self.plane.close_route(route)

    def _on_frame(self, node: NodeId, payload: memoryview) -> None:
        route = self.by_node.get(node)
        if route is None:
            return
        try:
            self.plane.on_route(route, payload)
        except RouteFormatError as error:
            raise RemoteProtocolError(f"route records: {error}") from error

    def send(self, route: int, records: bytes) -> None:
        """Hand one turn's records to the peer's link."""
        node = self.by_route.get(route)
        if node is not None:
            linked = self.mesh.is_up(node)
            for piece in cut_records(records):
                if linked:
                    self.mesh.send(node, CHANNEL_ROUTE, piece)
                else:
                    self.detours.send(node, piece)

    def queued_bytes(self, route: int) -> int:
        """What waits in the peer's link."""
        node = self.by_route.get(route)
        return 0 if node is None else self.mesh.queued_bytes(node) + self.detours.queued_bytes(node)

    def update_connect_urls(self) -> None:
        """Tell clients when the set of servers to connect to has changed."""
        if not self.advertise:
            return
        own = self.sessions.client_url
        peers = sorted(peer.client_url for peer in self.mesh.peers.values() if peer.up and peer.client_url)
        urls = (own, *peers) if own else tuple(peers)
        if urls != self.sessions.connect_urls:
            self.sessions.connect_urls = urls
            for cid, session in self.sessions.by_cid.items():
                if session.options.protocol:
                    self.plane.write(cid, self.sessions.info(session))

    def statistics(self) -> dict[str, int]:
        """Peers that messages are routed to; those of them by a detour, and frames passed on for others."""
        detours = self.detours
        return {"routes": len(self.by_node), "detours": len(detours.nodes), "relayed": detours.relayed}
