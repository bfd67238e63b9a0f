"""Core NATS between nodes: the plane's route records travel on the mesh, and clients learn the addresses of peers.

A node without a link to this one is reached by a detour over a third node that has links to both
(raft/mesh/detours.py). A node has one route at a time, so no message takes both ways.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import attrs
import trio

from jetraft.api.auth.granting import build
from jetraft.api.credentials.permissions import Permissions, SubjectRules
from jetraft.api.plane._plane import Plane, RouteFormatError
from jetraft.api.plane._routes import piece_end
from jetraft.api.sessions.session import Sessions
from jetraft.api.turns.reactor import Reactor
from jetraft.raft.mesh.addresses import Address, parse_route
from jetraft.raft.mesh.detours import Detours
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_DETOUR, CHANNEL_ROUTE
from jetraft.raft.mesh.peers import Mesh, MeshPeer
from jetraft.store.model.clock import NS_PER_MS
from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.api.options.options import ClusterOptions

URLS_MAX = 64  # of one node
DETOURS_CHECK_S = 1.0  # a detour that the node between has refused is tried again
WEB_URLS_KEY = "websocket_urls"  # of a node's metadata: where its clients over WebSocket connect
ACCOUNTS_KEY = "accounts"  # of a node's metadata: it understands route records of accounts other than `$G`
PERMISSIONS_KEY = "route_permissions"  # the same: `import` and `export` of its cluster block
ORIGINS_KEY = "origins"  # the same: it reads the origin of a message in its record, and writes it to those that do
TRACES_KEY = "traces"  # the same: it delivers nothing that is for a trace only
# Of one turn's records. Raft and calls go before the next frame and not into the middle of one; a path of 10 Mbit/s
# needs 0.2 s for this.
FRAME_BYTES = 256 * 1024
# By the quarters of what may wait for a peer (`max_waiting_bytes`): how long who sends to it is not read. The first is
# nats-server's; the last is less than the silence that ends a link.
PAUSES_NS = (0, 5 * NS_PER_MS, 50 * NS_PER_MS, 500 * NS_PER_MS)
CAUGHT_UP_SHARE = 8  # a peer for which less than this share waits is not behind any more
TURN_SHARE = 8  # for one peer in one turn; beyond that little is read at a time


def cut_records(records: bytes, most: int = FRAME_BYTES) -> Iterator[bytes]:
    """Cut back-to-back route records into pieces of `most` bytes or a single record, never inside a record."""
    start = 0
    while len(records) - start > most:
        end = piece_end(records, start, most)
        yield records[start:end]
        start = end
    if start < len(records):
        yield records[start:] if start else records


def pause_ns(queued_bytes: int, bytes_max: int) -> int:
    """How long a connection is not read that sends to a peer with so much waiting; 0: that is little."""
    return PAUSES_NS[min(queued_bytes * len(PAUSES_NS) // bytes_max, len(PAUSES_NS) - 1)]


def client_urls(peer: MeshPeer) -> tuple[str, ...]:
    """The addresses for a node's clients, URLS_MAX addresses at most. Older nodes name one, and some none."""
    return checked_urls(peer.metadata.get("client_urls") or [peer.client_url])


def checked_urls(said: object) -> tuple[str, ...]:
    """A node's report of its addresses, as far as it is that."""
    given = said[:URLS_MAX] if isinstance(said, list) else []
    return tuple(url for url in given if url and isinstance(url, str))


def told(permissions: Permissions | None) -> dict[str, dict[str, list[str]]]:
    """Permissions of routes as pages show them and other nodes hear of them."""
    if permissions is None:
        return {}
    both = {"import": permissions.publish, "export": permissions.subscribe}
    return {name: rules.told() for name, rules in both.items() if rules != SubjectRules()}


