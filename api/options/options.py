"""The options of a server: one frozen value, from flags and configuration file.

Names are nats-server's keys with the unit last. Defaults are nats-server's (const.go, opts.go) unless a comment gives
another reason.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from jetraft.api.credentials.permissions import Permissions
from jetraft.api.credentials.rules import AuthRules
from jetraft.api.exchange.values import Mapping as SubjectMapping
from jetraft.api.exchange.values import Sharing
from jetraft.api.options.http_gateway import HttpGatewayOptions
from jetraft.api.options.leafnodes import LeafOptions
from jetraft.api.options.tls import TlsOptions
from jetraft.api.options.websocket import WebSocketOptions
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.feature_level import LEVEL
from jetraft.store.model.ids import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from jetraft.store.model.limits import NO_LIMITS, ServerLimits
from jetraft.store.model.state import AccountLimits
from jetraft.store.model.tiers import Allowance

if TYPE_CHECKING:
    from jetraft.api.credentials.trust import TrustRules

TEXT = "text"  # nats-server's form of log lines
LOG_FORMATS = (TEXT, "logfmt", "json")
DEFAULT_PORT = 4222
DEFAULT_HTTP_PORT = 8222
RANDOM_PORT = -1
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_CONTROL_LINE_BYTES = 4096
MAX_PENDING_BYTES = 64 * 1024 * 1024
MAX_CONNECTIONS = 64 * 1024
MAX_CLOSED_CLIENTS = 10_000
PING_INTERVAL_NS = 120 * NS_PER_S
PING_MAX = 2
WRITE_DEADLINE_NS = 10 * NS_PER_S
AUTH_TIMEOUT_NS = 2 * NS_PER_S
UNAUTHENTICATED_PER_ADDRESS_MAX = 1024  # as many passwords of one address wait to be hashed (auth/hashing.py)
CLUSTER_WAITING_BYTES = 64 * 1024 * 1024  # see raft/mesh/link.py
CLUSTER_BULK_BYTES_PER_S = 64 * 1024 * 1024  # see raft/mesh/bulk.py; nats-server does not have the key `bulk_rate`
SCRUB_PERIOD_NS = 7 * 24 * 3600 * NS_PER_S  # a week, as ZFS and disk arrays are commonly scrubbed
SCRUB_BYTES_PER_S = 32 * 1024 * 1024  # a twentieth of what one SATA disk reads, so that publishers are not slowed down
CACHE_BYTES_MAX = 48 * 1024 * 1024  # the page cache has the rest; reading from it costs a pread and a checksum


class ReloadError(Exception):
    """New options are refused, and nothing has changed; the text is one line in nats-server's words."""


@attrs.frozen(kw_only=True)
class ClusterTls:
    """`cluster { tls { ... } }`: PEM files. Both ends of a connection between nodes show a certificate of `ca_file`.

    `insecure`: who dials does not look at the other's. `known_hosts`: who accepts wants one for the host of a route.
    `pinned_certs`: hex digests of the keys that others may have; empty: any.
    """

    cert_file: str
    key_file: str
    ca_file: str
    insecure: bool = False
    known_hosts: tuple[str, ...] | None = None
    pinned_certs: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class ClusterOptions:
    """The `cluster` block: the address for peers, and the peers to connect to."""

    name: str = ""
    host: str = "0.0.0.0"  # noqa: S104  nats-server's default; the peers authenticate before the first parsed byte
    port: int = 0
    routes: tuple[str, ...] = attrs.field(default=(), repr=False)  # may carry the secret
    advertise: str = ""
    no_advertise: bool = False
    secret: str = attrs.field(default="", repr=False)
    old_secrets: tuple[str, ...] = attrs.field(default=(), repr=False)  # accepted as well, of `secret_file`
    connect_retries: int = 0
    tls: ClusterTls | None = None
    bulk_bytes_per_s: int = CLUSTER_BULK_BYTES_PER_S
    wishes_compression: bool = False  # which a start warns of: links are not compressed
    permissions: Permissions | None = None  # of routes: `publish` is what is imported, `subscribe` what is exported
    reconnect_when_cut_off: bool = False  # clients of a node that reaches no majority are told to
    max_waiting_bytes: int = CLUSTER_WAITING_BYTES  # in the link to one peer; less below a memory limit (fitting.py)


