"""Builds one `Options` value from flags and configuration file; flags win, as in nats-server."""

from collections import Counter

import attrs

from jetraft.api.config.flags import FlagError
from jetraft.api.config.queues import server_limits
from jetraft.api.config.settings import PORT_MAX, OptionsError, Settings, split_url
from jetraft.api.credentials.nkeys import is_account_key
from jetraft.api.credentials.rules import AuthRules, NkeyUser, PasswordUser
from jetraft.api.credentials.secret import Secret
from jetraft.api.options.leafnodes import LeafOptions
from jetraft.api.options.options import (
    CLUSTER_BULK_BYTES_PER_S,
    DEFAULT_PORT,
    RANDOM_PORT,
    SCRUB_BYTES_PER_S,
    SCRUB_PERIOD_NS,
    ClusterOptions,
    ClusterTls,
    JetStreamOptions,
    Options,
    ScrubOptions,
    TrustOptions,
)
from jetraft.api.options.tls import TlsOptions
from jetraft.api.options.websocket import WebSocketOptions
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.feature_level import FIRST, LEVEL
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.ids import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT

ROUTES_NEEDED = "JetStream cluster requires configured routes or solicited leafnode for the system account"


def _secrets(path: str | None) -> tuple[str, ...]:
    if not path:
        return ()
    from jetraft.api.config.secret_file import SecretFileError, secrets_in  # noqa: PLC0415  only where there is one

    try:
        return secrets_in(path)
    except SecretFileError as error:
        raise OptionsError(str(error)) from None


def cluster_options(settings: Settings) -> ClusterOptions | None:
    """Return the cluster block; None if no address, port or route is configured."""
    if not any(settings.get(key) for key in ("cluster_listen", "cluster_port", "routes")):
        return None
    host, port, secret = split_url(settings.get("cluster_listen") or "nats://0.0.0.0:0", default_port=6222)
    secrets = _secrets(settings.get("cluster_secret_file"))
    if secrets and (settings.get("cluster_secret") or secret):
        raise OptionsError("cluster: secret_file beside another secret")
    return ClusterOptions(
        name=settings.get("cluster_name") or "",
        host=settings.get("cluster_host") or host or "0.0.0.0",  # noqa: S104  nats-server's default
        port=settings.get("cluster_port") or port,
        routes=tuple(settings.get("routes") or ()),
        advertise=settings.get("cluster_advertise") or "",
        no_advertise=bool(settings.get("no_advertise")),
        secret=secrets[0] if secrets else settings.get("cluster_secret") or secret,
        old_secrets=tuple(secrets[1:]),
        connect_retries=settings.get("connect_retries") or 0,
        tls=_tls_of_links(settings),
        bulk_bytes_per_s=settings.get("bulk_bytes_per_s") or CLUSTER_BULK_BYTES_PER_S,
        permissions=settings.get("cluster_permissions") or settings.get("cluster_user_permissions"),
        wishes_compression=bool(settings.get("cluster_compression")),
        reconnect_when_cut_off=bool(settings.get("reconnect_when_cut_off")),
    )


def _tls_of_links(settings: Settings) -> ClusterTls | None:
    """TLS between nodes, with the hosts of routes where certificates are to be for one of them."""
    found: ClusterTls | None = settings.get("cluster_tls")
    if found is None or found.known_hosts is None:
        return found
    hosts = (split_url(route, default_port=0)[0].lower() for route in settings.get("routes") or ())
    return attrs.evolve(found, known_hosts=tuple(dict.fromkeys(hosts)))


def jetstream_options(settings: Settings) -> JetStreamOptions | None:
    """Return the jetstream block; None if JetStream is not enabled. Raises OptionsError."""
    if not settings.get("jetstream"):
        return None
    engine = settings.get("raft_engine") or "core"
    if engine not in ("core", "pysyncobj"):
        raise OptionsError(f'jetstream raft_engine must be "core" or "pysyncobj", not "{engine}"')
    level = settings.get("feature_level", LEVEL)
    if not FIRST <= level <= LEVEL:
        raise OptionsError(f"jetstream feature_level must be from {FIRST} to {LEVEL}, not {level}")
    return JetStreamOptions(
        store_dir=settings.get("store_dir") or "",
        max_memory_store_bytes=settings.get("max_memory_store") or 0,
        max_file_store_bytes=settings.get("max_file_store") or 0,
        unique_tag=settings.get("unique_tag") or "",
        domain=settings.get("domain") or "",
        raft_engine=engine,
        cipher=settings.get("cipher") or "chachapoly",
        limits=server_limits(settings),
        strict=settings.get("jetstream_strict", True),
        streams=settings.get("declared_streams") or (),
        legacy_api=bool(settings.get("legacy_api")),
        feature_level=level,
        key=settings.get("encryption_key") or "",
        prev_key=settings.get("prev_encryption_key") or "",
        scrub=ScrubOptions(
            period_ns=settings.get("scrub_period_ns", SCRUB_PERIOD_NS),
            bytes_per_s=settings.get("scrub_bytes_per_s", SCRUB_BYTES_PER_S),
            compare_ns=settings.get("scrub_compare_ns", SCRUB_PERIOD_NS),
        ),
    )


