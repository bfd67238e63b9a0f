"""The server's knowledge of each connection, and INFO, which tells it about the server.

`Sessions` keeps one small record per connection; the plane parses and sends the bytes. The texts were compared with
nats-server 2.15.1.
"""

import base64
import logging
import os
import platform
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from jetraft.api.credentials.rules import STANDARD, WEBSOCKET
from jetraft.api.credentials.verdicts import Verdict
from jetraft.api.options.interfaces import join_host_port, split_host_port
from jetraft.api.options.options import Options
from jetraft.api.plane.reasons import SLOW, TEXTS, Reason
from jetraft.api.sessions.arrivals import ArrivalPlaces
from jetraft.api.sessions.connect import ConnectOptions
from jetraft.api.sessions.deadlines import AuthDeadlines
from jetraft.api.sessions.web_facts import WebSocketFacts, varz_fields
from jetraft.api.tls.facts import TlsState, info_fields
from jetraft.cluster.memory_budget import MemoryBudget, Shortage
from jetraft.store.model.clock import Clock
from jetraft.store.model.events import READ_ERROR, SLOW_CONSUMER
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.gotime import format_time
from jetraft.store.model.ids import GLOBAL_ACCOUNT
from jetraft.store.model.signal import Signal
from jetraft.store.model.versioning import API_LEVEL, SERVER_VERSION

log = logging.getLogger(__name__)

PROTOCOL_ASYNC_INFO = 1
SLOW_LINES_PER_S = 10  # each line has their number, so the next one tells of those that were left out
NONCE_BYTES = 11  # as nats-server's; 15 characters


@attrs.define
class Session:
    """One client connection, as monitoring and the API see it."""

    cid: int
    ip: str
    port: int
    start_unix_ns: int
    options: ConnectOptions = attrs.field(factory=ConnectOptions)
    verdict: Verdict | None = None  # None until it has said who it is
    tls: TlsState | None = None
    web: WebSocketFacts | None = None  # of a connection to the listener for WebSocket
    is_awaited: bool = False  # a header of its proxy, which may give another address
    nonce: str = ""  # what a user with a key signs
    proxy_key: str = ""  # of the trusted proxy that speaks for the client
    is_called: bool = False  # a service said who it is
    named: str = ""  # the user that a refused CONNECT named
    asked_in: str = ""  # the account whose service is asked who it is
    distrust: str = ""  # why the service's answer did not let it in
    document: dict[str, Any] | None = attrs.field(default=None, repr=False)  # of the last CONNECT: it has secrets

    @property
    def account(self) -> str:
        """Its account; until it has said who it is, in the global account."""
        return GLOBAL_ACCOUNT if self.verdict is None else self.verdict.account

    @property
    def kind(self) -> str:
        """Over what it came: one of CONNECTION_TYPES."""
        return STANDARD if self.web is None else WEBSOCKET

    @property
    def client_type(self) -> str:
        """The same as pages and events say it."""
        return "nats" if self.web is None else "websocket"

    @property
    def title(self) -> str:
        """How log lines begin that speak of this connection."""
        address, mark = join_host_port(self.ip, self.port), "cid"
        if self.web is not None:
            mark = "wid"
            if self.web.forwarded_ip:
                address = f"{bracketed(self.web.forwarded_ip)}/{address}"
        parts = [f"{address} - {mark}:{self.cid}"]
        version = f"v{self.options.version}" if self.options.version else ""
        said = ":".join(filter(None, (version, self.options.lang, self.options.name)))
        if said and self.verdict is not None:  # what a refused client said is on pages alone
            parts.append(go_quote(said))
        if self.verdict is not None and self.verdict.label:
            parts.append(go_quote(f"{self.verdict.account}/{self.verdict.label}"))
        return " - ".join(parts)


@attrs.frozen(kw_only=True)
class Closed:
    """A connection that has ended: why and when, and the plane's last counters of it."""

    session: Session
    reason: Reason
    stop_unix_ns: int
    stop_mono_ns: int
    counters: Mapping[str, Any] = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class ServerIdentity:
    """The fields of INFO that never change."""

    server_id: str
    server_name: str
    cluster_name: str = ""
    domain: str = ""  # of JetStream
    git_commit: str = "jetraft"
    runtime: str = f"python{platform.python_version()}"  # in the field `go`, the version of Go in nats-server


def bracketed(ip: str) -> str:
    """An address as it stands before a port."""
    return f"[{ip}]" if ":" in ip else ip


def new_nonce() -> str:
    """Random bytes as text, for one connection to sign."""
    return base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).rstrip(b"=").decode()


