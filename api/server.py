"""The composition root: makes every layer, starts it in order, stops it in reverse. The only place that knows them all.

`serve(options)` is one process with one trio thread; it returns the exit status.
"""

import json
import logging
import os
import random
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from jetraft import __version__
from jetraft.api.config.options import ClusterOptions, Options
from jetraft.api.listener import AddressInUseError, ClientListener, listen
from jetraft.api.logger import Logger, open_logger
from jetraft.api.monitor.http import MonitorServer
from jetraft.api.monitor.pages import Pages
from jetraft.api.reactor import Reactor
from jetraft.api.reasons import Reason
from jetraft.api.routes import Routes
from jetraft.api.routing._plane import Plane
from jetraft.api.session import API_LEVEL, COMPATIBLE_VERSION, ServerIdentity, Sessions
from jetraft.api.timers import Timers
from jetraft.store.model.clock import NS_PER_S

SERVER_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
SERVER_ID_CHARS = 55  # as a public nkey of a server: N and 55 base-32 digits
STEP_DOWN_S = 1.0  # how long a stopping leader waits for its groups to have another one
STEP_DOWN_POLL_S = 0.01
LAME_DUCK_STEPS = 20


class SystemClock:
    """The machine's clocks."""

    def mono_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return time.time_ns()


class LogBridge(logging.Handler):
    """Carries the lines of the lower layers, which know the standard logging only, into the server's log."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._say = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line at the level that comes nearest."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        if record.levelno >= logging.ERROR:
            self._say.error(text)
        elif record.levelno >= logging.WARNING:
            self._say.warning(text)
        elif record.levelno >= logging.INFO:
            self._say.info(text)
        else:
            self._say.debug(text)


def new_server_id() -> str:
    """A fresh server id in the form of a public nkey."""
    rng = random.SystemRandom()
    return "N" + "".join(rng.choice(SERVER_ID_ALPHABET) for _ in range(SERVER_ID_CHARS))


def serve(options: Options) -> int:
    """Run a server until a signal stops it; 0 after a clean stop, 1 when it could not start."""
    try:
        say = open_logger(
            path=options.log_file, with_time=options.logtime, utc=False, debug=options.debug, trace=options.trace
        )
    except OSError as error:
        sys.stderr.write(f"jetraft: cannot open log file {options.log_file}: {error.strerror}\n")
        return 1
    level = logging.DEBUG if options.debug else logging.INFO
    logging.basicConfig(handlers=[LogBridge(say)], level=level, force=True)
    return Server(options, say).run()


CIPHER_TITLES: Final = {"aes": "AES-GCM", "chachapoly": "ChaCha20-Poly1305"}


class StartError(Exception):
    """The server cannot start; the text is the one line that says why."""


def first_of(failed: BaseException) -> BaseException:
    """The first error that is no group of errors: nurseries wrap what their tasks raise."""
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    return failed


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
            domain=options.jetstream.domain if options.jetstream else "",
        )
        self.started_unix_ns, self.started_mono_ns = self.clock.unix_ns(), self.clock.mono_ns()
        self._stopping = trio.Event()
        self._ports_file: Path | None = None
        self._exit_status = 0

    def run(self) -> int:
        """See serve."""
        self._banner()
        try:
            self._build()
            trio.run(self._main)
        except* (StartError, AddressInUseError) as failed:
            error = first_of(failed)
            self.say.fatal(str(error.strerror if isinstance(error, AddressInUseError) else error))
            self._exit_status = 1
        finally:
            self._remove_files()
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
        from jetraft.raft.engines import EngineUnavailableError  # noqa: PLC0415
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
            node = JetStreamNode(setting, mesh=self.mesh, reactor=self.reactor, timers=self.timers, clock=self.clock)
        except (EngineUnavailableError, StoreError, OSError) as error:
            raise StartError(f"Can't start JetStream: {error}") from error
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
                nursery.start_soon(self._watch_signals, signals, nursery.cancel_scope)
                nursery.start_soon(self.reactor.run_kicks)
                nursery.start_soon(self.timers.run)
                if self.monitor is not None:
                    address = self.monitor.sock.getsockname()
                    say.info(f"Starting http monitor on {address[0]}:{address[1]}")
                    nursery.start_soon(self.monitor.run)
                if self.mesh is not None:
                    await self._start_mesh(nursery)
                if self.jetstream is not None:
                    await nursery.start(self.jetstream.run)
                nursery.start_soon(self.listener.run)
                nursery.start_soon(self.reactor.run_sockets)
                nursery.start_soon(self._housekeeping)
                if self.sessions.auth_required:
                    nursery.start_soon(self.listener.run_auth_timeouts)
                say.info(f"Listening for client connections on {options.host}:{self.sessions.port}")
                self._write_files()
                say.info("Server is ready")
        if self.jetstream is not None:
            self.jetstream.stop()

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

    async def _watch_signals(self, signals: Any, scope: trio.CancelScope) -> None:
        async for number in signals:
            if number in (signal.SIGTERM, signal.SIGINT):
                self.say.info(f"Initiating Shutdown... ({signal.Signals(number).name})")
                await self._stop()
                scope.cancel()
                return
            if number == signal.SIGUSR1:
                self.say.reopen()
                self.say.info("File log re-opened")
            elif number == signal.SIGUSR2:
                await self._lame_duck()
                scope.cancel()
                return
            else:
                self.say.error("Configuration reload is not served yet; restart the server to apply changes")

    async def _stop(self) -> None:
        """Let other nodes take over what this one leads, say goodbye to clients."""
        if self.jetstream is not None:
            await self._step_down()
            self.jetstream.retire()
        for cid in self.plane.connection_ids():
            self.plane.close(cid, Reason.SERVER_SHUTDOWN)
        self.reactor.end_turn()

    async def _step_down(self) -> None:
        """Return when other nodes lead what they can lead, or after STEP_DOWN_S."""
        with trio.move_on_after(STEP_DOWN_S):
            while self.jetstream.step_down():  # noqa: ASYNC110  no event says that the last transfer is done
                await trio.sleep(STEP_DOWN_POLL_S)

    async def _lame_duck(self) -> None:
        """Tell clients to go elsewhere, give them time, close them bit by bit, then stop."""
        options = self.options
        self.say.info("Entering lame duck mode, stop accepting new clients")
        self.client_socket.close()
        self.sessions.lame_duck = True
        if self.jetstream is not None:
            await self._step_down()
        for cid, session in self.sessions.by_cid.items():
            if session.options.protocol:
                self.plane.write(cid, self.sessions.info(session))
        self.reactor.end_turn()
        await trio.sleep(options.lame_duck_grace_period_ns / NS_PER_S)
        cids = self.plane.connection_ids()
        rest_s = max(0, options.lame_duck_duration_ns - options.lame_duck_grace_period_ns) / NS_PER_S
        for start in range(LAME_DUCK_STEPS):
            for cid in cids[start::LAME_DUCK_STEPS]:
                self.plane.close(cid, Reason.SERVER_SHUTDOWN)
            self.reactor.end_turn()
            if not self.plane.connection_ids():
                break
            await trio.sleep(rest_s / LAME_DUCK_STEPS)
        await self._stop()

    # Files for those who started the process.

    def _write_files(self) -> None:
        options = self.options
        if options.pid_file:
            Path(options.pid_file).write_text(str(os.getpid()), encoding="ascii")
        if options.ports_file_dir:
            document: dict[str, list[str]] = {"nats": [f"nats://{self._dialled(options.host)}:{self.sessions.port}"]}
            if self.monitor is not None:
                address = self.monitor.sock.getsockname()
                document["monitoring"] = [f"http://{self._dialled(address[0])}:{address[1]}"]
            if self.mesh is not None:
                listening = self.mesh.listen_address
                document["cluster"] = [f"nats://{self._dialled(listening.host)}:{listening.port}"]
            program = Path(sys.argv[0]).name or "jetraft"
            self._ports_file = Path(options.ports_file_dir) / f"{program}_{os.getpid()}.ports"
            temporary = self._ports_file.with_suffix(".ports.tmp")
            temporary.write_text(json.dumps(document), encoding="utf-8")
            temporary.rename(self._ports_file)

    @staticmethod
    def _dialled(host: str) -> str:
        return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104  a comparison

    def _remove_files(self) -> None:
        for path in (self._ports_file, Path(self.options.pid_file) if self.options.pid_file else None):
            if path is not None:
                with suppress(OSError):
                    path.unlink()