def checked_permissions(said: object) -> dict[str, dict[str, list[str]]]:
    """A node's report of its permissions, as far as it is that; they are shown, and nothing is decided by them."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in ("import", "export"):
        rules = said.get(name) if isinstance(said, dict) else None
        if isinstance(rules, dict):
            lists = {key: rules[key] for key in ("allow", "deny") if isinstance(rules.get(key), list)}
            found[name] = {key: [str(one) for one in given] for key, given in lists.items()}
    return found


def addresses_of(routes: Iterable[str]) -> frozenset[Address]:
    """The addresses of configured routes, which were checked before."""
    return frozenset(parse_route(route).address for route in routes)


@attrs.frozen(kw_only=True)
class RouteFacts:
    """A route as monitoring shows it."""

    route: int
    node: NodeId
    server_id: str
    name: str
    configured: bool  # its address is one of the configured routes
    host: str
    port: int
    since_ns: int  # mono
    last_received_ns: int  # mono
    figures: Mapping[str, int]
    permissions: Mapping[str, Any]  # of the node: what it imports and exports


@attrs.define(eq=False)
class Routes:
    """Joins the plane to the mesh: one route per peer whose link is up, or that is reached by a detour.

    Implements reactor.PeerLinks.
    """

    mesh: Mesh
    plane: Plane
    sessions: Sessions
    reactor: Reactor
    advertise: bool = True
    by_node: dict[NodeId, int] = attrs.field(factory=dict)
    by_route: dict[int, NodeId] = attrs.field(factory=dict)
    configured: frozenset[Address] = frozenset()
    permissions: Permissions | None = None
    _since_ns: dict[int, int] = attrs.field(factory=dict)
    _told_under: dict[NodeId, Mapping[str, Any]] = attrs.field(factory=dict)  # what its permissions were then
    _behind: set[int] = attrs.field(
        factory=set
    )  # routes with more than a quarter of what may wait, until they caught up
    detours: Detours = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.detours = Detours(
            self.mesh,
            on_up=self._open,
            on_down=self._close,
            on_records=self._on_frame,
            new_number=lambda: secrets.randbits(63),
        )

    @classmethod
    def of(cls, cluster: "ClusterOptions", mesh: Mesh, plane: Plane, sessions: Sessions, reactor: Reactor) -> Self:
        """The routes of a node with this `cluster` block."""
        return cls(
            mesh,
            plane,
            sessions,
            reactor,
            advertise=not cluster.no_advertise,
            configured=addresses_of(cluster.routes),
            permissions=cluster.permissions,
        )

    def start(self) -> None:
        """Listen to the mesh; call before it runs."""
        self.mesh.describe(ACCOUNTS_KEY, True)  # noqa: FBT003  (a value)
        self.mesh.describe(TRACES_KEY, True)  # noqa: FBT003
        self.mesh.describe(ORIGINS_KEY, True)  # noqa: FBT003
        if self.permissions is not None:
            self.permit(self.permissions)
        self.mesh.describe(WEB_URLS_KEY, list(self.sessions.web_urls))
        self.mesh.on_peer_up.connect(self._up)
        self.mesh.on_peer_down.connect(self._down)
        self.mesh.on_peer_changed.connect(self._changed)
        self.plane.limit_route_turn(self.mesh.queue_bytes_max // TURN_SHARE)
        self.reactor.connect_peers(self)
        self.mesh.on_frame(CHANNEL_ROUTE, self.reactor.within_turn(self._on_frame))
        self.mesh.on_frame(CHANNEL_DETOUR, self.reactor.within_turn(self.detours.on_frame))

    async def run(self) -> None:
        """Check the detours every DETOURS_CHECK_S until cancelled; a link that comes or goes does so at once."""
        while True:
            await trio.sleep(DETOURS_CHECK_S)
            self.detours.update()

    def _up(self, node: NodeId) -> None:
        self.detours.update()  # a detour to this node ends before its direct route begins
        self._open(node)
        self.update_connect_urls()

    def _down(self, node: NodeId) -> None:
        self._close(node)
        self.detours.update()
        self.update_connect_urls()

    def permit(self, permissions: Permissions | None) -> None:
        """Exchange what these permissions let peers have from now on. They tell their interest again."""
        self.permissions = permissions
        self.plane.permit_routes(None if permissions is None else build(permissions))
        self.mesh.describe(PERMISSIONS_KEY, told(permissions))
        self.reactor.kick_outside()

    def _changed(self, node: NodeId) -> None:
        self._open_accounts(node)
        route, permissions = self.by_node.get(node), self._permissions_of(node)
        if route is not None and permissions != self._told_under.get(node):
            self._told_under[node] = permissions
            self.plane.tell_again(route)
            self.reactor.kick_outside()
        self.detours.update()
        self.update_connect_urls()

    def _open(self, node: NodeId) -> None:
        route = self.plane.open_route(self._name_of(node))
        self.by_node[node], self.by_route[route] = route, node
        self._since_ns[route] = self.reactor.clock.mono_ns()
        self._told_under[node] = self._permissions_of(node)
        self._open_accounts(node)
        self.reactor.kick_outside()

    def _open_accounts(self, node: NodeId) -> None:
        """Tell a node of all accounts once it has said that it understands that: an older one would end the link."""
        peer, route = self.mesh.peers.get(node), self.by_node.get(node)
        if route is not None and peer is not None and peer.metadata.get(TRACES_KEY):
            self.plane.open_traces(route)
        if route is not None and peer is not None and peer.metadata.get(ORIGINS_KEY):
            self.plane.open_origins(route)
        if route is not None and peer is not None and peer.metadata.get(ACCOUNTS_KEY):
            self.plane.open_accounts(route)
            self.reactor.kick_outside()

    def _name_of(self, node: NodeId) -> str:
        peer = self.mesh.peers.get(node)
        return peer.name if peer is not None else ""

    @property
    def told_permissions(self) -> dict[str, dict[str, list[str]]]:
        """Its own permissions, as pages show them."""
        return told(self.permissions)

    def _permissions_of(self, node: NodeId) -> Mapping[str, Any]:
        peer = self.mesh.peers.get(node)
        return checked_permissions(peer.metadata.get(PERMISSIONS_KEY) if peer is not None else None)

    def _close(self, node: NodeId) -> None:
        route = self.by_node.pop(node, None)
        if route is not None:
            del self.by_route[route], self._since_ns[route], self._told_under[node]
            self._behind.discard(route)
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
        """Queue the records of a turn on the peer's link, or on its detour."""
        node = self.by_route.get(route)
        if node is not None:
            linked = self.mesh.is_up(node)
            for piece in cut_records(records):
                if linked:
                    self.mesh.send(node, CHANNEL_ROUTE, piece)
                else:
                    self.detours.send(node, piece)
            if self.queued_bytes(route) > self.mesh.queue_bytes_max // len(PAUSES_NS):
                self._behind.add(route)

    def queued_bytes(self, route: int) -> int:
        """The bytes that wait in the link of the peer behind a route."""
        node = self.by_route.get(route)
        return 0 if node is None else self.mesh.queued_bytes(node) + self.detours.queued_bytes(node)

    def flush(self) -> None:
        """Send what the turn queued for peers, as far as the sockets accept it."""
        self.mesh.flush()
        if self._behind:
            self._hold_producers()

    def _hold_producers(self) -> None:
        """Have those who send to peers that are behind wait, the longer the more waits there.

        Links end when too much waits in them, and what nodes say to each other ends with them. Neither that nor
        what peers send is held: so no two nodes wait for each other, and each pause ends by itself.
        """
        bytes_max = self.mesh.queue_bytes_max
        for route in list(self._behind):
            queued_bytes = self.queued_bytes(route)
            if queued_bytes < bytes_max // CAUGHT_UP_SHARE:
                self._behind.remove(route)
                self.plane.hold_producers(route, 0)
            else:
                self.plane.hold_producers(route, pause_ns(queued_bytes, bytes_max) or PAUSES_NS[1])

    def describe_clients(self) -> None:
        """Tell peers and clients where the clients of this node connect now."""
        urls = self.sessions.client_urls
        self.mesh.describe("client_url", urls[0] if urls else "")
        self.mesh.describe("client_urls", list(urls))
        self.update_connect_urls()

    def follow(self, routes: Iterable[str]) -> None:
        """Dial these routes from now on. A link that is there stays; what is no route any more is not dialled again."""
        self.mesh.follow_routes([parse_route(route).address for route in routes])

    def update_connect_urls(self) -> None:
        """Send clients an INFO when the addresses of the cluster's servers have changed.

        Not when this server ends: its links end first, and a client that heard so would forget where else to go.
        """
        if not self.advertise or self.sessions.is_ending:
            return
        sessions, up = self.sessions, [peer for peer in self.mesh.peers.values() if peer.up]
        peers = sorted(client_urls(peer) for peer in up)
        web_peers = sorted(checked_urls(peer.metadata.get(WEB_URLS_KEY)) for peer in up)
        urls = tuple(dict.fromkeys(chain(sessions.client_urls, *peers)))
        web_urls = tuple(dict.fromkeys(chain(sessions.web_urls, *web_peers)))
        changed = (urls != sessions.connect_urls, web_urls != sessions.web_connect_urls)
        sessions.connect_urls, sessions.web_connect_urls = urls, web_urls
        for cid, session in sessions.by_cid.items():
            if session.options.protocol and changed[session.web is not None]:
                self.plane.write(cid, sessions.info(session))

    def facts(self) -> list[RouteFacts]:
        """All routes, the oldest first."""
        links = self.mesh.statistics().links
        found = []
        for route, node in sorted(self.by_route.items()):
            peer, link, figures = self.mesh.peers.get(node), links.get(node), self.plane.route_figures(route)
            if peer is None or figures is None:
                continue
            found.append(
                RouteFacts(
                    route=route,
                    node=node,
                    server_id=str(peer.metadata.get("server_id", "")),
                    name=peer.name,
                    configured=peer.address in self.configured,
                    host=peer.address.host if peer.address is not None else "",
                    port=peer.address.port if peer.address is not None else 0,
                    since_ns=self._since_ns[route],
                    last_received_ns=link.last_received_ns if link is not None else self._since_ns[route],
                    figures=figures,
                    permissions=self._permissions_of(node),
                )
            )
        return found

    def statistics(self) -> dict[str, int]:
        """The number of routes, those of them by a detour, and the frames relayed for other nodes."""
        detours = self.detours
        return {"routes": len(self.by_node), "detours": len(detours.nodes), "relayed": detours.relayed}