@attrs.define
class Sessions:
    """All client connections of this server."""

    options: Options
    identity: ServerIdentity
    clock: Clock
    port: int = 0
    jetstream: bool = False
    web_port: int = 0  # of the listener for WebSocket
    by_cid: dict[int, Session] = attrs.field(factory=dict)
    applicants: dict[int, Any] = attrs.field(factory=dict)
    connect_urls: tuple[str, ...] = ()
    client_urls: tuple[str, ...] = ()  # host:port of this server that peers send to their clients
    web_connect_urls: tuple[str, ...] = ()  # the same two for clients over WebSocket
    web_urls: tuple[str, ...] = ()
    lame_duck: bool = False
    is_ending: bool = False  # clients hear of no more addresses: those of the peers go before the clients do
    memory: MemoryBudget | None = None  # below a limit of the process; None: there is none
    tls_not_after: str = ""  # when the listener's certificate ends
    web_tls_not_after: str = ""
    on_admitted: Signal[[Session]] = attrs.field(factory=Signal, init=False)
    on_ended: Signal[[Closed]] = attrs.field(factory=Signal, init=False)
    closed: deque[Closed] = attrs.field(init=False)  # the last ones
    ended: Counter[Reason] = attrs.field(factory=Counter, init=False)  # all since the start
    arrivals: ArrivalPlaces = attrs.field(init=False)  # of all listeners
    deadlines: AuthDeadlines = attrs.field(init=False)
    web_deadlines: AuthDeadlines = attrs.field(init=False)  # a listener for WebSocket may give another time

    def __attrs_post_init__(self) -> None:
        web = self.options.websocket
        web_timeout_ns = web.auth_timeout_ns if web is not None else 0
        self.closed = deque(maxlen=self.options.max_closed_clients)
        self.arrivals = ArrivalPlaces(self.clock, self.options.max_unauthenticated_per_address)
        over, timeout_ns = self.arrivals.leave, self.options.auth_timeout_ns
        self.deadlines = AuthDeadlines(timeout_ns, self.clock, over)
        self.web_deadlines = AuthDeadlines(web_timeout_ns or timeout_ns, self.clock, over)

    @property
    def is_full(self) -> bool:
        """Whether another connection is too many: there are as many as may be, or memory is short."""
        if len(self.by_cid) >= self.options.max_connections:
            return True
        return self.memory is not None and self.memory.shortage(self.clock.mono_ns()) >= Shortage.PUBLISHES

    def add(self, session: Session) -> None:
        """A connection was accepted. Its time to name itself begins, or does so after its handshake (`is_secure`)."""
        self.by_cid[session.cid] = session
        web, tls = self.options.websocket, self.options.tls
        is_plain = tls is None or tls.allow_non_tls
        if not self.requires_auth(session):
            if session.web is None and not is_plain:
                self.arrivals.enter(session.cid, session.ip)
            else:
                self.arrivals.leave(session.cid)
            return
        self.arrivals.enter(session.cid, session.ip)
        if session.web is not None and web is not None:
            self.web_deadlines.begin(session.cid)
        elif is_plain:
            self.deadlines.begin(session.cid)

    def is_secure(self, session: Session, state: TlsState) -> None:
        """The handshake of a connection is complete; where somebody has to name itself its time begins."""
        session.tls = state
        if self.auth_required:
            self.deadlines.begin(session.cid)
        else:
            self.arrivals.leave(session.cid)

    def remove(self, cid: int) -> Session | None:
        """A connection is closed; None for one that was not added."""
        self.deadlines.gone(cid)
        self.web_deadlines.gone(cid)
        if applicant := self.applicants.pop(cid, None):
            applicant.cancel()
        return self.by_cid.pop(cid, None)

    def on_closed(self, cid: int, reason: int, counters: Mapping[str, Any] | None) -> None:
        """Forget a connection that the plane has closed, but for what `/connz?state=closed` shows of it."""
        session = self.remove(cid)
        if session is None or counters is None:
            return
        if "read_error" in counters:
            READ_ERROR.log(client=session.title, error=counters["read_error"])
        why = Reason(reason)
        if why in SLOW:
            count = sum(self.ended[each] for each in SLOW) + 1
            SLOW_CONSUMER.log(client=session.title, reason=TEXTS[why], count=count)
        log.debug("%s - Client connection closed: %s", session.title, TEXTS.get(why, "Unknown"))
        session.document = None
        now_ns, mono_ns = self.clock.unix_ns(), self.clock.mono_ns()
        ended = Closed(session=session, reason=why, stop_unix_ns=now_ns, stop_mono_ns=mono_ns, counters=counters)
        self.closed.append(ended)
        self.ended[why] += 1
        self.on_ended.emit(ended)

    @property
    def auth_required(self) -> bool:
        """True when a client must name a user or a token."""
        return self.options.auth.required or self.options.trust is not None

    @property
    def needs_nonce(self) -> bool:
        """True when INFO carries a nonce, which users with a key sign."""
        return self.options.auth.needs_nonce or self.options.trust is not None or bool(self.options.proxies)

    def requires_auth(self, session: Session | None) -> bool:
        """The same for one client: over WebSocket there may be rules of its own."""
        web = self.options.websocket if session is not None and session.web is not None else None
        return self.auth_required or (web is not None and web.overrides_auth)

    def info(self, session: Session | None, *, connect_info: bool = False, lame_duck: bool = False) -> bytes:
        """Return an INFO line, as greeting or later update, with nats-server's order of fields."""
        view = self._view(session)
        document: dict[str, Any] = {
            "server_id": self.identity.server_id,
            "server_name": self.identity.server_name,
            "version": SERVER_VERSION,
            "proto": PROTOCOL_ASYNC_INFO,
            "git_commit": self.identity.git_commit,
            "go": self.identity.runtime,
            "host": view.host,
            "port": view.port,
            "headers": not self.options.no_header_support,
        }
        is_greeting = session is not None and not connect_info
        if self.requires_auth(session) and not (is_greeting and view.no_auth_user):
            document["auth_required"] = True
        document |= view.tls
        limit = -1 if session is None or session.verdict is None else session.verdict.max_payload
        document["max_payload"] = self.options.max_payload_bytes if limit < 0 else limit
        if self.jetstream:
            document["jetstream"] = True
        if session is not None:
            document |= {"client_id": session.cid} | ({} if session.is_awaited else {"client_ip": session.ip})
            if self.needs_nonce and session.verdict is None:
                session.nonce = session.nonce or new_nonce()
                document["nonce"] = session.nonce
        named = {"cluster": self.identity.cluster_name, "domain": self.identity.domain}
        document |= {field: name for field, name in named.items() if name}
        if view.connect_urls:
            document["connect_urls"] = list(view.connect_urls)
        if self.lame_duck or lame_duck:
            document["ldm"] = True
        if connect_info:
            account = GLOBAL_ACCOUNT if session is None else session.account
            is_system = {"acc_is_sys": True} if account == self.options.system_account else {}
            document |= {"connect_info": True, "remote_account": account, **is_system}
        document["api_lvl"] = API_LEVEL
        return b"INFO " + orjson.dumps(document) + b" \r\n"

    def request_info(self, cid: int, account: str, through: str, rtt_ns: int) -> bytes:
        """Facts of a requester for the exporter of a service: its account, and that which handed the request on.

        `cid` is 0 unless the requester's account shares who that is. A round trip time of 0 is not known yet.
        """
        session = self.by_cid.get(cid)
        if session is None:
            named = {"acc": account, "svc": through, "rtt": rtt_ns}
            return orjson.dumps({key: value for key, value in named.items() if value})
        options, verdict = session.options, session.verdict
        told = {
            "start": format_time(session.start_unix_ns),
            "host": session.ip,
            "id": cid,
            "acc": account,
            "svc": through,
            "user": verdict.user if verdict is not None else "",
            "name": options.name,
            "lang": options.lang,
            "ver": options.version,
            "rtt": rtt_ns,
            "server": self.identity.server_name,
            "cluster": self.identity.cluster_name,
            "kind": "Client",
            "client_type": "nats",
        }
        return orjson.dumps({key: value for key, value in told.items() if value})

    def _view(self, session: Session | None) -> "ListenerView":
        options = self.options
        if options.websocket is not None and session is not None and session.web is not None:
            web = options.websocket
            return ListenerView(
                host=web.host,
                port=self.web_port,
                tls={"tls_required": True, "tls_available": True} if web.tls is not None else {},
                no_auth_user="",  # which nats-server does not look at here
                connect_urls=self.web_connect_urls,
            )
        host, port = split_host_port(options.client_advertise, options.host, self.port)
        state = session.tls if session is not None else None
        return ListenerView(
            host=host,
            port=port,
            tls=info_fields(options.tls, state) if options.tls is not None else {},
            no_auth_user=options.auth.no_auth_user,
            connect_urls=self.connect_urls,
        )

    def listeners_varz(self) -> Mapping[str, Any]:
        """The part of /varz about the addresses that clients are told, and of the listener for WebSocket."""
        urls = {"connect_urls": list(self.connect_urls)} if self.connect_urls else {}
        if self.web_connect_urls:
            urls["ws_connect_urls"] = list(self.web_connect_urls)
        return urls | varz_fields(self.options.websocket, self.web_port, self.web_tls_not_after)

    def on_first_ping(self, cid: int) -> bytes:
        """Return the INFO that follows the first PONG and names the client's account (since nats-server 2.11)."""
        session = self.by_cid.get(cid)
        return b"" if session is None else self.info(session, connect_info=True)


@attrs.frozen(kw_only=True)
class ListenerView:
    """The fields of INFO that differ between the listeners."""

    host: str
    port: int
    tls: Mapping[str, Any]
    no_auth_user: str
    connect_urls: tuple[str, ...]
