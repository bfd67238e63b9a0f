"""The mesh: one ordered, authenticated link to every other node of the cluster.

A node listens, dials its configured routes, and dials what peers tell it about, so naming one seed is enough for a
full mesh. The handshake settles who may join, and which of two crossing connections stays; from then on a `Link`
carries the channels. A link that is silent for more than a second is dead: every end sends a keepalive each quarter of
a second. `on_peer_down` is what elections start from: it comes exactly once per session, after its last frame.

Bulk data has a second connection beside each link (`raft/mesh/bulk.py`), with a rate of its own, that lives no
longer than the session.

Sessions never overlap: no frame of an old session is delivered after the new one began (rule 23). A session begins,
and `on_peer_up` is called, when the other end has said what it is (the first control frame).
"""

import logging
import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.bulk import BulkLinks
from jetraft.raft.mesh.connector import Connector, Made
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.establish import PeerIdentity
from jetraft.raft.mesh.framing import CHANNEL_BULK, CHANNEL_CONTROL, CHANNEL_ROUTE, CHANNEL_RPC, CHANNELS
from jetraft.raft.mesh.gossip import About
from jetraft.raft.mesh.handshake import HandshakeVerdict, Hello, Purpose, cluster_key
from jetraft.raft.mesh.known_peers import KnownPeers, MeshPeer
from jetraft.raft.mesh.link import Link, Sockets
from jetraft.raft.mesh.rpc import REQUEST_BYTES_MAX, Calls, Handler
from jetraft.raft.mesh.setting import MeshSetting, MeshStatistics
from jetraft.raft.mesh.store_ages import OLDER_COPY, StoreAges
from jetraft.raft.mesh.wires import Transport
from jetraft.store.model.clock import NS_PER_MS, NS_PER_S, Clock
from jetraft.store.model.events import MEMBER_LINKED, MEMBER_UNLINKED
from jetraft.store.model.ids import NodeId, node_id_of
from jetraft.store.model.signal import Signal

log = logging.getLogger(__name__)

KEEPALIVE_NS: Final = 250 * NS_PER_MS
WATCH_NS: Final = 125 * NS_PER_MS  # how exactly silence is measured
SILENCE_NS: Final = 1250 * NS_PER_MS  # five keepalives; less, and a pause of the garbage collector would cut links
STALL_NS: Final = 300 * NS_PER_MS  # when this node itself was late by that much, silence proves nothing
ALIVE_NS: Final = 600 * NS_PER_MS  # a link heard from within this is certainly not the remains of a restarted peer

__all__ = ["Mesh", "MeshPeer", "MeshSetting", "MeshStatistics"]

FrameHandler = Callable[[NodeId, memoryview], None]


