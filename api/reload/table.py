"""How each option reloads: the one place that says so. Pure.

An option is followed, with nats-server's line in the log and a step of `Reloader`, or a change of it is refused with
nats-server's text. A field of `Options` that is not in the table is found by a test.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

import attrs

from jetraft.api.options.options import (
    ClusterOptions,
    JetStreamOptions,
    Options,
    ReloadError,
    ResolverOptions,
    TrustOptions,
)
from jetraft.api.options.tls import TlsOptions
from jetraft.api.reload import leafnodes
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import format_duration
from jetraft.store.model.ids import SYSTEM_ACCOUNT

ABSENT: Final = None
MIB: Final = 1 << 20


class Step(Enum):
    """The consequence of a change; each is done once for all changes that ask for it."""

    NOTHING = auto()  # who uses the option reads it when it is needed
    LOG = auto()
    LIMITS = auto()
    TIMEOUT = auto()
    AUTH = auto()
    ADVERTISE = auto()
    FILES = auto()
    ROUTES = auto()
    ROUTE_PERMISSIONS = auto()
    PROFILE = auto()
    LEAFNODES = auto()
    STALLS = auto()


@attrs.frozen(kw_only=True, slots=True)
class Followed:
    """The option is followed. `line` is logged with the new value in the place of braces; empty: nothing is."""

    line: str = ""
    step: Step = Step.NOTHING
    show: Callable[[Any], str] = str


@attrs.frozen(kw_only=True, slots=True)
class Refused:
    """A change is refused. `title` is nats-server's name; without `with_values` the text ends with it."""

    title: str
    show: Callable[[Any], str] = str
    with_values: bool = True


@attrs.frozen(kw_only=True, slots=True)
class Grows(Followed):
    """A size in bytes, 0 where the server chooses it: it is followed when it was configured and becomes larger."""

    def refusal(self, before: int, after: int) -> str:
        """Why it is not followed, in nats-server's words; empty: it is."""
        if not before:
            return "jetstream dynamic max memory and store"
        if not after:
            return "jetstream max memory and max store"
        return "decreasing jetstream max memory and store" if after < before else ""


@attrs.frozen(kw_only=True, slots=True)
class Judged(Followed):
    """The verdict of `judge` about two values decides: empty, and the change is followed, or why it is not."""

    judge: Callable[[Any, Any], str]

    def refusal(self, before: Any, after: Any) -> str:
        """As for Grows."""
        return self.judge(before, after)


How = Followed | Refused


def go_bool(value: Any) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def go_not(value: Any) -> str:
    """The other one."""
    return go_bool(not value)


def go_switch(value: Any) -> str:
    """On or off."""
    return "enabled" if value else "disabled"


def seconds(value_ns: int) -> str:
    """A number of seconds, as Go prints a float."""
    return f"{value_ns / NS_PER_S:g}"


def size(value: int) -> str:
    """Bytes for people, as nats-server prints them."""
    return f"{value / MIB:.2f} MB"


def go_map(value: Any) -> str:
    """A map as Go prints it."""
    return f"map[{' '.join(f'{key}:{one}' for key, one in sorted(value))}]"


def go_flags(value: Any) -> str:
    """Flags as Go prints a map of them."""
    return go_map((name, go_bool(flag)) for name, flag in value)


def not_stalled(value: Any) -> str:
    """A word of the line."""
    return "not " if value else ""


def shown_account(name: str) -> str:
    """The system account where it is configured."""
    return "" if name == SYSTEM_ACCOUNT else name


def same_resolver(before: ResolverOptions, after: ResolverOptions) -> str:
    """Another URL and other TLS are followed; another kind of resolver, or another directory, is not."""
    return "" if before.kind == after.kind == "url" else "AccountResolver"


def log_line(name: str) -> Followed:
    """An option of the log that is on or off."""
    return Followed(line=f"{name} = {{}}", step=Step.LOG, show=go_bool)


def not_supported(title: str) -> Refused:
    """A part of the configuration that cannot be told in a line."""
    return Refused(title=title, with_values=False)


