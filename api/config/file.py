"""Reads a configuration file into the same settings as flags.

Every error has the place, `file:line:column`, and the key. A key of nats-server that is not served yet is refused as
such, any other as unknown: an ignored limit or permission is worse than a server that does not start.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from jetraft.api.config import asks_nothing, queues, without_effect
from jetraft.api.config.accounts.accounts import accounts
from jetraft.api.config.accounts.authorization import authorization, check_alone
from jetraft.api.config.accounts.mappings import mappings
from jetraft.api.config.blocks import Apply, apply_all, put, put_address, spelled
from jetraft.api.config.feature_flags import feature_flags
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import ConfigError, Parser, Table
from jetraft.api.config.jetstream_limits import jetstream_limits
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import (
    boolean,
    bounded_bytes,
    cipher,
    duration_ns,
    go_duration_ns,
    integer,
    log_format,
    name_without_spaces,
    pairs,
    secret_text,
    size_bytes,
    text,
    texts,
)
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import format_duration

SHORTEST_LAME_DUCK_NS = 30 * NS_PER_S
CLOSED_CLIENTS_MAX = 1_000_000  # some KB of memory each
SUB_TOKENS_MAX = 255  # of nats-server, which counts in a byte
DOMAIN_BYTES_MAX = 255  # api/plane: plane_t.domain
CONFIG_BYTES_MAX = 4 * 1024 * 1024  # the file is read into memory; nats-server has no limit


def lame_duck_duration_ns(_key: str, value: object) -> int:
    """How long lame duck mode takes: half a minute or more."""
    found_ns = go_duration_ns("lame_duck_duration", value)
    if found_ns < SHORTEST_LAME_DUCK_NS:
        shown = format_duration(found_ns)
        raise OptionsError(f"invalid lame_duck_duration of {shown}, minimum is 30 seconds")
    return found_ns


def lame_duck_grace_period_ns(_key: str, value: object) -> int:
    """How long it waits first."""
    found_ns = go_duration_ns("lame_duck_grace_period", value)
    if found_ns < 0:
        raise OptionsError("invalid lame_duck_grace_period, needs to be positive")
    return found_ns


def period_ns(key: str, value: object) -> int | None:
    """A duration in nanoseconds, or None for `off`, which the grammar reads as false."""
    return None if value is False or str(value).lower() == "off" else duration_ns(key, value)


def scrub(settings: Settings, value: object) -> None:
    """`scrub { period, rate, compare }`, unknown to nats-server: durations or `off`; rate in bytes per second."""
    keys = {
        "period": put("scrub_period_ns", period_ns, "period"),
        "rate": put("scrub_bytes_per_s", integer, "rate"),
        "compare": put("scrub_compare_ns", period_ns, "compare"),
    }
    apply_all("jetstream.scrub", value, keys, settings)
    numbers = [settings.get(key, 1) for key in ("scrub_bytes_per_s", "scrub_period_ns", "scrub_compare_ns")]
    if any(number is not None and number <= 0 for number in numbers):
        raise OptionsError("jetstream.scrub: period, rate and compare must be positive, or times off")


def sync_interval(_settings: Settings, value: object) -> None:
    """Checked and ignored: every acknowledgement waits for its fsync, as with `always`."""
    if value != "always":
        duration_ns("sync_interval", value)


def store_dir(settings: Settings, value: object) -> None:
    """The directory of JetStream; in its block or at the top, and once. Raises OptionsError."""
    if settings.get("store_dir"):
        raise OptionsError("Duplicate 'store_dir' configuration")
    settings["store_dir"] = text("store_dir", value)


def per_address(settings: Settings, value: object) -> None:
    """How many connections of an address may be on their way to a login; 0: any number."""
    count = integer("max_unauthenticated_per_address", value)
    if count < 0:
        raise OptionsError(f"max_unauthenticated_per_address: expected 0 or more, got {count}")
    settings["max_unauthenticated_per_address"] = count


def closed_clients(settings: Settings, value: object) -> None:
    """How many connections that have ended are shown; 0: the default, as in nats-server."""
    count = integer("max_closed_clients", value)
    if not 0 <= count <= CLOSED_CLIENTS_MAX:
        raise OptionsError(f"max_closed_clients: expected a number from 0 to {CLOSED_CLIENTS_MAX}, got {count}")
    settings["max_closed_clients"] = count or None


def jetstream(settings: Settings, value: object) -> None:
    """`jetstream: enabled`, `jetstream: true` or a block."""
    if isinstance(value, bool):
        settings["jetstream"] = value
    elif isinstance(value, str):
        if value.lower() not in ("enabled", "enable", "disabled", "disable"):
            raise OptionsError(f"expected 'enabled' or 'disabled' for jetstream, got {value!r}")
        settings["jetstream"] = value.lower().startswith("enable")
    else:
        settings["jetstream"] = True
        apply_all("jetstream", value, JETSTREAM, settings)


def tls(settings: Settings, value: object) -> None:
    """TLS for clients: the block, its files looked at."""
    from jetraft.api.config.tls import tls as read  # noqa: PLC0415  only servers with TLS pay for it

    read(settings, value)


def leafnodes(settings: Settings, value: object) -> None:
    """Leaf nodes and hubs."""
    from jetraft.api.config.leafnodes import leafnodes as read  # noqa: PLC0415  only servers with leaf nodes pay for it

    read(settings, value)


def of_operators(name: str) -> Apply:
    """A key of operator mode; `name` is the function in config/accounts/operators.py that reads it."""

    def apply(settings: Settings, value: object) -> None:
        from jetraft.api.config.accounts import operators  # noqa: PLC0415  only servers with operators pay for it

        getattr(operators, name)(settings, value)

    return apply


def of_resolvers(name: str) -> Apply:
    """The same for config/accounts/resolvers.py."""

    def apply(settings: Settings, value: object) -> None:
        from jetraft.api.config.accounts import resolvers  # noqa: PLC0415  only servers with operators pay for it

        getattr(resolvers, name)(settings, value)

    return apply


def proxies(settings: Settings, value: object) -> None:
    """Which proxies may speak for clients."""
    from jetraft.api.config.accounts.proxies import proxies as read  # noqa: PLC0415  few servers have one

    read(settings, value)


def websocket(settings: Settings, value: object) -> None:
    """The listener for WebSocket."""
    from jetraft.api.config.websocket import websocket as read  # noqa: PLC0415  only servers with WebSocket pay for it

    read(settings, value)


def cluster(settings: Settings, value: object) -> None:
    """Peers."""
    from jetraft.api.config.cluster import cluster as read  # noqa: PLC0415  only members of a cluster pay for it

    read(settings, value)


def http_gateway(settings: Settings, value: object) -> None:
    """The listener for HTTP publishes."""
    from jetraft.api.config.http_gateway import http_gateway as read  # noqa: PLC0415  few servers have one

    read(settings, value)


def streams(settings: Settings, value: object) -> None:
    """Streams that are made at the start."""
    from jetraft.api.config.declared import streams as read  # noqa: PLC0415  few servers have some

    read(settings, value)


def domain(key: str, value: object) -> str:
    """The name of a domain: one token of a subject."""
    name = text(key, value)
    if not name.isprintable() or set(name) & set(" .*>") or len(name.encode()) > DOMAIN_BYTES_MAX:
        raise OptionsError(f"invalid domain name: {name!r} is not one token of a subject")
    return name


JETSTREAM: Mapping[str, Apply] = {
    **spelled(put("jetstream", boolean, "enabled"), "enabled", "enable"),
    **spelled(store_dir, "store_dir", "storedir", "store"),
    **spelled(put("max_memory_store", size_bytes, "max_mem_store"), "max_memory_store", "max_mem_store", "max_mem"),
    **spelled(put("max_file_store", size_bytes), "max_file_store", "max_file"),
    **without_effect.OF_JETSTREAM,
    "unique_tag": put("unique_tag", text),
    "domain": put("domain", domain),
    "strict": put("jetstream_strict", boolean, "strict"),
    "extension_hint": put("extension_hint", text),
    "tpm": asks_nothing.tpm,
    **spelled(sync_interval, "sync_interval", "sync"),
    "raft_engine": put("raft_engine", text),
    "scrub": scrub,
    "limits": jetstream_limits,
    **{key: put(key, size_bytes if key in queues.SIZES else integer) for key in queues.KEYS},
    "streams": streams,
    "legacy_api": put("legacy_api", boolean),
    "feature_level": put("feature_level", integer),
    "cipher": put("cipher", cipher),
    **spelled(put("encryption_key", secret_text), "key", "ek", "encryption_key"),
    **spelled(put("prev_encryption_key", secret_text), "prev_key", "prev_ek", "prev_encryption_key"),
}


def sub_tokens(key: str) -> Apply:
    """How many tokens the subject of a subscription may have, under one of the names of the key."""

    def apply(settings: Settings, value: object) -> None:
        found = integer(key, value)
        if found <= 0:
            raise OptionsError(f"{key} value can not be negative")
        if found > SUB_TOKENS_MAX:
            raise OptionsError(f"{key} value is too big")
        settings["max_sub_tokens"] = found

    return apply


def js_domains(key: str, value: object) -> tuple[tuple[str, str], ...]:
    """`default_js_domain { account: domain }`."""
    if not isinstance(value, Table):
        raise OptionsError(f"error {key} config: unsupported type {go_type(value)}")
    return tuple((account, text(key, domain)) for account, domain in value.items())


def tags(key: str, value: object) -> tuple[str, ...]:
    """Tags in small letters, each once, as nats-server has them."""
    return tuple(dict.fromkeys(tag.strip().lower() for tag in texts(key, value)))


TOP: Mapping[str, Apply] = {
    **without_effect.AT_THE_TOP,
    **asks_nothing.TOP,
    "listen": put_address("host", "port"),
    **spelled(put("host", text), "host", "net"),
    "port": put("port", integer),
    "server_name": put("server_name", name_without_spaces),
    "client_advertise": put("client_advertise", text),
    "http": put_address("http_host", "http_port"),
    **spelled(put("http_port", integer), "http_port", "monitor_port"),
    "https": put_address("http_host", "https_port"),
    "https_port": put("https_port", integer),
    "http_base_path": put("http_base_path", text),
    "authorization": authorization,
    "accounts": accounts,
    **spelled(put("mappings", mappings), "mappings", "maps"),
    **spelled(put("system_account", text), "system_account", "system"),
    **spelled(put("no_system_account", boolean), "no_system_account", "no_system", "no_sys_acc"),
    **spelled(of_operators("operators"), "operator", "operators", "root", "roots", "root_operator", "root_operators"),
    **spelled(of_resolvers("resolver"), "resolver", "account_resolver", "accounts_resolver"),
    "resolver_tls": of_resolvers("resolver_tls"),
    "resolver_preload": of_operators("preload"),
    "resolver_pinned_accounts": of_operators("pinned"),
    **spelled(of_operators("trusted_keys"), "trusted", "trusted_keys"),
    "default_sentinel": put("default_sentinel", secret_text),
    "proxies": proxies,
    "no_auth_user": put("no_auth_user", text),
    "cluster": cluster,
    "jetstream": jetstream,
    **spelled(store_dir, "store_dir", "storedir"),
    "tls": tls,
    **spelled(leafnodes, "leafnodes", "leaf"),
    **spelled(websocket, "websocket", "ws"),
    "http_gateway": http_gateway,
    "allow_non_tls": put("allow_non_tls", boolean),
    "max_payload": put("max_payload_bytes", bounded_bytes, "max_payload"),
    "max_control_line": put("max_control_line_bytes", bounded_bytes, "max_control_line"),
    "max_pending": put("max_pending_bytes", integer, "max_pending"),
    **spelled(put("max_connections", integer), "max_connections", "max_conn"),
    **spelled(put("max_subscriptions", integer), "max_subscriptions", "max_subs"),
    **{key: sub_tokens(key) for key in ("max_sub_tokens", "max_subscription_tokens")},
    "write_timeout": put("write_timeout", without_effect.write_timeout),
    "feature_flags": put("feature_flags", feature_flags),
    "proxy_protocol": put("proxy_protocol", boolean),
    "no_fast_producer_stall": put("no_fast_producer_stall", boolean),
    "default_js_domain": put("default_js_domain", js_domains),
    "max_unauthenticated_per_address": per_address,
    "max_closed_clients": closed_clients,
    "ping_interval": put("ping_interval_ns", duration_ns, "ping_interval"),
    "ping_max": put("ping_max", integer),
    "write_deadline": put("write_deadline_ns", duration_ns, "write_deadline"),
    "lame_duck_duration": put("lame_duck_duration_ns", lame_duck_duration_ns),
    "lame_duck_grace_period": put("lame_duck_grace_period_ns", lame_duck_grace_period_ns),
    "debug": put("debug", boolean),
    "trace": put("trace", boolean),
    "trace_verbose": put("trace_verbose", boolean),
    "trace_headers": put("trace_headers", boolean),
    "max_traced_msg_len": put("max_traced_msg_len", integer),
    "no_header_support": put("no_header_support", boolean),
    **spelled(put("logtime", boolean), "logtime", "log_time"),
    "logtime_utc": put("logtime_utc", boolean),
    "log_format": put("log_format", log_format),
    **spelled(put("log_file", text), "log_file", "logfile"),
    "syslog": put("syslog", boolean),
    "remote_syslog": put("remote_syslog", text),
    **spelled(put("log_size_limit", integer), "log_size_limit", "logfile_size_limit"),
    **spelled(put("log_max_num", integer), "log_max_num", "logfile_max_num"),
    **spelled(put("pid_file", text), "pid_file", "pidfile"),
    "ports_file_dir": put("ports_file_dir", text),
    "server_tags": put("server_tags", tags),
    "server_metadata": put("server_metadata", pairs),
}


def load_settings(path: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a file and its includes. Raises OptionsError with one line."""
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise OptionsError(f"configuration file {path} is larger than {CONFIG_BYTES_MAX} bytes")
        raw = path.read_bytes()
        parser = Parser(
            raw.decode(),
            str(path),
            lambda name: (path.parent / name).read_text(encoding="utf-8"),
            environment or os.environ,
        )
        document: Table = parser.parse()
    except OSError as error:
        raise OptionsError(f"error opening config file: open {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionsError(f"{path}: {error}") from error
    except ConfigError as error:
        raise OptionsError(str(error)) from error
    settings: Settings = {"config_file": str(path), "config_digest": "sha256:" + hashlib.sha256(raw).hexdigest()}
    apply_all("", document, TOP, settings)
    if settings.get("account_users"):
        check_alone(settings)
    return settings