class Mesh:
    """See the module. `run` owns everything that the mesh starts."""

    def __init__(  # noqa: PLR0913  (what surrounds it)
        self,
        setting: MeshSetting,
        *,
        clock: Clock,
        metadata: Mapping[str, Any] | None = None,
        transport: Transport | None = None,
        after_frames: Callable[[], None] = lambda: None,
        sockets: Sockets | None = None,
    ) -> None:
        """`transport` is where connections come from, TCP when it is not given.

        `after_frames` ends the turn in which frames were handled; links are read inside turns where `sockets` is given.
        """
        self._setting = setting
        self._clock = clock
        self._metadata = dict(metadata or {})
        self.node_id = node_id_of(setting.server_name)
        identity = PeerIdentity(
            cluster=setting.cluster,
            node_id=self.node_id,
            name=setting.server_name,
            boot=secrets.randbits(64),
            keys=tuple(cluster_key(secret, setting.cluster) for secret in setting.secrets or (b"",)),
        )
        self._connector = Connector(identity, self, clock=clock, tls=setting.tls, transport=transport)
        self.on_peer_up: Signal[[NodeId]] = Signal()
        self.on_peer_down: Signal[[NodeId]] = Signal()
        self.on_peer_changed: Signal[[NodeId]] = Signal()  # its metadata or its links are new, inside a session
        self._after_frames = after_frames
        self._new_link = partial(Link, clock=clock, sockets=sockets, queue_bytes_max=setting.queue_bytes_max)
        self._links: dict[NodeId, Link] = {}
        self._ended: dict[NodeId, trio.Event] = {}
        self._reserved: set[NodeId] = set()
        self._known = KnownPeers()
        self.ages = StoreAges(self.node_id)
        self._handlers: list[FrameHandler | None] = [None] * CHANNELS
        behind_routes = partial(self.send, behind=CHANNEL_ROUTE)
        self.calls = Calls(self.send, complain=self._connector.complain, send_behind_routes=behind_routes)
        self._bulk = BulkLinks(
            clock=clock,
            on_frame=lambda node, payload: self.calls.on_frame(CHANNEL_BULK, node, payload),
            on_ended=self._bulk_ended,
            after_frames=after_frames,
            bytes_per_s=setting.bulk_bytes_per_s,
        )
        self._sessions_begun = 0

    @property
    def peers(self) -> Mapping[NodeId, MeshPeer]:
        """Every node that was ever linked in this process, up or down."""
        return self._known.all

    @property
    def listen_address(self) -> Address | None:
        """The address at which this node listens for peers, with the port that was picked."""
        return self._connector.listen_address

    @property
    def own_routes(self) -> int:
        """How many of the configured routes lead back to this node, as far as the dials have shown by now."""
        return self._connector.own_routes

    def routes_to(self, nodes: Container[NodeId]) -> int:
        """How many of the configured routes lead to one of these nodes, as far as the dials have shown by now."""
        return self._connector.routes_to(nodes)

    def is_up(self, node: NodeId) -> bool:
        """Whether frames can be sent to the node."""
        return self._known.is_up(node)

    def heard_ns(self, node: NodeId) -> int | None:
        """When anything came from the node last (mono), keepalives included; None when it was never heard."""
        return self._links[node].last_received_ns if node in self._links else self._known.last_seen_ns(node)

    def relay_to(self, node: NodeId) -> NodeId | None:
        """A linked node that is linked with this one too; None when there is none."""
        return self._known.relay_to(node)

    def send(self, to: NodeId, channel: int, payload: bytes, *, behind: int | None = None) -> bool:
        """Queue a frame; False when there is no link. Ordered inside the channel, never dropped inside a session.

        `behind` is another channel whose frames that wait by now go before it.
        (BULK is not ordered, and dropped when its own connection ends: it carries calls, which then end with it.)
        """
        if not self.is_up(to):
            return False
        bulk = self._bulk.get(to) if channel == CHANNEL_BULK else None
        return (bulk or self._links[to]).send(channel, payload, behind=behind)

    def broadcast(self, channel: int, payload: bytes) -> None:
        """Send to every node that is up."""
        for node in list(self._known.all):
            self.send(node, channel, payload)

    def on_frame(self, channel: int, handler: FrameHandler) -> None:
        """Hand the channel's frames to `handler`; payloads are valid during the call only."""
        assert self._handlers[channel] is None, f"channel {channel} has a handler"
        self._handlers[channel] = handler

    def flush(self) -> None:
        """End of a turn: send what the sockets take now; the rest follows when they can."""
        for link in list(self._links.values()):
            if link.has_queued:
                link.flush()

    @property
    def queue_bytes_max(self) -> int:
        """The bytes that may wait for one node; the session ends beyond that."""
        return self._setting.queue_bytes_max

    def queued_bytes(self, node: NodeId) -> int:
        """The bytes that wait for the node; senders of much look here first."""
        link = self._links.get(node)
        return link.queued_bytes if link is not None else 0

    def serve(self, method: str, handler: Handler, *, request_bytes_max: int = REQUEST_BYTES_MAX) -> None:
        """Answer calls of `method`; larger ones are refused."""
        self.calls.serve(method, handler, request_bytes_max=request_bytes_max)

    async def call(  # noqa: PLR0913  (how it travels, by name)
        self,
        to: NodeId,
        method: str,
        payload: bytes,
        *,
        timeout_s: float,
        bulk: bool = False,
        behind_routes: bool = False,
    ) -> bytes:
        """Ask another node. Raises PeerUnavailableError, CallTimeoutError, RemoteCallError."""
        return await self.calls.call(to, method, payload, timeout_s=timeout_s, bulk=bulk, behind_routes=behind_routes)

    def describe(self, key: str, value: object) -> None:
        """Replace one part of what this server says of itself (plain msgpack values), and tell the peers."""
        self._metadata = {**self._metadata, key: value}
        self.broadcast(CHANNEL_CONTROL, self._about_self())

    def follow_routes(self, routes: Sequence[Address]) -> None:
        """Dial these addresses from now on, and others no more than those that peers tell."""
        self._connector.follow_routes(routes)

    @property
    def is_shut_out(self) -> bool:
        """Whether this node has no link, and one that it dials does not take its proof: its secret is another one."""
        return not self._links and self._connector.is_proof_refused

    def statistics(self) -> MeshStatistics:
        """Figures for monitoring and tests."""
        return MeshStatistics(
            links={node: link.statistics() for node, link in self._links.items()},
            bulk_links=self._bulk.statistics(),
            handshakes_refused=self._connector.refused,
            suppressed_log_lines=self._connector.suppressed_log_lines,
            sessions_begun=self._sessions_begun,
        )

    # Life.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen, dial and serve until cancelled; started when the listener is bound. Raises OSError."""
        if not any(self._setting.secrets) and self._setting.tls is None:
            log.info("cluster %s has no secret: any node that knows its name may join", self._setting.cluster)
        async with trio.open_nursery() as nursery:
            self.calls.start_serving(nursery)
            await self._connector.start(nursery, self._setting.listen)
            self._connector.follow_routes(self._setting.routes)
            nursery.start_soon(self._watch)
            task_status.started()

    async def _watch(self) -> None:
        """Keepalives, and the end of links that are silent."""
        before_ns = self._clock.mono_ns()
        while True:
            await trio.sleep(WATCH_NS / NS_PER_S)
            now_ns = self._clock.mono_ns()
            stalled = now_ns - before_ns > WATCH_NS + STALL_NS
            before_ns = now_ns
            self._bulk.watch(now_ns, KEEPALIVE_NS - WATCH_NS, is_late=stalled)
            if self.ages.has_news(now_ns):
                self.broadcast(CHANNEL_CONTROL, self._about_self())
            for link in list(self._links.values()):
                link.keep_alive(KEEPALIVE_NS - WATCH_NS)
                if stalled:  # what the peer sent meanwhile is still in the socket: give the receiver a chance
                    link.last_received_ns = max(link.last_received_ns, now_ns - SILENCE_NS + 2 * KEEPALIVE_NS)
                elif now_ns - link.last_received_ns > SILENCE_NS:
                    link.close(f"silent for {(now_ns - link.last_received_ns) // NS_PER_MS} ms")

    # Links (LinkTable, for the connector).

    def check(self, hello: Hello) -> None:
        """Raises HandshakeRefusedError for a node that was refused just now, for one name too many, or for any node."""
        self.ages.check()
        self._known.check(hello, self._clock.mono_ns())

    def judge(self, hello: Hello) -> HandshakeVerdict:
        """Whether a link with this node may begin; asked only at the end with the smaller id. Bulk: see `BulkLinks`."""
        if hello.purpose is Purpose.BULK:
            return self._bulk.judge(hello)
        link = self._links.get(hello.node_id)
        if hello.node_id in self._reserved or (link is not None and link.boot == hello.boot):
            return HandshakeVerdict.ALREADY_LINKED
        if link is not None and self._clock.mono_ns() - link.last_received_ns < ALIVE_NS:
            return HandshakeVerdict.DUPLICATE_ID
        self._reserved.add(hello.node_id)
        return HandshakeVerdict.KEEP

    def release(self, node: NodeId, purpose: Purpose) -> None:
        """The handshake ended, one way or the other."""
        if purpose is Purpose.BULK:
            self._bulk.release(node)
        else:
            self._reserved.discard(node)

    def ended(self, node: NodeId) -> trio.Event | None:
        """Set when the node's link is gone; None when there is no link."""
        return self._ended.get(node)

    async def serve_connection(self, made: Made) -> None:
        """Run a link, or the bulk connection of one, until its session ends."""
        if made.established.hello.purpose is Purpose.BULK:
            await self._bulk.serve(made)
        else:
            await self._serve_link(made)

    async def _serve_link(self, made: Made) -> None:
        """An older link to the same node ends first."""
        hello = made.established.hello
        node = hello.node_id
        self._sessions_begun += 1
        session = self._sessions_begun
        link = self._new_link(made.connection.take(), node_id=node, session=session, boot=hello.boot)
        try:
            while node in self._links:
                self._links[node].close("replaced by a new connection")
                await self._ended[node].wait()
            self._links[node] = link
            self._ended[node] = trio.Event()
        except trio.Cancelled:
            link.abandon()
            raise
        finally:
            self.release(node, Purpose.LINK)
        number = hello.session if made.dialled is None else made.established.own_session
        self._bulk.session_began(node, boot=hello.boot, number=number)
        link.send(CHANNEL_CONTROL, self._about_self())

        def handle(channel: int, payload: memoryview) -> None:
            if channel == CHANNEL_CONTROL:
                self._on_control(link, hello, made.host, payload)
            else:
                self._on_frame(link, channel, payload)

        try:
            async with trio.open_nursery() as nursery:
                if made.dialled is not None:
                    nursery.start_soon(self._bulk.keep, made.dialled, number, self._connector.dial_bulk)
                await link.run(handle, self._after_frames)
                nursery.cancel_scope.cancel()
        finally:
            self._bulk.session_ended(node)
            ended = self._ended.pop(node)
            del self._links[node]
            self._session_ended(link)
            ended.set()

    def _bulk_ended(self, node: NodeId, *, broke_protocol: bool) -> None:
        self.calls.bulk_down(node)
        link = self._links.get(node)
        if broke_protocol and link is not None:
            link.broke_protocol = True
            link.close("protocol error on its bulk connection")

    def _session_ended(self, link: Link) -> None:
        if link.broke_protocol:
            self._known.penalise(link.node_id, self._clock.mono_ns(), "broke the protocol")
            self._connector.complain(link.node_id, f"with {link.node_id} ended: {link.closed_because}")
        peer = self._known.session_ended(link.node_id, link.last_received_ns)
        if peer is None:
            return
        if not link.broke_protocol:
            MEMBER_UNLINKED.log(node=peer.name, node_id=link.node_id, reason=str(link.closed_because))
        self.broadcast(CHANNEL_CONTROL, self._about_self())  # the others learn whom it is not linked with any more
        self.calls.peer_down(link.node_id)
        self.on_peer_down.emit(link.node_id)
        self._after_frames()

    def _on_frame(self, link: Link, channel: int, payload: memoryview) -> None:
        if not self.is_up(link.node_id):
            raise RemoteProtocolError("frames before the node said what it is")
        if channel in {CHANNEL_RPC, CHANNEL_BULK}:
            self.calls.on_frame(channel, link.node_id, payload)
        else:
            handler = self._handlers[channel]
            if handler is not None:
                handler(link.node_id, payload)

    # What nodes say of themselves and of others.

    def _about_self(self) -> bytes:
        about = self._known.about(self._metadata, self._setting.advertise or self._connector.listen_address)
        return self.ages.added_to(about).encode()

    def _on_control(self, link: Link, hello: Hello, host: str, payload: memoryview) -> None:
        if not payload:
            return  # a keepalive
        about, now_ns = About.decode(payload, host), self._clock.mono_ns()
        node = hello.node_id
        if not self.ages.fit(hello, about, now_ns):
            self._end_unfit(link)
            return
        for other in self.ages.contradicted_by(about):
            if other in self._links:
                self._links[other].close(OLDER_COPY)
        before = self._known.learn(hello, about, session=link.session, now_ns=now_ns)
        if about.address is not None:
            self._connector.dial(about.address, node=node)
        for other, other_address in about.peers.items():
            if other != self.node_id:
                self._connector.dial(other_address, node=other)
        if before is None or not before.up:
            MEMBER_LINKED.log(node=hello.name, node_id=node, session=link.session)
            self.broadcast(CHANNEL_CONTROL, self._about_self())
            self.on_peer_up.emit(node)
        elif (before.metadata, before.links) != (about.metadata, about.links):
            self.on_peer_changed.emit(node)

    def _end_unfit(self, link: Link) -> None:
        """One of the two stores is an older copy. If it is this one, no link is left."""
        self._known.penalise(link.node_id, self._clock.mono_ns(), OLDER_COPY)
        link.flush()  # what is known here tells the other end why
        for each in list(self._links.values()) if self.ages.is_own_old else [link]:
            each.close(OLDER_COPY)