@attrs.frozen(kw_only=True)
class ScrubOptions:
    """`jetstream { scrub { ... } }`: how often stored data is checked; None means never."""

    period_ns: int | None = SCRUB_PERIOD_NS  # every block is read from the disk once in this time
    bytes_per_s: int = SCRUB_BYTES_PER_S  # and never faster than this
    compare_ns: int | None = SCRUB_PERIOD_NS  # replicas are compared once in this time


@attrs.frozen(kw_only=True)
class DeclaredStream:
    """A stream of `jetstream { streams }`; `body` is that of a request to create it."""

    account: str
    name: str
    body: bytes


@attrs.frozen(kw_only=True)
class JetStreamOptions:
    """The `jetstream` block. Sizes in bytes; 0: three quarters of the machine's memory or disk, as in nats-server."""

    store_dir: str = ""
    max_memory_store_bytes: int = 0
    max_file_store_bytes: int = 0
    cache_bytes_max: int = CACHE_BYTES_MAX
    cipher: str = "chachapoly"
    key: str = attrs.field(default="", repr=False)  # encrypts the store; empty: no encryption
    prev_key: str = attrs.field(default="", repr=False)
    raft_engine: str = "core"
    unique_tag: str = ""
    domain: str = ""
    scrub: ScrubOptions = attrs.field(factory=ScrubOptions)
    limits: ServerLimits = NO_LIMITS
    strict: bool = True  # requests with fields that are not known are refused
    streams: tuple[DeclaredStream, ...] = ()  # made at the start where they are absent
    legacy_api: bool = False  # serves the subjects of the tech preview too
    feature_level: int = LEVEL  # the highest that this server takes part in


@attrs.frozen(kw_only=True)
class AccountOptions:
    """An account of the `accounts` block. `jetstream` is None where it is not enabled; its users are in `auth`."""

    name: str
    jetstream: AccountLimits | None = None
    sharing: Sharing = attrs.field(factory=Sharing)
    trace_dest: str = ""  # where messages with `traceparent` are traced to
    trace_sampling: int = 100  # how many of a hundred


@attrs.frozen(kw_only=True)
class JetStreamAccounts:
    """The limits of each account in JetStream (None: it may use nothing), and which may change the cluster itself."""

    limits: Mapping[str, Allowance | None] = attrs.Factory(lambda: {GLOBAL_ACCOUNT: AccountLimits()})
    may_change: bool = False
    operators: frozenset[str] = frozenset({GLOBAL_ACCOUNT})


@attrs.frozen(kw_only=True)
class ResolverOptions:
    """The place of accounts' tokens: in memory, in a directory (`full`, `cache`), behind a URL (`url`)."""

    kind: str = "memory"
    directory: str = ""
    url: str = attrs.field(default="", repr=False)  # may have a password
    tls: TlsOptions | None = None  # of connections to the URL
    limit: int = 0  # accounts; 0: no limit
    ttl_ns: int = 0  # how long a file of a cache is kept; 0: until there are too many
    interval_ns: int = 60 * NS_PER_S  # between two comparisons with another node
    timeout_ns: int = 1_900_000_000  # of looking up an account
    allow_delete: bool = False
    hard_delete: bool = False


@attrs.frozen(kw_only=True)
class TrustOptions:
    """Operator mode: who signs accounts, where these are kept, and the tokens of the configuration."""

    rules: "TrustRules"
    resolver: ResolverOptions
    preload: tuple[str, ...] = attrs.field(default=(), repr=False)
    system_account: str = ""


