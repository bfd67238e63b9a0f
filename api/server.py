"""The composition root: makes the parts of every layer, starts them in order and stops them in reverse."""

import logging
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from operator import attrgetter
from typing import Any

import attrs
import trio

from jetraft import __version__
from jetraft.api.auth.assembly import (
    build_callouts,
    build_claims_service,
    build_lookups,
    build_registry,
    live_accounts,
    new_server_key,
)
from jetraft.api.auth.errors import RegistryError
from jetraft.api.auth.login import Logins
from jetraft.api.composition.ending import Ending
from jetraft.api.composition.planes import make_plane
from jetraft.api.exchange.setup import set_up
from jetraft.api.http_gateway.opening import gateway_listeners
from jetraft.api.listeners.assembly import client_listener, log_start, serve_tls
from jetraft.api.listeners.listener import ClientListener, ListenerParts, ListenError, bind, listen
from jetraft.api.listeners.start_files import StartFiles, StartFilesError
from jetraft.api.logs.logger import LogBridge, Logger, open_logger
from jetraft.api.logs.start_errors import StartError, clients_error, first_of, routes_error
from jetraft.api.logs.syslog import SyslogError
from jetraft.api.monitor.assembly import build_pages
from jetraft.api.monitor.listening import open_monitor
from jetraft.api.monitor.pages import Pages
from jetraft.api.options.feature_flags import flag_lines
from jetraft.api.options.interfaces import advertised, join_host_port
from jetraft.api.options.options import ClusterOptions, Options
from jetraft.api.options.tls import TlsError
from jetraft.api.plane.reasons import Reason
from jetraft.api.reload.certificates import (
    Certificates,
    ClientCertificates,
    ClientTls,
    MeshCertificates,
    PageCertificates,
)
from jetraft.api.reload.reloader import Reloader
from jetraft.api.sessions.client_info import ClientDirectory
from jetraft.api.sessions.memory import follow_memory
from jetraft.api.sessions.session import ServerIdentity, Sessions
from jetraft.api.startup.collector import tune_collector
from jetraft.api.startup.descriptors import DescriptorWatch, hold_sockets, raise_limit
from jetraft.api.startup.late_imports import load_the_rest
from jetraft.api.startup.start_signals import hold_back, let_through
from jetraft.api.system.assembly import SystemAccount
from jetraft.api.traces.latency import Latencies
from jetraft.api.traces.tracing import Tracer
from jetraft.api.turns.clock import SystemClock
from jetraft.api.turns.reactor import Reactor
from jetraft.api.turns.timers import TrioTimers
from jetraft.store.model.events import SERVER_READY, SERVER_STOPPED
from jetraft.store.model.versioning import SERVER_VERSION

SERVER_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
SERVER_ID_CHARS = 55  # as a public nkey of a server: N and 55 base-32 digits
DESCRIPTORS_LOOK_S = 5.0
SWITCH_S = 0.0005  # that a thread which decodes something large keeps the turn waiting, each time; Python's own is 5 ms
LEFT_OUT_LOOK_S = 10.0


def new_server_id() -> str:
    """Return a random server id in the form of a public nkey."""
    rng = random.SystemRandom()
    return "N" + "".join(rng.choice(SERVER_ID_ALPHABET) for _ in range(SERVER_ID_CHARS))