# In the order in which nats-server logs them.
HOW: Final[Mapping[str, How]] = {
    "server_name": Refused(title="ServerName"),
    "host": Refused(title="Host"),
    "port": Refused(title="Port"),
    "client_advertise": Followed(line="client_advertise = {}", step=Step.ADVERTISE),
    "debug": log_line("debug"),
    "trace": log_line("trace"),
    "trace_verbose": log_line("trace_verbose"),
    "trace_headers": log_line("trace_headers"),
    "max_traced_msg_len": Followed(line="max_traced_msg_len = {}"),
    "no_header_support": Refused(title="NoHeaderSupport", show=go_bool),
    "logtime": log_line("logtime"),
    "logtime_utc": log_line("logtime_utc"),
    "log_format": Followed(line="log_format = {}", step=Step.LOG),
    "max_connections": Followed(line="max_connections = {}"),
    "max_unauthenticated_per_address": Followed(line="max_unauthenticated_per_address = {}", step=Step.TIMEOUT),
    "max_closed_clients": Refused(title="MaxClosedClients"),
    "max_subscriptions": Refused(title="MaxSubs"),
    "max_sub_tokens": Refused(title="MaxSubTokens"),
    "default_js_domain": Refused(title="JsAccDefaultDomain", show=go_map),
    "write_timeout": Refused(title="WriteTimeout"),
    "feature_flags": Refused(title="FeatureFlags", show=go_flags),
    "proxy_protocol": Refused(title="ProxyProtocol", show=go_bool),
    "no_fast_producer_stall": Followed(line="fast producers will {}be stalled", show=not_stalled, step=Step.STALLS),
    "auth.users": Followed(line="authorization users", step=Step.AUTH),
    "auth.nkeys": Followed(line="authorization nkey users", step=Step.AUTH),
    "accounts": Followed(line="accounts", step=Step.AUTH),
    "auth.no_auth_user": Refused(title="NoAuthUser"),
    "auth.callout": not_supported("AuthCallout"),
    "auth.proxy_required": not_supported("ProxyRequired"),
    "proxies": not_supported("Proxies"),
    "trust": not_supported("TrustedOperators"),
    "trust.rules": not_supported("TrustedOperators"),
    "trust.resolver": Judged(line="accounts", judge=same_resolver),
    "trust.preload": not_supported("resolver_preload"),
    "trust.system_account": Refused(title="SystemAccount"),
    "no_system_account": Refused(title="NoSystemAccount", show=go_bool),
    "mappings": Followed(line="accounts"),
    "system_account": Refused(title="SystemAccount", show=shown_account),
    "auth.username": Followed(line="authorization username", step=Step.AUTH),
    "auth.password": Followed(line="authorization password", step=Step.AUTH),
    "auth.token": Followed(line="authorization token", step=Step.AUTH),
    "ping_interval_ns": Followed(line="ping_interval = {}", show=format_duration),
    "ping_max": Followed(line="ping_max = {}"),
    "http_port": Refused(title="HTTPPort"),
    "https_port": Refused(title="HTTPSPort"),
    "http_host": Refused(title="HTTPHost"),
    "http_base_path": Refused(title="HTTPBasePath"),
    "auth_timeout_ns": Followed(line="authorization timeout = {}", step=Step.TIMEOUT, show=seconds),
    "max_control_line_bytes": Followed(line="max_control_line = {}", step=Step.LIMITS),
    "max_payload_bytes": Followed(line="max_payload = {}", step=Step.LIMITS),
    "max_pending_bytes": Refused(title="MaxPending"),
    "max_unread_bytes": Refused(title="MaxUnread"),
    "cluster": not_supported("Cluster"),
    "cluster.name": Refused(title="cluster name"),
    "cluster.host": Refused(title="cluster host"),
    "cluster.port": Refused(title="cluster port"),
    "cluster.routes": Followed(line="cluster routes", step=Step.ROUTES),
    "cluster.advertise": Refused(title="cluster advertise"),
    "cluster.no_advertise": Refused(title="cluster no_advertise", show=go_bool),
    "cluster.secret": not_supported("cluster authorization"),
    "cluster.old_secrets": not_supported("cluster authorization"),
    "cluster.connect_retries": Followed(line="cluster"),
    "cluster.reconnect_when_cut_off": Followed(line="cluster reconnect_when_cut_off"),
    "cluster.tls": not_supported("cluster tls"),
    "cluster.wishes_compression": Followed(),  # it has no effect
    "cluster.permissions": Followed(line="cluster", step=Step.ROUTE_PERMISSIONS),
    "cluster.bulk_bytes_per_s": Refused(title="cluster bulk_rate"),
    "cluster.max_waiting_bytes": Refused(title="cluster MaxWaiting"),
    "jetstream": not_supported("JetStream"),
    "jetstream.store_dir": not_supported("jetstream storage directory"),
    "jetstream.max_memory_store_bytes": Grows(line="JetStream max_mem_store = {}", step=Step.PROFILE, show=size),
    "jetstream.max_file_store_bytes": Grows(line="JetStream max_file_store = {}", step=Step.PROFILE, show=size),
    "jetstream.domain": Refused(title="JetStreamDomain"),
    "jetstream.cache_bytes_max": not_supported("JetStream cache"),
    "jetstream.cipher": not_supported("JetStreamCipher"),
    "jetstream.key": not_supported("JetStreamKey"),
    "jetstream.prev_key": not_supported("JetStreamOldKey"),
    "jetstream.raft_engine": Refused(title="JetStream raft_engine"),
    "jetstream.unique_tag": Refused(title="JetStreamUniqueTag"),
    "jetstream.scrub": not_supported("JetStream scrub"),
    "jetstream.limits": not_supported("JetStreamLimits"),
    "jetstream.strict": Refused(title="NoJetStreamStrict", show=go_not),
    "jetstream.streams": not_supported("JetStream streams"),
    "jetstream.legacy_api": not_supported("JetStream legacy_api"),
    "jetstream.feature_level": not_supported("JetStream feature_level"),
    "log_file": Followed(line="log_file = {}", step=Step.LOG),
    "syslog": log_line("syslog"),
    "remote_syslog": Followed(line="remote_syslog = {}", step=Step.LOG),
    "log_size_limit": Refused(title="LogSizeLimit"),
    "log_max_num": Refused(title="LogMaxFiles"),
    "pid_file": Followed(line="pid_file = {}", step=Step.FILES),
    "ports_file_dir": Followed(line="ports_file_dir = {}", step=Step.FILES),
    "server_tags": Followed(line="tags", step=Step.PROFILE),
    "server_metadata": Followed(line="metadata"),
    "tls": Followed(line="tls = {}", show=go_switch),
    "tls.options": Followed(line="tls = enabled"),
    "tls.allow_non_tls": Refused(title="AllowNonTLS", show=go_bool),
    "leafnodes": Judged(step=Step.LEAFNODES, judge=leafnodes.refusal),
    "websocket": not_supported("Websocket"),
    "http_gateway": not_supported("HTTP gateway"),
    "websocket.tls": Followed(),
    "write_deadline_ns": Followed(line="write_deadline = {}", show=format_duration),
    "lame_duck_duration_ns": Refused(title="LameDuckDuration", show=format_duration),
    "lame_duck_grace_period_ns": Refused(title="LameDuckGracePeriod", show=format_duration),
    "config_file": Followed(),
    "config_digest": Followed(),
}