@attrs.frozen(kw_only=True)
class Options:
    """All options. `jetstream` and `cluster` are None when they are not configured."""

    host: str = "0.0.0.0"  # noqa: S104  nats-server's default
    port: int = DEFAULT_PORT
    server_name: str = ""
    client_advertise: str = ""
    http_host: str = ""
    http_port: int = 0
    http_base_path: str = ""
    https_port: int = 0  # the pages over TLS, with the listener's certificate
    auth: AuthRules = attrs.field(factory=AuthRules)
    trust: TrustOptions | None = None  # with operators; `auth` has no users then
    proxies: tuple[str, ...] = ()  # keys of proxies that may speak for clients
    tls: TlsOptions | None = None  # of the listener for clients
    websocket: WebSocketOptions | None = None
    http_gateway: HttpGatewayOptions | None = None
    auth_timeout_ns: int = AUTH_TIMEOUT_NS
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    max_control_line_bytes: int = MAX_CONTROL_LINE_BYTES
    max_pending_bytes: int = MAX_PENDING_BYTES
    max_unread_bytes: int = 0  # of all connections together, below a memory limit (fitting.py); 0: no bound
    max_connections: int = MAX_CONNECTIONS
    max_unauthenticated_per_address: int = UNAUTHENTICATED_PER_ADDRESS_MAX  # see api/sessions/arrivals.py; 0: no bound
    max_closed_clients: int = MAX_CLOSED_CLIENTS  # connections that have ended and are still shown
    max_subscriptions: int = 0
    max_sub_tokens: int = 0
    proxy_protocol: bool = False  # connections of clients may begin with a header of a proxy
    no_fast_producer_stall: bool = False
    default_js_domain: tuple[tuple[str, str], ...] = ()  # account, domain
    ping_interval_ns: int = PING_INTERVAL_NS
    ping_max: int = PING_MAX
    write_deadline_ns: int = WRITE_DEADLINE_NS
    write_timeout: str = ""  # what follows a missed deadline; empty: the default
    feature_flags: tuple[tuple[str, bool], ...] = ()
    lame_duck_duration_ns: int = 120 * NS_PER_S
    lame_duck_grace_period_ns: int = 10 * NS_PER_S
    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False  # protocol lines show headers alone, without what follows them
    max_traced_msg_len: int = 0  # bytes of a payload in a protocol line; 0: all
    no_header_support: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_format: str = TEXT  # one of LOG_FORMATS
    log_file: str = ""
    syslog: bool = False  # of this machine, unless there is a file
    remote_syslog: str = ""  # its address
    log_size_limit: int = 0  # bytes; 0: no limit
    log_max_num: int = 0  # files to keep, with the one in use; 0: all
    pid_file: str = ""
    ports_file_dir: str = ""
    server_tags: tuple[str, ...] = ()
    server_metadata: tuple[tuple[str, str], ...] = ()
    config_file: str = ""
    config_digest: str = ""
    jetstream: JetStreamOptions | None = None
    cluster: ClusterOptions | None = None
    leafnodes: LeafOptions | None = None
    accounts: tuple[AccountOptions, ...] = ()
    mappings: tuple[SubjectMapping, ...] = ()  # of `$G`
    system_account: str = SYSTEM_ACCOUNT  # empty: none

    @property
    def leaf_write_deadline_ns(self) -> int:
        """The deadline of leaf nodes; 0: that of the server."""
        return self.leafnodes.write_deadline_ns if self.leafnodes is not None else 0

    @property
    def sharing(self) -> Mapping[str, Sharing]:
        """Exports, imports, mappings and permissions of accounts; those without any of it are left out."""
        named = {account.name: account.sharing for account in self.accounts}
        touched = {one.account for sharing in named.values() for one in sharing.imports}
        found = {name: sharing for name, sharing in named.items() if sharing != Sharing() or name in touched}
        return {GLOBAL_ACCOUNT: Sharing(mappings=self.mappings), **found} if self.mappings else found

    @property
    def jetstream_accounts(self) -> JetStreamAccounts:
        """`$G` has all of JetStream as long as there is no other account but the system's, as with nats-server.

        It may then change the cluster as well, as there is no other tenant. Otherwise the system account alone may.
        """
        assert self.trust is None, "of operators' accounts the registry knows"
        named = {account.name: account.jetstream for account in self.accounts}
        others = named.keys() - {self.system_account}
        system = {self.system_account: None} if self.system_account else {}
        limits = {GLOBAL_ACCOUNT: None if others else AccountLimits(), **system, **named}
        return JetStreamAccounts(limits=limits, operators=frozenset(system if others else {*system, GLOBAL_ACCOUNT}))
