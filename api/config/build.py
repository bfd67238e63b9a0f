"""Flags and configuration file made into one `Options` value; flags win, as with nats-server."""

import re
from typing import Any
from urllib.parse import urlsplit

from jetraft.api.config.flags import FlagError
from jetraft.api.config.options import (
    CLUSTER_BULK_BYTES_PER_S,
    DEFAULT_PORT,
    RANDOM_PORT,
    SCRUB_BYTES_PER_S,
    SCRUB_PERIOD_NS,
    ClusterOptions,
    JetStreamOptions,
    Options,
    ScrubOptions,
    User,
)

Settings = dict[str, Any]
PORT_MAX = 65535
BCRYPT = re.compile(r"\$2[abxy]?\$\d\d\$")  # server/auth.go, isBcrypt
ROUTES_NEEDED = "JetStream cluster requires configured routes or solicited leafnode for the system account"


class OptionsError(ValueError):
    """The options contradict each other; the text is one line, in nats-server's words where it has some."""


def split_url(text: str, *, default_port: int) -> tuple[str, int, str]:
    """Host, port and secret of `nats://user:pass@host:port`, `host:port` or `:port`."""
    parts = urlsplit(text if "//" in text else f"nats://{text}")
    try:
        port = parts.port
    except ValueError:
        # urlsplit refuses -1, which nats-server reads as "any free port".
        host, _, number = parts.netloc.rpartition("@")[2].rpartition(":")
        if number != "-1":
            raise OptionsError(f"error parsing URL {text!r}: invalid port") from None
        return host.strip("[]"), -1, ""
    secret = f"{parts.username or ''}:{parts.password}" if parts.password else parts.username or ""
    return parts.hostname or "", default_port if port is None else port, secret


def cluster_options(settings: Settings) -> ClusterOptions | None:
    """The cluster block, when anything asked for one."""
    if not any(settings.get(key) for key in ("cluster_listen", "cluster_port", "routes")):
        return None
    host, port, secret = split_url(settings.get("cluster_listen") or "nats://0.0.0.0:0", default_port=6222)
    return ClusterOptions(
        name=settings.get("cluster_name") or "",
        host=settings.get("cluster_host") or host or "0.0.0.0",  # noqa: S104  nats-server's default
        port=settings.get("cluster_port") or port,
        routes=tuple(settings.get("routes") or ()),
        advertise=settings.get("cluster_advertise") or "",
        no_advertise=bool(settings.get("no_advertise")),
        secret=settings.get("cluster_secret") or secret,
        connect_retries=settings.get("connect_retries") or 0,
        tls=settings.get("cluster_tls"),
        bulk_bytes_per_s=settings.get("bulk_bytes_per_s") or CLUSTER_BULK_BYTES_PER_S,
    )


def jetstream_options(settings: Settings) -> JetStreamOptions | None:
    """The jetstream block, when it was asked for."""
    if not settings.get("jetstream"):
        return None
    engine = settings.get("raft_engine") or "core"
    if engine not in ("core", "pysyncobj"):
        raise OptionsError(f'jetstream raft_engine must be "core" or "pysyncobj", not "{engine}"')
    return JetStreamOptions(
        store_dir=settings.get("store_dir") or "",
        max_memory_store_bytes=settings.get("max_memory_store") or 0,
        max_file_store_bytes=settings.get("max_file_store") or 0,
        unique_tag=settings.get("unique_tag") or "",
        raft_engine=engine,
        cipher=settings.get("cipher") or "chachapoly",
        key=settings.get("encryption_key") or "",
        prev_key=settings.get("prev_encryption_key") or "",
        scrub=ScrubOptions(
            period_ns=settings.get("scrub_period_ns", SCRUB_PERIOD_NS),
            bytes_per_s=settings.get("scrub_bytes_per_s", SCRUB_BYTES_PER_S),
            compare_ns=settings.get("scrub_compare_ns", SCRUB_PERIOD_NS),
        ),
    )


def users(settings: Settings) -> tuple[User, ...]:
    """Who may connect, from flags or the authorization block. Raises OptionsError for a hashed secret."""
    found = tuple(settings.get("users") or ())
    if not found and settings.get("token"):
        found = (User(name=None, secret=settings["token"]),)
    elif not found and settings.get("user"):
        found = (User(name=settings["user"], secret=settings.get("password") or ""),)
    for user in found:
        if BCRYPT.match(user.secret):  # compared as it stands, the hash itself would be the password
            raise OptionsError(f"the secret of {user.name or 'the token'} is a bcrypt hash, which is not served yet")
    return found


def check_ports(settings: Settings, cluster: ClusterOptions | None) -> None:
    """Raise OptionsError for a port that there cannot be; 0 and -1 are "the default" and "any"."""
    ports = {"port": settings.get("port"), "http_port": settings.get("http_port")}
    if cluster is not None:
        ports["cluster port"] = cluster.port
    for name, port in ports.items():
        if port is not None and not RANDOM_PORT <= port <= PORT_MAX:
            raise OptionsError(f"{name}: {port} is no port")


PLAIN = (
    "host", "port", "server_name", "client_advertise", "http_host", "http_port", "http_base_path", "auth_timeout_ns",
    "max_payload_bytes", "max_control_line_bytes", "max_pending_bytes", "max_connections", "max_subscriptions",
    "ping_interval_ns", "ping_max", "write_deadline_ns", "lame_duck_duration_ns", "lame_duck_grace_period_ns",
    "logtime", "logtime_utc", "log_file", "log_size_limit", "log_max_num", "pid_file", "ports_file_dir", "server_tags",
    "server_metadata", "config_file", "config_digest",
)  # fmt: skip


def build_options(settings: Settings) -> Options:
    """One frozen value. Raises OptionsError or FlagError with one line."""
    if settings.get("signal"):
        raise FlagError("signals are sent by `jetraft --signal` before options are built")
    cluster, jetstream = cluster_options(settings), jetstream_options(settings)
    if jetstream and cluster:
        if not settings.get("server_name"):
            raise OptionsError("jetstream cluster requires `server_name` to be set")
        if not cluster.name:
            raise OptionsError("jetstream cluster requires `cluster.name` to be set")
        if not cluster.routes:
            raise OptionsError(ROUTES_NEEDED)
    check_ports(settings, cluster)
    both = settings.get("debug_trace") or settings.get("debug_trace_verbose")
    verbose = settings.get("trace_verbose") or settings.get("debug_trace_verbose")
    plain = {key: settings[key] for key in PLAIN if settings.get(key) is not None}
    plain.setdefault("port", DEFAULT_PORT)
    return Options(
        **plain,
        users=users(settings),
        debug=bool(settings.get("debug") or both),
        trace=bool(settings.get("trace") or both or verbose),
        trace_verbose=bool(verbose),
        jetstream=jetstream,
        cluster=cluster,
    )
