"""Makes the parts for leaf nodes from the options of the server, and runs them."""

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs
import trio

from jetraft.api.auth.login import Logins
from jetraft.api.leafnodes.entry import LeafEntry
from jetraft.api.leafnodes.handshake import OwnNames
from jetraft.api.leafnodes.leafnodes import Leafnodes
from jetraft.api.leafnodes.listener import LeafListener
from jetraft.api.leafnodes.names import DomainNames
from jetraft.api.leafnodes.remotes import Remotes
from jetraft.api.leafnodes.secure import AcceptedLinks, HubTls, LeafTls
from jetraft.api.leafnodes.status import LeafPages
from jetraft.api.listeners.assembly import serve_handshakes
from jetraft.api.listeners.listener import ListenerParts, bind, listen
from jetraft.api.logs.logger import Logger
from jetraft.api.options.interfaces import WILDCARDS, advertised, join_host_port, split_host_port
from jetraft.api.options.leafnodes import LeafOptions
from jetraft.api.options.options import Options
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.arrivals import ArrivalPlaces
from jetraft.api.sessions.session import ServerIdentity
from jetraft.api.tls.facts import info_fields
from jetraft.api.turns.reactor import ClosedHandler, Reactor
from jetraft.store.model.clock import Clock

if TYPE_CHECKING:
    from jetraft.api.leafnodes.migration import LostHubs
    from jetraft.api.leafnodes.web import HubWeb
    from jetraft.api.plane._secure import SecurePlane
    from jetraft.api.plane._web import WebPlane


@attrs.define(eq=False)
class LeafParts:
    """The parts of a server with a `leafnodes` block."""

    options: LeafOptions
    server_options: Options
    leafnodes: Leafnodes
    say: Logger
    arrivals: ArrivalPlaces
    sock: socket.socket | None = None
    port: int = 0
    remotes: Remotes | None = None  # while it runs

    @classmethod
    def make(
        cls, options: Options, identity: ServerIdentity, clock: Clock, say: Logger, logins: Logins
    ) -> "LeafParts | None":
        """The parts, before there is a plane; None without the block. Raises ListenError."""
        leaf = options.leafnodes
        if leaf is None:
            return None
        itself = OwnNames(
            server_id=identity.server_id,
            server_name=identity.server_name,
            cluster=identity.cluster_name,
            domain=identity.domain,
            jetstream=options.jetstream is not None,
            max_payload=options.max_payload_bytes,
            git_commit=identity.git_commit,
            runtime=identity.runtime,
        )
        leafnodes = Leafnodes(
            leaf,
            itself,
            clock,
            say,
            LeafEntry(
                leaf,
                identity.cluster_name,
                lambda: logins.authenticator,
                logins.lookups,
                logins.callouts,
                options.proxies,
                logins.basis,
            ),
            logins.checks,
            logins.verifications,
            DomainNames(
                identity.domain,
                lambda account: options.jetstream is not None and account != options.system_account,
            ),
            logins.sessions.arrivals.leave,
        )
        logins.on_account_changed.connect(leafnodes.account_changed)
        parts = cls(leaf, options, leafnodes, say, logins.sessions.arrivals)
        if leaf.listens:
            parts.sock = bind(leaf.host, leaf.port)
            parts.port = int(parts.sock.getsockname()[1])
        leafnodes.listener = parts.told()
        return parts

    def told(self) -> dict[str, Any]:
        """The fields of INFO about the listener."""
        options = self.options
        host, port = split_host_port(options.advertise, options.host, self.port)
        urls = () if options.no_advertise or not self.port else advertised(options.host, self.port, options.advertise)
        tls = info_fields(options.tls, None) if options.tls is not None else {}
        known = join_host_port(host, port) if host not in WILDCARDS else next(iter(urls), "")
        return {"host": host, "port": port, "ip": known, "urls": list(urls), "tls": tls}

    def closing(self, otherwise: ClosedHandler) -> ClosedHandler:
        """The callback for each connection that ends; those of clients are handed on."""

        def on_closed(cid: int, reason: int, counters: dict[str, Any] | None) -> None:
            if not self.leafnodes.on_closed(cid, reason):
                otherwise(cid, reason, counters)

        return on_closed

    def status(self, plane: Plane) -> LeafPages:
        """The facts for the monitoring pages."""
        return LeafPages(self.leafnodes, plane, self.port)

    def serve_tls(self, parts: ListenerParts) -> None:
        """Serve handshakes of the listener, where its block asks for TLS. Raises TlsError with one line."""
        options = self.options.tls
        if self.sock is None or options is None:
            return
        links = AcceptedLinks(self.leafnodes, self.options, self.port)
        self.leafnodes.tls, _ = serve_handshakes(options, parts, links, LeafTls)

    async def run(
        self,
        plane: Plane,
        reactor: Reactor,
        mesh: Any,
        jetstream: Any,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept leaf nodes and connect to hubs until cancelled."""
        self.leafnodes.attach(plane, reactor, mesh)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.leafnodes.run)
            if self.sock is not None:
                listen(self.sock)  # in this turn: clients connect at "Server is ready", which may follow
                self.say.info(f"Listening for leafnode connections on {join_host_port(self.options.host, self.port)}")
                nursery.start_soon(LeafListener(self.sock, self.leafnodes, reactor, self.arrivals).run)
            secure = cast("SecurePlane", plane)
            pins = self.options.tls.pinned_certs if self.options.tls is not None else frozenset[str]()
            hub_tls = HubTls(secure, reactor, self.say, pins, self.leafnodes.hubs.on_secure)
            self.remotes = Remotes(self.leafnodes, reactor, self.say, hub_tls, self._hub_web(plane, reactor))
            migrates = any(remote.cluster_migrate for remote in self.options.remotes)
            if migrates and jetstream is not None and mesh is not None:
                nursery.start_soon(self._lost_hubs(self.remotes, jetstream.retreat).run)
            nursery.start_soon(self.remotes.run)
            task_status.started()

    def _lost_hubs(self, remotes: Remotes, retreat: Callable[[frozenset[str]], None]) -> "LostHubs":
        """The part that knows which accounts have lost their hub."""
        from jetraft.api.leafnodes.migration import LostHubs  # noqa: PLC0415  few servers want it

        leafnodes = self.leafnodes
        remotes.lost = LostHubs(
            clock=leafnodes.clock,
            remotes=lambda: leafnodes.options.remotes,
            links=leafnodes.links.values,
            tell=retreat,
        )
        return remotes.lost

    def follow(self, options: LeafOptions) -> None:
        """Leave hubs and connect to others, as another configuration says."""
        self.options = self.leafnodes.options = options
        wishes = {remote.key: remote.wish for remote in options.remotes}
        for link in self.leafnodes.links.values():
            wish = options.compression if link.remote is None else wishes.get(link.remote.key)
            if link.wish is not None and wish is not None and link.wish != wish:
                self.leafnodes.plane.close(link.cid, Reason.CLIENT_CLOSED)  # it comes back, and both ends agree again
        if self.remotes is not None:
            self.remotes.follow(options.remotes)

    def _hub_web(self, plane: Plane, reactor: Reactor) -> "HubWeb | None":
        """The part that upgrades connections to hubs, where a hub is reached over WebSocket."""
        if not self.options.uses_websocket:
            return None
        from jetraft.api.leafnodes.web import HubWeb  # noqa: PLC0415  only servers with such a hub load h11 and zlib
        from jetraft.api.websocket.assembly import common_of  # noqa: PLC0415

        share = partial(common_of, self.server_options, 0)
        return HubWeb(cast("WebPlane", plane), reactor, self.say, share)