@attrs.frozen(kw_only=True, slots=True)
class OptionChange:
    """An option that is different now, and how it is followed."""

    key: str
    how: Followed
    value: Any

    @property
    def line(self) -> str:
        """The log line; nats-server writes one of them in its own way."""
        if not self.how.line or (self.key == "pid_file" and not self.value):
            return ""
        head = "Reload" if self.key == "client_advertise" else "Reloaded"
        return f"{head}: {self.how.line.format(self.how.show(self.value))}"


def flat(options: Options) -> dict[str, Any]:
    """The options by the keys of the table. A part that is not configured is False, and its own options are missing."""
    found: dict[str, Any] = {}
    for field in attrs.fields(Options):
        value = getattr(options, field.name)
        if field.name == "auth" or isinstance(value, JetStreamOptions | ClusterOptions | TrustOptions):
            parts = [part.name for part in attrs.fields(type(value)) if part.init]
            found |= {f"{field.name}.{part}": getattr(value, part) for part in parts}
        if field.name in ("jetstream", "cluster", "tls", "trust"):
            found[field.name] = value is not None
        elif field.name != "auth":
            found[field.name] = value
    if options.websocket is not None and options.websocket.tls is not None:
        found["websocket"] = attrs.evolve(options.websocket, tls=TlsOptions())
        found["websocket.tls"] = options.websocket.tls
    found["no_system_account"] = not options.system_account
    if options.tls is not None:
        found["tls.options"] = options.tls
    found["tls.allow_non_tls"] = options.tls is not None and options.tls.allow_non_tls
    return found


def changes(old: Options, new: Options) -> list[OptionChange]:
    """The differences, in the order of the table. Raises ReloadError for the first that cannot change."""
    before, after = flat(old), flat(new)
    differing = [key for key in HOW if key in before and key in after and before[key] != after[key]]
    for key in differing:
        how = HOW[key]
        if isinstance(how, Refused):
            values = f": old={how.show(before[key])}, new={how.show(after[key])}" if how.with_values else ""
            raise ReloadError(f"config reload not supported for {how.title}{values}")
        if isinstance(how, Grows | Judged) and (why := how.refusal(before[key], after[key])):
            raise ReloadError(f"config reload not supported for {why}")
    if new.tls is not None and old.tls is not None and "tls.options" not in differing:
        differing.append("tls.options")  # the files may have changed
    found = []
    for key in differing:
        how = HOW[key]
        assert isinstance(how, Followed)
        found.append(OptionChange(key=key, how=how, value=after[key]))
    return found
