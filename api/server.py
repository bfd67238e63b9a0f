"""The composition root: makes every layer, starts it in order, stops it in reverse. The only place that knows them all.

`serve(options)` is one process with one trio thread; it returns the exit status.
"""

import gc
import logging
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from jetraft import __version__
from jetraft.api.config.options import ClusterOptions, Options
from jetraft.api.descriptors import DescriptorWatch, raise_limit
from jetraft.api.ending import Ending
from jetraft.api.listener import ClientListener, ListenError, listen
from jetraft.api.logger import LogBridge, Logger, open_logger
from jetraft.api.monitor.http import MonitorServer
from jetraft.api.monitor.pages import Pages
from jetraft.api.reactor import Reactor
from jetraft.api.routes import Routes
from jetraft.api.routing._plane import Plane
from jetraft.api.session import API_LEVEL, COMPATIBLE_VERSION, ServerIdentity, Sessions
from jetraft.api.start_files import StartFiles, StartFilesError
from jetraft.api.timers import Timers

SERVER_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
SERVER_ID_CHARS = 55  # as a public nkey of a server: N and 55 base-32 digits
DESCRIPTORS_LOOK_S = 5.0
GC_YOUNG_OBJECTS = 10_000  # a batch makes hundreds and drops them: with Python's 700 each second turn has a collection


BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the other one stands still in a suspended laptop


class SystemClock:
    """The machine's clocks."""

    # No methods of its own: each turn asks half a dozen times.
    mono_ns = staticmethod(time.monotonic_ns)
    unix_ns = staticmethod(time.time_ns)

    @staticmethod
    def elapsed_ns() -> int:
        """Nanoseconds that passed since some moment, also those in which the machine slept."""
        return time.clock_gettime_ns(BOOT_CLOCK)


def new_server_id() -> str:
    """A fresh server id in the form of a public nkey."""
    rng = random.SystemRandom()
    return "N" + "".join(rng.choice(SERVER_ID_ALPHABET) for _ in range(SERVER_ID_CHARS))


def serve(options: Options) -> int:
    """Run a server until a signal stops it; 0 after a clean stop, 1 when it could not start."""
    try:
        say = open_logger(options)
    except OSError as error:
        sys.stderr.write(f"jetraft: cannot open log file {options.log_file}: {error.strerror}\n")
        return 1
    level = logging.DEBUG if options.debug else logging.INFO
    logging.basicConfig(handlers=[LogBridge(say)], level=level, force=True)
    return Server(options, say).run()


RESTORE: Final = (
    "; `jetraft verify` lists the damage: restore the store from a backup, or move it away to start with an empty one"
)
CIPHER_TITLES: Final = {"aes": "AES-GCM", "chachapoly": "ChaCha20-Poly1305"}


class StartError(Exception):
    """The server cannot start; the text is the one line that says why."""