def auth_rules(settings: Settings) -> AuthRules:
    """The users that may connect; a flag wins over the one user or the token of the file. Raises OptionsError."""
    found = (*(settings.get("users") or ()), *(settings.get("account_users") or ()))
    names = [user.name if isinstance(user, PasswordUser) else user.nkey for user in found]
    for name, count in Counter(names).items():
        if count > 1:
            raise OptionsError(f'Duplicate user "{name}" detected')
    rules = AuthRules(
        users=tuple(user for user in found if isinstance(user, PasswordUser)),
        nkeys=tuple(user for user in found if isinstance(user, NkeyUser)),
        username=settings.get("user") or "",
        password=Secret(settings.get("password") or ""),
        token=Secret(settings.get("token") or ""),
        no_auth_user=settings.get("no_auth_user") or "",
        callout=settings.get("callout"),
        proxy_required=bool(settings.get("proxy_required")),
    )
    if rules.callout is not None:
        from jetraft.api.config.accounts.callout import check_callout  # noqa: PLC0415  few servers have one

        check_callout(rules, frozenset({GLOBAL_ACCOUNT, *(one.name for one in settings.get("accounts") or ())}))
    name = rules.no_auth_user
    if name and not found:
        raise OptionsError(f'no_auth_user: "{name}" present, but users/nkeys are not defined')
    if name and name not in rules.by_name and name not in rules.by_nkey:
        where = "authorization block or account configuration"
        raise OptionsError(f'no_auth_user: "{name}" not present as user or nkey in {where}')
    return rules


def trust_of(settings: Settings) -> TrustOptions | None:
    """Operator mode, when it was asked for."""
    asked = ("operators", "trusted_keys", "resolver", "resolver_preload", "pinned_accounts", "default_sentinel")
    if not any(settings.get(key) for key in asked):
        return None
    from jetraft.api.config.accounts.operators import trust_options  # noqa: PLC0415  only servers with operators pay for it

    return trust_options(settings)


def system_account(settings: Settings, trust: TrustOptions | None) -> str:
    """The account that is the system's; empty: none. Raises OptionsError."""
    if trust is not None:
        return trust.system_account or SYSTEM_ACCOUNT
    name = settings.get("system_account") or ""
    if settings.get("no_system_account"):
        if name:
            raise OptionsError("system_account and no_system_account are mutually exclusive")
        exports = [one for account in settings.get("accounts") or () for one in account.sharing.exports]
        if found := next((one for one in exports if one.latency is not None), None):
            where = f"Error adding service latency sampling for {go_quote(found.subject)}"
            raise OptionsError(f"{where}: system account not setup")
        return ""
    if name and name not in {SYSTEM_ACCOUNT, *(account.name for account in settings.get("accounts") or ())}:
        raise OptionsError(f'system_account "{name}" is not an account of the configuration')
    return name or SYSTEM_ACCOUNT


def check_ports(settings: Settings, cluster: ClusterOptions | None) -> None:
    """Raise OptionsError for a port out of range; 0 means the default, -1 any free port."""
    ports = {
        "port": settings.get("port"),
        "http_port": settings.get("http_port"),
        "https_port": settings.get("https_port"),
    }
    if cluster is not None:
        ports["cluster port"] = cluster.port
    for name, port in ports.items():
        if port is not None and not RANDOM_PORT <= port <= PORT_MAX:
            raise OptionsError(f"{name}: expected a port from {RANDOM_PORT} to {PORT_MAX}, got {port}")


def tls_of(settings: Settings) -> TlsOptions | None:
    """TLS for clients, from flags or the block, when it was asked for."""
    if not any(settings.get(key) for key in ("tls", "tls_flag", "tls_verify", "tls_cert", "tls_key", "tls_ca_cert")):
        return None
    from jetraft.api.config.tls import from_flags  # noqa: PLC0415  only servers with TLS pay for it

    return from_flags(settings)


