"""Reloads the configuration of a running server: at SIGHUP, and when another part asks for it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, TextIO

import attrs
import trio

from jetraft.api.auth.login import ACCOUNT_CONNECTIONS
from jetraft.api.config.flags import FlagError
from jetraft.api.config.settings import OptionsError
from jetraft.api.credentials.verdicts import Verdict
from jetraft.api.listeners.start_files import StartFilesError
from jetraft.api.logs.logger import Logger, open_target
from jetraft.api.logs.syslog import Syslog, SyslogError
from jetraft.api.options.interfaces import advertised
from jetraft.api.options.options import ReloadError
from jetraft.api.options.tls import TlsError
from jetraft.api.plane.reasons import Reason
from jetraft.api.reload.clients import ConnectedClients
from jetraft.api.reload.leafnodes import compression_differs, removed, title_of
from jetraft.api.reload.table import Step, changes
from jetraft.api.traces.tracing import Tracer, destinations
from jetraft.store.model.events import CONFIG_RELOAD_FAILED, CONFIG_RELOADED, CONNECTION_REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jetraft.api.auth.accounts import LiveAccounts
    from jetraft.api.auth.login import Logins
    from jetraft.api.exchange.setup import SharedAccounts
    from jetraft.api.jetstream.node import JetStreamNode
    from jetraft.api.leafnodes.assembly import LeafParts
    from jetraft.api.options.options import Options
    from jetraft.api.plane._plane import Plane
    from jetraft.api.reload.certificates import Certificates
    from jetraft.api.routes import Routes
    from jetraft.api.sessions.session import Sessions
    from jetraft.api.turns.reactor import Reactor

NO_FILE: Final = "can only reload config when a file is provided using -c or --config"
TOO_MANY: Final = b"-ERR 'maximum connections exceeded'\r\n"


@attrs.frozen(kw_only=True)
class Opened:
    """The files that were opened before anything changed, because it can fail."""

    log: TextIO | Syslog | None
    certificates: list[Callable[[], None]]  # what lets each listener show its own


@attrs.frozen(kw_only=True, eq=False)
class Reloader:
    """The running parts that follow options. `reread` reads the configuration again; None: there is no file."""

    reread: Callable[[], Options] | None
    say: Logger
    sessions: Sessions
    logins: Logins
    plane: Plane
    reactor: Reactor
    tracer: Tracer
    accounts: LiveAccounts
    shared: SharedAccounts
    write_files: Callable[[], None]
    certificates: Sequence[Certificates] = ()
    leaf: LeafParts | None = None
    routes: Routes | None = None
    jetstream: JetStreamNode | None = None

    def reload(self) -> None:
        """Follow the configuration as it is now. Raises ReloadError; nothing has changed then."""
        self._follow(self._read())

    def _follow(self, new: Options) -> None:
        old = self.sessions.options
        found = changes(old, new)
        if old.sharing != new.sharing and new.trust is not None:
            raise ReloadError("config reload not supported for Mappings")  # tokens say what accounts share
        if self.jetstream is not None and new.trust is None:
            check_accounts(old, new)
        opened = Opened(certificates=self._certificates(new), log=self._log(old, new))
        # From here on nothing is refused any more.
        self.sessions.options = new
        for change in found:
            if change.key == "max_connections":
                self._close_some(new.max_connections)
            if change.line:
                self.say.info(change.line)
        self._follow_sharing(old, new)
        for take in opened.certificates:
            take()
        steps = {change.how.step for change in found}
        for step, follow in FOLLOW.items():
            if step in steps:
                follow(self, old, new, opened)
        CONFIG_RELOADED.log(digest=new.config_digest)
        self.reactor.end_turn()

    def _read(self) -> Options:
        if self.reread is None:
            raise ReloadError(NO_FILE)
        try:
            return self.reread()
        except (OptionsError, FlagError) as error:
            raise ReloadError(str(error)) from error

    async def reload_logged(self) -> None:
        """The same for a signal: what is wrong is logged. The file is read while everybody is served."""
        self.say.info('Trapped "hangup" signal')
        try:
            self._follow(await self._read_aside())
        except ReloadError as error:
            CONFIG_RELOAD_FAILED.log(error=str(error))

    async def _read_aside(self) -> Options:
        """What the file says, read in a thread: 50,000 users take seconds. Again, if another reload was quicker."""
        while True:
            before = self.sessions.options
            new = await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            if self.sessions.options is before:
                return new

    def _log(self, old: Options, new: Options) -> TextIO | Syslog | None:
        if written_to(old) == written_to(new):
            return None
        try:
            return open_target(new)
        except SyslogError as error:
            raise ReloadError(str(error)) from error
        except OSError as error:
            raise ReloadError(f"error opening file: open {new.log_file}: {error.strerror}") from error

    def _certificates(self, new: Options) -> list[Callable[[], None]]:
        try:
            read = [certificates.read(new) for certificates in self.certificates]
        except TlsError as error:
            raise ReloadError(str(error)) from error
        return [take for take in read if take is not None]

    def _follow_sharing(self, old: Options, new: Options) -> None:
        """Let accounts export, import, map and allow other things; connections get their account's limits."""
        if old.sharing == new.sharing:
            return
        self.shared.follow(new.sharing)
        self._limit_connections()

    def _limit_connections(self) -> None:
        """Close those that are too many for their accounts now, the youngest, and bound the others."""
        kept: Counter[str] = Counter()
        for session in list(self.sessions.by_cid.values()):
            verdict = session.verdict or Verdict()
            if session.verdict is not None:
                if 0 <= self.shared.of(session.account).limits.max_connections <= kept[session.account]:
                    self.plane.close(session.cid, Reason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED, ACCOUNT_CONNECTIONS)
                    continue
                kept[session.account] += 1
            self.plane.limit_connection(session.cid, max_payload=verdict.max_payload, max_subs=verdict.max_subs)

    def _close_some(self, most: int) -> None:
        """Close as many connections as there are too many."""
        surplus = list(self.sessions.by_cid.values())[: max(0, len(self.sessions.by_cid) - most)]
        for session in surplus:
            reason = f"maximum connections exceeded - Account:{session.account}"
            CONNECTION_REFUSED.log(client=session.title, reason=reason)
            self.plane.close(session.cid, Reason.MAXIMUM_CONNECTIONS_EXCEEDED, TOO_MANY)
        if surplus:
            self.say.info(f"Closed {len(surplus)} connections to fall within max_connections")

    def follow_log(self, old: Options, new: Options, opened: Opened) -> None:
        """Log at other levels, in another form, to another file."""
        say = self.say
        say.with_time, say.utc, say.debug_on, say.trace_on = new.logtime, new.logtime_utc, new.debug, new.trace
        say.form = new.log_format
        self.plane.log_protocol(new.trace)
        logging.getLogger().setLevel(logging.DEBUG if new.debug else logging.INFO)
        if written_to(old) != written_to(new):
            say.write_to(new.log_file, opened.log)

    def follow_limits(self, _old: Options, new: Options, _opened: Opened) -> None:
        """Take other sizes of messages and lines; users keep smaller limits of their own."""
        self.plane.follow_limits(max_payload=new.max_payload_bytes, max_control_line=new.max_control_line_bytes)
        self._limit_connections()

    def follow_auth(self, old: Options, new: Options, _opened: Opened) -> None:
        """Judge by other rules, those who are connected too."""
        self.logins.follow_rules()
        self.tracer.by_account = destinations(new)
        self.plane.trace_external(self.tracer.has_destinations)
        if new.trust is None:
            self.accounts.follow(new.jetstream_accounts)
        ConnectedClients(self.logins, self.plane, self.accounts.limits.keys).judge_again(old.auth)

    def follow_timeout(self, _old: Options, new: Options, _opened: Opened) -> None:
        """Wait longer or less for clients to name themselves, and for more or fewer of an address at a time."""
        self.sessions.deadlines.timeout_ns = new.auth_timeout_ns
        self.sessions.arrivals.follow(new.max_unauthenticated_per_address)

    def follow_advertise(self, _old: Options, new: Options, _opened: Opened) -> None:
        """Tell clients and peers another address."""
        self.sessions.client_urls = advertised(new.host, self.sessions.port, new.client_advertise)
        if self.routes is not None:
            self.routes.describe_clients()

    def follow_routes(self, _old: Options, new: Options, _opened: Opened) -> None:
        """Dial other peers."""
        if self.routes is not None and new.cluster is not None:
            self.routes.follow(new.cluster.routes)

    def follow_route_permissions(self, _old: Options, new: Options, _opened: Opened) -> None:
        """Exchange other subjects with peers."""
        if self.routes is not None and new.cluster is not None:
            self.routes.permit(new.cluster.permissions)

    def follow_profile(self, _old: Options, new: Options, _opened: Opened) -> None:
        """Tell the peers other tags and sizes of JetStream, by which streams are placed."""
        if self.jetstream is not None and new.jetstream is not None:
            self.jetstream.follow(new.jetstream, new.server_tags)

    def follow_stalls(self, _old: Options, new: Options, _opened: Opened) -> None:
        """Pause who publishes to slow receivers, or none."""
        self.plane.stall_producers(not new.no_fast_producer_stall)

    def follow_leafnodes(self, old: Options, new: Options, _opened: Opened) -> None:
        """Leave hubs and connect to others."""
        assert self.leaf is not None
        assert old.leafnodes is not None
        assert new.leafnodes is not None
        for remote in removed(old.leafnodes, new.leafnodes):
            self.say.info(f"Reloaded: LeafNode Remote {title_of(remote)} removed")
        self.leaf.follow(new.leafnodes)
        if compression_differs(old.leafnodes, new.leafnodes):
            self.say.info("Reloaded: LeafNode compression settings")

    def follow_files(self, _old: Options, _new: Options, _opened: Opened) -> None:
        """Write the files of the process again, under their new names."""
        try:
            self.write_files()
        except StartFilesError as error:
            self.say.error(str(error))


