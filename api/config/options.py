"""What a server is told at start: one frozen value, whatever mixture of flags and configuration file it came from.

Names are nats-server's keys with the unit last. Defaults are nats-server's (const.go, opts.go) unless a comment says
why not.
"""

import attrs

from jetraft.store.model.clock import NS_PER_S

DEFAULT_PORT = 4222
DEFAULT_HTTP_PORT = 8222
RANDOM_PORT = -1
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_CONTROL_LINE_BYTES = 4096
MAX_PENDING_BYTES = 64 * 1024 * 1024
MAX_CONNECTIONS = 64 * 1024
PING_INTERVAL_NS = 120 * NS_PER_S
PING_MAX = 2
WRITE_DEADLINE_NS = 10 * NS_PER_S
AUTH_TIMEOUT_NS = 2 * NS_PER_S
CLUSTER_BULK_BYTES_PER_S = 64 * 1024 * 1024  # raft/bulk.py says why; the key is `bulk_rate`, ours alone
SCRUB_PERIOD_NS = 7 * 24 * 3600 * NS_PER_S  # a week, as ZFS and disk arrays are commonly scrubbed
SCRUB_BYTES_PER_S = 32 * 1024 * 1024  # a twentieth of what one SATA disk reads: publishers must not notice
CACHE_BYTES_MAX = 48 * 1024 * 1024  # the page cache holds the rest; reading it again costs a pread and a checksum


@attrs.frozen(kw_only=True)
class User:
    """A user of the `authorization` block: a name with a password, or a token alone (no name)."""

    name: str | None
    secret: str


@attrs.frozen(kw_only=True)
class ClusterTls:
    """`cluster { tls { ... } }`: PEM files. Both ends of a connection between nodes show a certificate of `ca_file`."""

    cert_file: str
    key_file: str
    ca_file: str


@attrs.frozen(kw_only=True)
class ClusterOptions:
    """The `cluster` block: where peers connect, and whom to dial."""

    name: str = ""
    host: str = "0.0.0.0"  # noqa: S104  nats-server's default; the peers authenticate before the first parsed byte
    port: int = 0
    routes: tuple[str, ...] = ()
    advertise: str = ""
    no_advertise: bool = False
    secret: str = ""
    connect_retries: int = 0
    tls: ClusterTls | None = None
    bulk_bytes_per_s: int = CLUSTER_BULK_BYTES_PER_S


@attrs.frozen(kw_only=True)
class ScrubOptions:
    """`jetstream { scrub { ... } }`: how often everything at rest is looked at; None for never."""

    period_ns: int | None = SCRUB_PERIOD_NS  # every block is read from the disk once in this time
    bytes_per_s: int = SCRUB_BYTES_PER_S  # and never faster than this
    compare_ns: int | None = SCRUB_PERIOD_NS  # replicas are compared once in this time


@attrs.frozen(kw_only=True)
class JetStreamOptions:
    """The `jetstream` block. Sizes in bytes; 0: three quarters of what the machine has, as nats-server."""

    store_dir: str = ""
    max_memory_store_bytes: int = 0
    max_file_store_bytes: int = 0
    cache_bytes_max: int = CACHE_BYTES_MAX
    cipher: str = "chachapoly"
    key: str = attrs.field(default="", repr=False)  # encrypts what is on disk; empty: nothing is encrypted
    prev_key: str = attrs.field(default="", repr=False)
    raft_engine: str = "core"
    unique_tag: str = ""
    scrub: ScrubOptions = attrs.field(factory=ScrubOptions)


@attrs.frozen(kw_only=True)
class Options:
    """All of them. `jetstream` and `cluster` are None when they were not asked for."""

    host: str = "0.0.0.0"  # noqa: S104  nats-server's default
    port: int = DEFAULT_PORT
    server_name: str = ""
    client_advertise: str = ""
    http_host: str = ""
    http_port: int = 0
    http_base_path: str = ""
    users: tuple[User, ...] = ()
    auth_timeout_ns: int = AUTH_TIMEOUT_NS
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    max_control_line_bytes: int = MAX_CONTROL_LINE_BYTES
    max_pending_bytes: int = MAX_PENDING_BYTES
    max_connections: int = MAX_CONNECTIONS
    max_subscriptions: int = 0
    ping_interval_ns: int = PING_INTERVAL_NS
    ping_max: int = PING_MAX
    write_deadline_ns: int = WRITE_DEADLINE_NS
    lame_duck_duration_ns: int = 120 * NS_PER_S
    lame_duck_grace_period_ns: int = 10 * NS_PER_S
    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_size_limit: int = 0  # bytes; 0: the file grows
    log_max_num: int = 0  # how many files to keep, the one in use included; 0: all
    pid_file: str = ""
    ports_file_dir: str = ""
    server_tags: tuple[str, ...] = ()
    server_metadata: tuple[tuple[str, str], ...] = ()
    config_file: str = ""
    config_digest: str = ""
    jetstream: JetStreamOptions | None = None
    cluster: ClusterOptions | None = None