def settle_collector() -> None:
    """Take what the start has made out of the garbage collector's sight, and have it look less often.

    Modules, classes and tables stay for good; a full collection walks over all of them, 12 ms in the middle of a turn.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, *gc.get_threshold()[1:])


def first_of(failed: BaseException) -> BaseException:
    """The first error that is no group of errors: nurseries wrap what their tasks raise."""
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    return failed


def cannot_start(error: BaseException) -> str:
    """The line that says why there is no JetStream, and where it is damage also what an operator does."""
    from jetraft.cluster.meta.founding import BadRecordError  # noqa: PLC0415  only where it is enabled
    from jetraft.store.port import StoreCorrupt, StoreMisplaced  # noqa: PLC0415

    is_damage = isinstance(error, (StoreCorrupt, StoreMisplaced, BadRecordError)) and "restore" not in str(error)
    return f"Can't start JetStream: {error}{RESTORE if is_damage else ''}"


class Server:
    """One server process."""

    def __init__(self, options: Options, say: Logger) -> None:
        self.options = options
        self.say = say
        self.clock = SystemClock()
        server_id = new_server_id()
        self.identity = ServerIdentity(
            server_id=server_id,
            server_name=options.server_name or server_id,
            cluster_name=options.cluster.name if options.cluster else "",
        )
        self.started_unix_ns, self.started_mono_ns = self.clock.unix_ns(), self.clock.mono_ns()
        self._files: StartFiles | None = None
        self._exit_status = 0

    def run(self) -> int:
        """See serve."""
        self._descriptors = DescriptorWatch(raise_limit())
        self._banner()
        try:
            self._build()
            trio.run(self._main)
        except* (StartError, ListenError, StartFilesError) as failed:
            self.say.fatal(str(first_of(failed)))
            self._exit_status = 1
        finally:
            if self._files is not None:
                self._files.remove()
        if self._exit_status == 0:
            self.say.info("Server Exiting..")
        return self._exit_status

    # Building.

    def _banner(self) -> None:
        say = self.say
        say.info("Starting jetraft")
        say.info(f"  Version:  {__version__} (compatible with nats-server {COMPATIBLE_VERSION})")
        if self.identity.cluster_name:
            say.info(f"  Cluster:  {self.identity.cluster_name}")
        say.info(f"  Name:     {self.identity.server_name}")
        say.info(f"  ID:       {self.identity.server_id}")
        if self.options.config_file:
            say.info(f"Using configuration file: {self.options.config_file} ({self.options.config_digest})")
        if self.options.trace:
            say.warning("Trace was asked for, and is not served: the protocol is not logged")

    def _build(self) -> None:
        """Bind the sockets, open the store, make the parts. Nothing runs yet."""
        options = self.options
        self.client_socket = listen(options.host, options.port)
        port = int(self.client_socket.getsockname()[1])
        self.sessions = Sessions(options, self.identity, port=port, jetstream=options.jetstream is not None)
        self.plane = Plane(
            max_payload=options.max_payload_bytes,
            max_control_line=options.max_control_line_bytes,
            max_pending=options.max_pending_bytes,
            max_subscriptions=options.max_subscriptions,
            connect_handler=self.sessions.on_connect,
            first_ping_handler=self.sessions.on_first_ping,
        )
        self.reactor = Reactor(self.plane, self.clock, self._on_closed, self._send_route)
        self.timers = Timers(self.clock, self.reactor.end_turn, self.reactor.within_turn)
        self.reactor.next_deadline_ns = self.timers.next_deadline_ns
        self.listener = ClientListener(
            self.client_socket, self.plane, self.reactor, self.sessions, self.clock, self.say.debug
        )
        self.mesh = self._build_mesh(options.cluster) if options.cluster else None
        self.routes: Routes | None = None
        if self.mesh is not None:
            advertise = not (options.cluster and options.cluster.no_advertise)
            self.routes = Routes(self.mesh, self.plane, self.sessions, self.reactor, advertise=advertise)
            self.routes.start()
            self.mesh.after_frames = self.reactor.end_turn
            self.mesh.sockets = self.reactor
            self.reactor.after_send = self.mesh.flush
        self.jetstream = self._build_jetstream()
        self.monitor = self._build_monitor()

    def _on_closed(self, cid: int, reason: int, counters: dict[str, Any] | None) -> None:
        self.listener.closed(cid, reason, counters)

    def _send_route(self, route: int, records: bytes) -> None:
        if self.routes is not None:
            self.routes.send(route, records)

    def _advertised(self) -> str:
        """The address that clients can use to reach this server from elsewhere."""
        if self.options.client_advertise:
            return self.options.client_advertise
        host = self.options.host
        if host in ("0.0.0.0", "::"):  # noqa: S104  a comparison
            with suppress(OSError):
                host = socket.gethostbyname(socket.gethostname())
        return f"{host}:{self.sessions.port}"

    def _build_mesh(self, cluster: ClusterOptions) -> Any:
        from jetraft.raft.connection import Tls, TlsFiles, TlsFilesError  # noqa: PLC0415  servers that stand alone
        from jetraft.raft.peers import Mesh, MeshSetting  # noqa: PLC0415                   need none of the three
        from jetraft.raft.routes import Address, parse_address, parse_route  # noqa: PLC0415

        self.sessions.client_url = self._advertised()
        try:
            routes = [parse_route(route) for route in cluster.routes]
            setting = MeshSetting(
                cluster=cluster.name,
                server_name=self.identity.server_name,
                listen=Address(cluster.host, max(cluster.port, 0)),
                routes=[route.address for route in routes],
                secret=cluster.secret.encode() or next((route.secret for route in routes if route.secret), b""),
                advertise=parse_address(cluster.advertise) if cluster.advertise else None,
                tls=Tls.load(TlsFiles(**attrs.asdict(cluster.tls))) if cluster.tls is not None else None,
                bulk_bytes_per_s=cluster.bulk_bytes_per_s,
            )
        except TlsFilesError as error:
            raise StartError(str(error)) from error
        except ValueError as error:
            raise StartError(f"error parsing route: {error}") from error
        server_id = self.identity.server_id
        metadata = {"client_url": self.sessions.client_url, "version": __version__, "server_id": server_id}
        return Mesh(setting, clock=self.clock, metadata=metadata)

    def _build_jetstream(self) -> Any:
        options = self.options.jetstream
        if options is None:
            return None
        from jetraft.api.jetstream.node import (  # noqa: PLC0415  only where it is enabled
            JetStreamNode,
            JetStreamSetting,
            secrets_of,
            store_limits_of,
        )
        from jetraft.cluster.meta.bootstrap import expected_nodes  # noqa: PLC0415
        from jetraft.cluster.meta.founding import BadRecordError  # noqa: PLC0415
        from jetraft.raft.engines import EngineUnavailableError  # noqa: PLC0415
        from jetraft.store.model.steady import SteadyClock  # noqa: PLC0415
        from jetraft.store.port import StoreError  # noqa: PLC0415

        base = Path(options.store_dir) if options.store_dir else Path(tempfile.gettempdir()) / "nats"
        setting = JetStreamSetting(
            store_dir=base / "jetstream",
            server_name=self.identity.server_name,
            named=bool(self.options.server_name),
            cluster_name=self.identity.cluster_name or None,
            expected_nodes=expected_nodes(len(set(self.options.cluster.routes)) if self.options.cluster else 0),
            cache_bytes_max=options.cache_bytes_max,
            raft_engine=options.raft_engine,
            store_limits=store_limits_of(options),
            tags=self.options.server_tags,
            unique_tag=options.unique_tag,
            secrets=secrets_of(options),
            scrub=options.scrub,
        )
        self.say.info("Starting JetStream")
        try:
            steady = SteadyClock(self.clock, elapsed_ns=self.clock.elapsed_ns)
            node = JetStreamNode(setting, mesh=self.mesh, reactor=self.reactor, timers=self.timers, clock=steady)
        except (EngineUnavailableError, BadRecordError, StoreError, OSError) as error:
            raise StartError(cannot_start(error)) from error
        for line in self._jetstream_banner(setting.store_dir, node.capacity):
            self.say.info(line)
        return node

    def _jetstream_banner(self, store_dir: Path, capacity: Any) -> list[str]:
        options = self.options.jetstream
        assert options is not None
        rule = "-" * 43
        return [
            "---------------- JETSTREAM ----------------",
            f"  Max Memory:      {capacity['memory'] / 2**30:.2f} GB",
            f"  Max Storage:     {capacity['file'] / 2**30:.2f} GB",
            f'  Store Directory: "{store_dir}"',
            *([f"  Encryption:      {CIPHER_TITLES[options.cipher]}"] if options.key else []),
            f"  API Level:       {API_LEVEL}",
            rule,
        ]

    def _build_monitor(self) -> MonitorServer | None:
        options = self.options
        if not options.http_port:
            return None
        sock = listen(options.http_host or options.host, options.http_port)
        pages = Pages(
            self.identity,
            self.sessions,
            self.reactor,
            self.clock,
            self.jetstream,
            self.jetstream.statistics if self.jetstream is not None else dict,
            self.started_unix_ns,
            self.started_mono_ns,
        )
        return MonitorServer(sock, pages.table(), options.http_base_path)

    # Running.

    async def _main(self) -> None:
        options, say = self.options, self.say
        with trio.open_signal_receiver(
            signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP
        ) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_with, signals, nursery.cancel_scope)
                nursery.start_soon(self.reactor.run_kicks)
                nursery.start_soon(self.timers.run)
                if self.monitor is not None:
                    address = self.monitor.sock.getsockname()
                    say.info(f"Starting http monitor on {address[0]}:{address[1]}")
                    nursery.start_soon(self.monitor.run)
                if self.mesh is not None:
                    await self._start_mesh(nursery)
                    assert self.routes is not None
                    nursery.start_soon(self.routes.run)
                nursery.start_soon(self.reactor.run_sockets)  # a damaged meta log is repaired over the mesh first
                if self.jetstream is not None:
                    await nursery.start(self._run_jetstream)
                    nursery.start_soon(self._watch_descriptors)
                nursery.start_soon(self.listener.run)
                nursery.start_soon(self._housekeeping)
                if self.sessions.auth_required:
                    nursery.start_soon(self.listener.run_auth_timeouts)
                say.info(f"Listening for client connections on {options.host}:{self.sessions.port}")
                self._write_files()
                settle_collector()
                say.info("Server is ready")
        if self.jetstream is not None:
            self.jetstream.stop()

    async def _run_jetstream(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Raises StartError for what an operator has to look at, in one line."""
        from jetraft.cluster.meta.founding import BadRecordError  # noqa: PLC0415  only where it is enabled
        from jetraft.store.port import StoreError  # noqa: PLC0415

        assert self.jetstream is not None
        is_started = False

        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.jetstream.run)
                is_started = True
                task_status.started()
        except* (StoreError, BadRecordError, OSError) as failed:
            error = first_of(failed)
            if is_started and isinstance(error, OSError):
                raise  # no reason that was foreseen
            raise StartError(cannot_start(error)) from failed

    async def _end_with(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        ending = Ending(
            options=self.options,
            say=self.say,
            plane=self.plane,
            reactor=self.reactor,
            sessions=self.sessions,
            listener=self.listener,
            jetstream=self.jetstream,
        )
        await ending.run(signals)
        scope.cancel()

    def _write_files(self) -> None:
        monitor = self.monitor.sock.getsockname() if self.monitor is not None else None
        routes = self.mesh.listen_address if self.mesh is not None else None
        self._files = StartFiles(pid_file=self.options.pid_file, ports_file_dir=self.options.ports_file_dir)
        self._files.write(
            {
                "nats": ("nats", self.options.host, self.sessions.port),
                **({"monitoring": ("http", monitor[0], monitor[1])} if monitor is not None else {}),
                **({"cluster": ("nats", routes.host, routes.port)} if routes is not None else {}),
            }
        )

    async def _watch_descriptors(self) -> None:
        while True:
            warning = self._descriptors.note(self.jetstream.replicas)
            if warning is not None:
                self.say.warning(warning)
            await trio.sleep(DESCRIPTORS_LOOK_S)

    async def _housekeeping(self) -> None:
        options = self.options
        await self.reactor.run_housekeeping(
            ping_interval_ns=options.ping_interval_ns,
            ping_max=options.ping_max,
            write_deadline_ns=options.write_deadline_ns,
        )

    async def _start_mesh(self, nursery: trio.Nursery) -> None:
        assert self.mesh is not None
        try:
            await nursery.start(self.mesh.run)
        except* OSError as failed:
            cluster = self.options.cluster
            assert cluster is not None
            error = first_of(failed)
            raise StartError(f"Error listening on router port: {cluster.host}:{cluster.port} - {error}") from failed
        address = self.mesh.listen_address
        assert address is not None
        if self.identity.cluster_name:
            self.say.info(f"Cluster name is {self.identity.cluster_name}")
        self.say.info(f"Listening for route connections on {address.host}:{address.port}")
