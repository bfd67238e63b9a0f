"""What a connection says about itself, and what the server says back: CONNECT judged, INFO written.

`Sessions` keeps one small record per connection; the bytes are the plane's business. The texts were compared with
nats-server 2.15.1.
"""

import hmac
from typing import Any

import attrs
import orjson

from jetraft.api.config.options import Options, User
from jetraft.api.reasons import Reason

PROTOCOL_ASYNC_INFO = 1
API_LEVEL = 5  # 2.15, see protocol.md 2.11 of nats-architecture-and-design (ADR-44)
COMPATIBLE_VERSION = "2.15.1"  # clients switch features on it, so it must read like the server that we serve like
AUTHORIZATION_VIOLATION = b"-ERR 'Authorization Violation'\r\n"
NO_RESPONDERS_NEED_HEADERS = b"-ERR 'no responders requires headers support'\r\n"
INVALID_PROTOCOL = b"-ERR 'invalid client protocol'\r\n"
BOOL_FIELDS = ("verbose", "pedantic", "echo", "tls_required", "headers", "no_responders")
TEXT_FIELDS = ("user", "pass", "auth_token", "jwt", "nkey", "sig", "name", "lang", "version")


@attrs.frozen(kw_only=True, slots=True)
class ConnectOptions:
    """What a CONNECT asks for. `error` is said and `close_reason` closes when the server does not accept it."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    error: bytes | None = None
    close_reason: int = 0


@attrs.define
class Session:
    """One client connection, as monitoring and the API see it."""

    cid: int
    ip: str
    port: int
    start_unix_ns: int
    options: ConnectOptions = attrs.field(factory=ConnectOptions)


@attrs.frozen(kw_only=True)
class ServerIdentity:
    """What INFO says of this server and does not change."""

    server_id: str
    server_name: str
    cluster_name: str = ""
    git_commit: str = "jetraft"
    go_version: str = "go1.27.2"


def parse_connect(text: bytes) -> dict[str, Any] | None:
    """The CONNECT document, or None where nats-server would close the connection without a word."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    for field in BOOL_FIELDS:
        if not isinstance(document.get(field, False), bool | None):
            return None
    for field in TEXT_FIELDS:
        if not isinstance(document.get(field, ""), str | None):
            return None
    protocol = document.get("protocol", 0)
    return document if isinstance(protocol, int) and not isinstance(protocol, bool) else None


@attrs.define
class Sessions:
    """All client connections of this server."""

    options: Options
    identity: ServerIdentity
    port: int = 0
    jetstream: bool = False
    by_cid: dict[int, Session] = attrs.field(factory=dict)
    connect_urls: tuple[str, ...] = ()
    client_url: str = ""  # host:port of this server as peers tell it to clients
    lame_duck: bool = False

    @property
    def auth_required(self) -> bool:
        """True when a client must name a user or a token."""
        return bool(self.options.users)

    def info(self, session: Session | None, *, connect_info: bool = False) -> bytes:
        """The INFO line, greeting or later update, with the field order of nats-server."""
        host = self.options.host
        document: dict[str, Any] = {
            "server_id": self.identity.server_id,
            "server_name": self.identity.server_name,
            "version": COMPATIBLE_VERSION,
            "proto": PROTOCOL_ASYNC_INFO,
            "git_commit": self.identity.git_commit,
            "go": self.identity.go_version,
            "host": host,
            "port": self.port,
            "headers": True,
        }
        if self.auth_required:
            document["auth_required"] = True
        document["max_payload"] = self.options.max_payload_bytes
        if self.jetstream:
            document["jetstream"] = True
        if session is not None:
            document |= {"client_id": session.cid, "client_ip": session.ip}
        if self.identity.cluster_name:
            document["cluster"] = self.identity.cluster_name
        if self.connect_urls:
            document["connect_urls"] = list(self.connect_urls)
        if self.lame_duck:
            document["ldm"] = True
        if connect_info:
            document |= {"connect_info": True, "remote_account": "$G"}
        document["api_lvl"] = API_LEVEL
        return b"INFO " + orjson.dumps(document) + b" \r\n"

    def on_connect(self, cid: int, text: bytes) -> ConnectOptions:
        """Judge a CONNECT line (everything after the verb) of one connection."""
        document = parse_connect(text)
        if document is None:
            return ConnectOptions(close_reason=Reason.PROTOCOL_VIOLATION)
        if document.get("protocol", 0) not in (0, PROTOCOL_ASYNC_INFO):
            return ConnectOptions(error=INVALID_PROTOCOL, close_reason=Reason.PROTOCOL_VIOLATION)
        options = ConnectOptions(
            verbose=bool(document.get("verbose", True)),
            pedantic=bool(document.get("pedantic", True)),
            echo=bool(document.get("echo", True)),
            headers=bool(document.get("headers", False)),
            no_responders=bool(document.get("no_responders", False)),
            protocol=document.get("protocol", 0),
            name=document.get("name") or "",
            lang=document.get("lang") or "",
            version=document.get("version") or "",
            user=document.get("user") or "",
        )
        if not self.authorised(document):
            return attrs.evolve(options, error=AUTHORIZATION_VIOLATION, close_reason=Reason.AUTHENTICATION_FAILURE)
        if options.no_responders and not options.headers:
            return attrs.evolve(options, error=NO_RESPONDERS_NEED_HEADERS, close_reason=Reason.PROTOCOL_VIOLATION)
        session = self.by_cid.get(cid)
        if session is not None:
            session.options = options
        return options

    def authorised(self, document: dict[str, Any]) -> bool:
        """Compare the offered secret with every user's, taking the same time whether the name exists or not."""
        if not self.options.users:
            return True
        name, secret = document.get("user") or None, document.get("pass") or ""
        token = document.get("auth_token") or ""
        accepted = False
        for user in self.options.users:
            offered = token if user.name is None else secret
            same = hmac.compare_digest(offered.encode(), user.secret.encode())
            accepted |= same and (user.name is None or user.name == name)
        return accepted

    def on_first_ping(self, cid: int) -> bytes:
        """The INFO that follows the first PONG and tells the client which account it is in (2.11)."""
        session = self.by_cid.get(cid)
        return b"" if session is None else self.info(session, connect_info=True)

    def users(self) -> tuple[User, ...]:
        """Who may connect."""
        return self.options.users