FOLLOW: Final[Mapping[Step, Callable[[Reloader, Options, Options, Opened], None]]] = {
    Step.LOG: Reloader.follow_log,
    Step.LIMITS: Reloader.follow_limits,
    Step.TIMEOUT: Reloader.follow_timeout,
    Step.AUTH: Reloader.follow_auth,
    Step.ADVERTISE: Reloader.follow_advertise,
    Step.ROUTES: Reloader.follow_routes,
    Step.ROUTE_PERMISSIONS: Reloader.follow_route_permissions,
    Step.FILES: Reloader.follow_files,
    Step.PROFILE: Reloader.follow_profile,
    Step.STALLS: Reloader.follow_stalls,
    Step.LEAFNODES: Reloader.follow_leafnodes,
}


def written_to(options: Options) -> tuple[str, str, bool]:
    """The destination of the log: what comes first counts alone."""
    if options.log_file:
        return options.log_file, "", False
    return "", options.remote_syslog, options.syslog and not options.remote_syslog


def check_accounts(old: Options, new: Options) -> None:
    """Raise ReloadError where an account keeps JetStream with other limits: its streams count by those before."""
    before, after = old.jetstream_accounts.limits, new.jetstream_accounts.limits
    for name in before.keys() & after.keys():
        if before[name] is not None and after[name] is not None and before[name] != after[name]:
            raise ReloadError(f"config reload not supported for JetStream limits of account {name}")