def leaf_options(settings: Settings, trust: TrustOptions | None) -> LeafOptions | None:
    """Leaf nodes and hubs. Raises OptionsError for an account that is not configured."""
    options: LeafOptions | None = settings.get("leafnodes")
    if options is None or not (options.listens or options.remotes):
        return None
    if trust is not None:
        return leaf_options_of_operators(options)
    named = (account.name for account in settings.get("accounts") or ())
    known = {GLOBAL_ACCOUNT, system_account(settings, trust), *named}
    users = [options.account or GLOBAL_ACCOUNT, *(user.account for user in options.auth.users)]
    for account in users:
        if account not in known:
            raise OptionsError(f'cannot find local account "{account}" specified in leafnode authorization')
    for remote in options.remotes:
        if remote.account not in known:
            raise OptionsError(f'cannot find local account "{remote.account}" specified in leafnode remote')
    return options


def check_extension(settings: Settings, system: str, leafs: LeafOptions | None) -> None:
    """Raise OptionsError where the JetStream of a leaf node is to become a part of its hub's, which it never does.

    As in nats-server it can where the two share the system account; elsewhere the hint changes nothing.
    """
    remotes = leafs.remotes if leafs is not None else ()
    is_asked = str(settings.get("extension_hint")).lower() == "will_extend"
    if is_asked and settings.get("jetstream") and any(remote.account == system for remote in remotes):
        raise OptionsError("extension_hint: will_extend with a hub of the system account is not served by jetraft yet")


def leaf_options_of_operators(options: LeafOptions) -> LeafOptions:
    """The same where operators sign accounts and users. Raises OptionsError."""
    if options.auth.required:
        raise OptionsError("operator mode does not allow specifying users in leafnode config")
    for remote in options.remotes:
        if not is_account_key(remote.account):
            raise OptionsError(
                "operator mode requires account nkeys in remotes. Please add an `account` key to each remote in your "
                "`leafnodes` section, to assign it to an account. Each account value should be a 56 character public "
                "key, starting with the letter 'A'"
            )
    return options


def websocket_of(settings: Settings, rules: AuthRules, trust: TrustOptions | None) -> WebSocketOptions | None:
    """The listener for WebSocket, when it was asked for."""
    if not settings.get("websocket"):
        return None
    from jetraft.api.config.websocket import built  # noqa: PLC0415  only servers with WebSocket pay for it

    return built(settings["websocket"], rules, has_operators=trust is not None)


PLAIN = (
    "host", "port", "server_name", "client_advertise", "http_host", "http_port", "https_port", "http_base_path",
    "auth_timeout_ns", "max_payload_bytes", "max_control_line_bytes", "max_pending_bytes", "max_connections",
    "max_unauthenticated_per_address", "max_closed_clients", "max_subscriptions", "max_sub_tokens",
    "no_fast_producer_stall", "default_js_domain", "proxy_protocol", "write_timeout", "feature_flags",
    "ping_interval_ns", "ping_max", "write_deadline_ns",
    "lame_duck_duration_ns", "lame_duck_grace_period_ns", "logtime", "logtime_utc", "log_format", "log_file",
    "log_size_limit", "log_max_num", "max_traced_msg_len", "no_header_support", "pid_file", "ports_file_dir",
    "server_tags", "syslog", "remote_syslog", "server_metadata", "http_gateway", "config_file", "config_digest",
)  # fmt: skip


def build_options(settings: Settings) -> Options:
    """Return the options. Raises OptionsError or FlagError with one line."""
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
    tls = tls_of(settings)
    if tls is not None:  # a client that says nothing is to hear of the handshake, not of its name
        plain.setdefault("auth_timeout_ns", tls.timeout_ns + NS_PER_S)
    trust, rules = trust_of(settings), auth_rules(settings)
    system, leafs = system_account(settings, trust), leaf_options(settings, trust)
    check_extension(settings, system, leafs)
    options = Options(
        **plain,
        auth=rules,
        trust=trust,
        websocket=websocket_of(settings, rules, trust),
        accounts=tuple(settings.get("accounts") or ()),
        mappings=tuple(settings.get("mappings") or ()),
        proxies=tuple(settings.get("proxies") or ()),
        system_account=system,
        tls=tls,
        debug=bool(settings.get("debug") or both),
        trace=bool(settings.get("trace") or both or verbose or settings.get("trace_headers")),
        trace_verbose=bool(verbose),
        trace_headers=bool(settings.get("trace_headers")),
        jetstream=jetstream,
        cluster=cluster,
        leafnodes=leafs,
    )
    if not options.default_js_domain:
        return options
    from jetraft.api.config.accounts.js_domains import with_domains  # noqa: PLC0415  few servers have one

    return with_domains(options, dict(options.default_js_domain))