def serve(options: Options, reread: Callable[[], Options] | None, at_ready: Callable[[], None]) -> int:
    """Run a server in this thread until a signal stops it; returns 0 after a clean stop, 1 when it cannot start.

    `reread` makes the options again for a reload; None: there is no configuration file. `at_ready` is called when
    clients are served, and again when the modules that are loaded late are there.
    """
    try:
        say = open_logger(options)
    except SyslogError as error:
        sys.stderr.write(f"jetraft: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"jetraft: cannot open log file {options.log_file}: {error.strerror}\n")
        return 1
    level = logging.DEBUG if options.debug else logging.INFO
    bridge = LogBridge(say, SystemClock())
    logging.basicConfig(handlers=[bridge], level=level, force=True)
    return Server(options, say, bridge, reread, at_ready).run()


class Server:
    """One server process."""

    def __init__(
        self,
        options: Options,
        say: Logger,
        bridge: LogBridge,
        reread: Callable[[], Options] | None,
        at_ready: Callable[[], None],
    ) -> None:
        self.options = options
        self.bridge = bridge
        self.at_ready = at_ready
        self.reread = reread
        self.say = say
        self.clock = SystemClock()
        self.server_key = new_server_key(options)
        server_id = new_server_id() if self.server_key is None else self.server_key.server_id
        self.identity = ServerIdentity(
            server_id=server_id,
            server_name=options.server_name or server_id,
            cluster_name=options.cluster.name if options.cluster else "",
            domain=options.jetstream.domain if options.jetstream else "",
        )
        self.started_unix_ns, self.started_mono_ns = self.clock.unix_ns(), self.clock.mono_ns()
        self._files: StartFiles | None = None
        self._exit_status = 0
        self.mesh_tls: Any = None  # Tls, of a cluster that has it

    def run(self) -> int:
        """See serve."""
        self._descriptors = DescriptorWatch(raise_limit())
        self._banner()
        try:
            self._build()
            trio.run(self._main)
        except* (StartError, ListenError, StartFilesError, TlsError, RegistryError) as failed:
            self.say.fatal(str(first_of(failed)))
            self._exit_status = 1
        finally:
            if self._files is not None:
                self._files.remove()
        if self._exit_status == 0:
            hold_sockets()
            self.reactor.close_all(Reason.SERVER_SHUTDOWN)  # the last thing: who sees it may start the next server
            SERVER_STOPPED.log()
        self.say.close()
        return self._exit_status

    # Building.

    def _banner(self) -> None:
        say = self.say
        say.info("Starting jetraft")
        say.info(f"  Version:  {__version__} (compatible with nats-server {SERVER_VERSION})")
        if self.identity.cluster_name:
            say.info(f"  Cluster:  {self.identity.cluster_name}")
        say.info(f"  Name:     {self.identity.server_name}")
        say.info(f"  ID:       {self.identity.server_id}")
        for line in flag_lines(self.options.feature_flags):
            say.info(line)
        if self.options.config_file:
            say.info(f"Using configuration file: {self.options.config_file} ({self.options.config_digest})")

    def _build(self) -> None:
        """Bind the sockets, open the store, make the parts. Nothing runs after this, and connections are refused."""
        options = self.options
        self.client_socket = bind(options.host, options.port, clients_error(options))
        port = int(self.client_socket.getsockname()[1])
        self.sessions = Sessions(options, self.identity, self.clock, port=port, jetstream=options.jetstream is not None)
        self.registry = build_registry(options, self.say)
        self.accounts = live_accounts(options, self.registry)
        lookups = build_lookups(options, self.registry, self.clock, self.say)
        callouts = build_callouts(self.sessions, self.server_key, self.registry, lookups)
        self.logins = Logins(self.sessions, self.say, callouts=callouts, registry=self.registry, lookups=lookups)
        self.tracer = Tracer(self.sessions, self.registry)
        self.leaf = make_leaf(self)
        on_leaf_text = self.leaf.leafnodes.on_text if self.leaf else None
        self.plane = make_plane(options, self.sessions, self.logins, self.tracer, self.say, on_leaf_text)
        self.plane.set_domain(self.identity.domain.encode())
        on_closed = self.leaf.closing(self.sessions.on_closed) if self.leaf else self.sessions.on_closed
        self.reactor = Reactor(self.plane, self.clock, on_closed)
        self.timers = TrioTimers(self.clock, self.reactor.end_turn, self.reactor.within_turn)
        latencies = Latencies(self.plane, self.sessions, self.reactor.later, self.timers.call_at)
        self.shared = set_up(self.plane, options.sharing, self.identity.cluster_name, latencies)
        self.accounts.follow_imports(self.shared.borrows_api, self.shared.changed)
        call_at = self.timers.call_at
        self.parts = parts = ListenerParts(self.plane, self.sessions, self.reactor, self.clock, call_at, self.say)
        self.tls = serve_tls(options, parts, self.leaf)
        listener = client_listener(self.client_socket, parts, self.tls)
        self.listeners = [listener, *self._build_websocket(parts), *gateway_listeners(options, parts)]
        self.mesh = self._build_mesh(options.cluster) if options.cluster else None
        self.routes, self.limits = join_nodes(self)
        self.jetstream = self._build_jetstream()
        self.pages = self._build_pages()
        self.monitor = open_monitor(options, self.pages, parts)
        self.reloader = make_reloader(self)
        self.system = SystemAccount.build(
            pages=self.pages,
            sessions=self.sessions,
            reactor=self.reactor,
            accounts=self.accounts,
            reload_configuration=self.reloader.reload,
        )
        self.claims = build_claims_service(self.registry, self.logins, self.reactor, self.accounts, self.shared)

    def _build_pages(self) -> Pages:
        return build_pages(
            identity=self.identity,
            sessions=self.sessions,
            reactor=self.reactor,
            clock=self.clock,
            jetstream=self.jetstream,
            accounts=self.accounts,
            shared=self.shared,
            routes=self.routes,
            leafnodes=self.leaf and self.leaf.status(self.plane),
            started_unix_ns=self.started_unix_ns,
            started_mono_ns=self.started_mono_ns,
            events=self.bridge.events,
        )

    def _build_websocket(self, parts: ListenerParts) -> list[ClientListener]:
        web = self.options.websocket
        if web is None:
            return []
        from jetraft.api.websocket.assembly import listen_for_websocket, log_start  # noqa: PLC0415  only where it is served

        leafs = self.leaf.leafnodes if self.leaf and self.leaf.options.listens else None
        listener = listen_for_websocket(self.options, web, parts, leafs)
        log_start(web, self.sessions.web_port, self.say)
        return [listener]

    def _build_mesh(self, cluster: ClusterOptions) -> Any:
        from jetraft.api.config.cluster import warnings  # noqa: PLC0415
        from jetraft.raft.mesh.addresses import Address, parse_address, parse_route  # noqa: PLC0415
        from jetraft.raft.mesh.connection import Tls, TlsFiles, TlsFilesError  # noqa: PLC0415  servers that stand alone
        from jetraft.raft.mesh.peers import Mesh, MeshSetting  # noqa: PLC0415                   need none of the three

        for text in warnings(cluster):
            self.say.warning(text)
        urls = advertised(self.options.host, self.sessions.port, self.options.client_advertise)
        self.sessions.client_urls = urls
        try:
            if cluster.tls is not None:
                self.mesh_tls = Tls.load(TlsFiles(**attrs.asdict(cluster.tls)))
            routes = [parse_route(route) for route in cluster.routes]
            setting = MeshSetting(
                cluster=cluster.name,
                server_name=self.identity.server_name,
                listen=Address(cluster.host, max(cluster.port, 0)),
                routes=[route.address for route in routes],
                secrets=secrets_of(cluster, [route.secret for route in routes]),
                advertise=parse_address(cluster.advertise) if cluster.advertise else None,
                tls=self.mesh_tls,
                bulk_bytes_per_s=cluster.bulk_bytes_per_s,
                queue_bytes_max=cluster.max_waiting_bytes,
            )
        except TlsFilesError as error:
            raise StartError(str(error)) from error
        except ValueError as error:
            raise StartError(f"error parsing route: {error}") from error
        server_id = self.identity.server_id
        known = {"client_url": urls[0] if urls else "", "client_urls": list(urls)}  # older nodes read the first
        metadata = {**known, "version": __version__, "server_id": server_id, "jetstream": bool(self.options.jetstream)}
        reactor = self.reactor
        return Mesh(setting, clock=self.clock, metadata=metadata, after_frames=reactor.end_turn, sockets=reactor)

    def _build_jetstream(self) -> Any:
        options = self.options
        if options.jetstream is None:
            return None
        from jetraft.api.jetstream.assembly import NodePlace, open_jetstream  # noqa: PLC0415  only where it is enabled

        self.say.info("Starting JetStream")
        place = NodePlace(
            mesh=self.mesh,
            reactor=self.reactor,
            timers=self.timers,
            clock=self.clock,
            clients=client_directory(self),
        )
        return open_jetstream(options, self.identity, self.accounts, place, self.say)

    async def _main(self) -> None:
        options, say = self.options, self.say
        with trio.open_signal_receiver(
            signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP
        ) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_with, signals, nursery.cancel_scope)
                nursery.start_soon(self.reactor.run_kicks)
                nursery.start_soon(self.timers.run)
                nursery.start_soon(follow_memory, self.plane, self.sessions, self.clock)
                if self.monitor is not None:
                    address = join_host_port(options.http_host or options.host, self.monitor.sock.getsockname()[1])
                    say.info(f"Starting {self.monitor.scheme} monitor on {address}")
                    nursery.start_soon(self.monitor.run)
                if self.mesh is not None:
                    await self._start_mesh(nursery)
                    assert self.routes is not None
                    nursery.start_soon(self.routes.run)
                    nursery.start_soon(self.limits.run)
                    nursery.start_soon(serve_others, self)
                # Before JetStream: it may have to repair a damaged meta log over the mesh.
                nursery.start_soon(self.reactor.run_sockets, self.timers.next_deadline_ns)
                if self.jetstream is not None:
                    from jetraft.api.jetstream.assembly import run_jetstream  # noqa: PLC0415  as above

                    await nursery.start(run_jetstream, self.jetstream)
                    nursery.start_soon(self._watch_descriptors)
                    nursery.start_soon(tell_when_cut_off, self)
                if self.system is not None:
                    await nursery.start(self.system.run)
                if self.leaf is not None:
                    await nursery.start(self.leaf.run, self.plane, self.reactor, self.mesh, self.jetstream)
                nursery.start_soon(self._housekeeping)
                nursery.start_soon(self._tell_left_out)
                nursery.start_soon(self.logins.run, self.plane, self.reactor)
                if self.claims is not None:
                    nursery.start_soon(self.claims.run)
                tune_collector()
                sys.setswitchinterval(SWITCH_S)
                for listener in reversed(self.listeners):  # all is served by now; the clients' own is the very last
                    listen(listener.sock, clients_error(options) if listener is self.listeners[0] else "{}")
                    nursery.start_soon(listener.run)
                say.info(f"Listening for client connections on {join_host_port(options.host, self.sessions.port)}")
                log_start(options, say)
                self.write_files()
                SERVER_READY.log()
                self.at_ready()
                let_through()
                if self.jetstream is not None:
                    nursery.start_soon(load_the_rest, self.at_ready)
            hold_back()
        if self.jetstream is not None:
            self.jetstream.stop()

    async def _end_with(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        ending = Ending(
            options=self.options,
            say=self.say,
            plane=self.plane,
            reactor=self.reactor,
            sessions=self.sessions,
            listeners=self.listeners,
            jetstream=self.jetstream,
            reload=self.reloader.reload_logged,
            events=self.system.events if self.system is not None else None,
        )
        await ending.run(signals)
        scope.cancel()

    def write_files(self) -> None:
        """Write the process id and the ports where the options ask for it."""
        options, pages = self.sessions.options, self.monitor
        routes, web = self.mesh.listen_address if self.mesh is not None else None, options.websocket
        host = options.http_host or options.host
        if self._files is not None:
            self._files.remove()
        self._files = StartFiles(pid_file=options.pid_file, ports_file_dir=options.ports_file_dir)
        self._files.write(
            {
                "nats": ("nats", self.options.host, self.sessions.port),
                **({"websocket": (web.scheme, web.host, self.sessions.web_port)} if web is not None else {}),
                **({"monitoring": (pages.scheme, host, pages.sock.getsockname()[1])} if pages is not None else {}),
                **({"cluster": ("nats", routes.host, routes.port)} if routes is not None else {}),
            }
        )

    async def _tell_left_out(self) -> None:
        self.bridge.follow(self.jetstream)
        while True:
            await trio.sleep(LEFT_OUT_LOOK_S)
            self.bridge.tell_left_out()

    async def _watch_descriptors(self) -> None:
        while True:
            warning = self._descriptors.note(self.jetstream.replicas)
            if warning is not None:
                self.say.warning(warning)
            await trio.sleep(DESCRIPTORS_LOOK_S)

    async def _housekeeping(self) -> None:
        read = attrgetter("ping_interval_ns", "ping_max", "write_deadline_ns", "leaf_write_deadline_ns")
        await self.reactor.run_housekeeping(lambda: read(self.sessions.options))

    async def _start_mesh(self, nursery: trio.Nursery) -> None:
        assert self.mesh is not None
        try:
            await nursery.start(self.mesh.run)
        except* OSError as failed:
            cluster = self.options.cluster
            assert cluster is not None
            error = first_of(failed)
            raise StartError(routes_error(cluster.host, cluster.port, error)) from failed
        address = self.mesh.listen_address
        assert address is not None
        if self.identity.cluster_name:
            self.say.info(f"Cluster name is {self.identity.cluster_name}")
        self.say.info(f"Listening for route connections on {join_host_port(address.host, address.port)}")


def secrets_of(cluster: ClusterOptions, of_routes: Sequence[bytes]) -> tuple[bytes, ...]:
    """The secret that peers prove: what is configured, or else the first secret in the URL of a route."""
    first = cluster.secret.encode() or next((secret for secret in of_routes if secret), b"")
    return (first, *(secret.encode() for secret in cluster.old_secrets))


def client_directory(server: Server) -> ClientDirectory:
    """The sources of requests."""
    return ClientDirectory(
        sessions=server.sessions,
        plane=server.plane,
        identity=server.identity,
        sharing=server.shared.of,
        leaf_session_of=server.leaf.status(server.plane).session_of if server.leaf is not None else None,
    )


def join_nodes(server: Server) -> tuple[Any, Any]:
    """The routes of a member of a cluster, and what makes limits of accounts hold for that; None for another server."""
    if server.mesh is None:
        return None, None
    from jetraft.api.auth.cluster_limits import ClusterLimits  # noqa: PLC0415  servers that stand alone have none
    from jetraft.api.routes import Routes  # noqa: PLC0415

    assert server.options.cluster is not None
    routes = Routes.of(server.options.cluster, server.mesh, server.plane, server.sessions, server.reactor)
    routes.start()
    limits = ClusterLimits(
        mesh=server.mesh,
        plane=server.plane,
        reactor=server.reactor,
        sessions=server.sessions,
        shared=server.shared,
        leafs=server.leaf and server.leaf.leafnodes,
        are_leafs_limited=server.registry is not None,
    )
    limits.start()
    if server.leaf is not None:
        server.leaf.leafnodes.entry.count_elsewhere(limits.leafs_elsewhere)
    return routes, limits


def make_leaf(server: Server) -> Any:
    """The parts for leaf nodes, or None without the block."""
    if server.options.leafnodes is None:
        return None
    from jetraft.api.leafnodes.assembly import LeafParts  # noqa: PLC0415  only servers with leaf nodes pay for it

    return LeafParts.make(server.options, server.identity, server.clock, server.say, server.logins)


async def tell_when_cut_off(server: Server) -> None:
    """Have clients reconnect elsewhere while this node reaches no majority, where that is configured."""
    if server.mesh is None:
        return
    from jetraft.api.sessions.cut_off import CutOffClients  # noqa: PLC0415  only members of a cluster

    def is_wanted() -> bool:
        cluster = server.sessions.options.cluster
        return cluster is not None and cluster.reconnect_when_cut_off

    await CutOffClients(
        reach=server.jetstream.node,
        is_wanted=is_wanted,
        sessions=server.sessions,
        plane=server.plane,
        reactor=server.reactor,
        clock=server.clock,
        say=server.say,
    ).run()


async def serve_others(server: Server) -> None:
    """Have other nodes carry out the JetStream requests of clients, where this one has no JetStream."""
    if server.jetstream is not None or server.mesh is None:
        return
    from jetraft.api.jetstream.without import JetStreamOfOthers  # noqa: PLC0415  only nodes of this kind

    clients = client_directory(server)
    await JetStreamOfOthers.make(server.mesh, server.reactor, server.accounts, clients, server.clock).run()


def make_reloader(server: Server) -> Reloader:
    """The parts that follow a new configuration."""
    return Reloader(
        reread=server.reread,
        say=server.say,
        sessions=server.sessions,
        logins=server.logins,
        plane=server.plane,
        reactor=server.reactor,
        tracer=server.tracer,
        accounts=server.accounts,
        shared=server.shared,
        write_files=server.write_files,
        certificates=certificates_of(server),
        leaf=server.leaf,
        routes=server.routes,
        jetstream=server.jetstream,
    )


def certificates_of(server: Server) -> list[Certificates]:
    """Those of each listener with TLS, which a reload reads again."""
    found: list[Certificates] = []
    if server.options.config_file:
        found.append(ClientTls(server.listeners[0], server.parts, server.tls))
    web = server.listeners[-1].tls if server.options.websocket is not None else None
    if web is not None:
        found.append(ClientCertificates(web, lambda new: new.websocket.at_once if new.websocket else None))
    if server.leaf is not None and server.leaf.leafnodes.tls is not None:
        found.append(
            ClientCertificates(server.leaf.leafnodes.tls, lambda new: new.leafnodes.tls if new.leafnodes else None)
        )
    if server.monitor is not None and server.monitor.tls is not None:
        found.append(PageCertificates(server.monitor))
    if server.mesh_tls is not None:
        found.append(MeshCertificates(server.mesh_tls))
    return found
