"""The keys of a configuration file, made into the settings that flags make too.

Every error names the place, `file:line:column`, and the key. A key of nats-server's that is not served yet is refused
as that, any other as unknown: a limit or a permission that is passed over is worse than a server that does not start.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jetraft.api.config.build import OptionsError, Settings
from jetraft.api.config.grammar import ConfigError, Parser, Table
from jetraft.api.config.not_served import NOT_SERVED
from jetraft.api.config.options import DEFAULT_HTTP_PORT, DEFAULT_PORT, ClusterTls, User
from jetraft.api.config.values import address, boolean, cipher, duration_ns, integer, pairs, table, text, texts

CONFIG_BYTES_MAX = 4 * 1024 * 1024  # a configuration is read whole; nats-server has no limit

Apply = Callable[[Settings, Any], None]


class PlacedError(OptionsError):
    """An OptionsError whose text begins with the place."""


def put(setting: str, convert: Callable[[str, Any], Any], key: str | None = None) -> Apply:
    """A key that is one setting; `key` is how the file spells it, where that differs."""

    def apply(settings: Settings, value: Any) -> None:
        settings[setting] = convert(key or setting, value)

    return apply


def put_address(host: str, port: str, default_port: int, key: str) -> Apply:
    """A key that is `host:port`, where either may be left out."""

    def apply(settings: Settings, value: Any) -> None:
        given_host, settings[port] = address(key, value, default_port=default_port)
        if given_host:
            settings[host] = given_host

    return apply


def spelled(apply: Apply, *keys: str) -> dict[str, Apply]:
    """One setting with several names."""
    return dict.fromkeys(keys, apply)


def authorization(settings: Settings, value: Any) -> None:
    """`authorization { user, password | token | users [...] , timeout }`."""
    found: Settings = {}
    keys: dict[str, Apply] = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", text), "pass", "password"),
        "token": put("token", text),
        "users": lambda into, users: into.__setitem__("users", tuple(user_of(item) for item in users_of(users))),
        "timeout": put("auth_timeout_ns", duration_ns, "timeout"),
    }
    apply_all("authorization", value, keys, found)
    users = list(found.get("users", ()))
    if "user" in found:
        users.append(User(name=found["user"], secret=found.get("password", "")))
    if "token" in found:
        users.append(User(name=None, secret=found["token"]))
    settings["users"] = tuple(users)
    if "auth_timeout_ns" in found:
        settings["auth_timeout_ns"] = found["auth_timeout_ns"]


def users_of(value: Any) -> list[Any]:
    """The list of users."""
    if not isinstance(value, list):
        raise OptionsError(f"expected users to be a list, got {value!r}")
    return value


def user_of(value: Any) -> User:
    """`{ user, password }`; anything else of a user (permissions above all) would be a promise that is not kept."""
    found: Settings = {}
    keys = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", text), "pass", "password"),
    }
    apply_all("authorization.users", value, keys, found)
    if not found.get("user"):
        raise OptionsError("a user needs a name")
    return User(name=found["user"], secret=found.get("password", ""))


def cluster_authorization(settings: Settings, value: Any) -> None:
    """The secret that peers must prove to have."""
    found: Settings = {}
    keys = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", text), "pass", "password"),
        "timeout": put("timeout", duration_ns),
    }
    apply_all("cluster.authorization", value, keys, found)
    settings["cluster_secret"] = f"{found.get('user', '')}:{found.get('password', '')}"


def cluster_tls(settings: Settings, value: Any) -> None:
    """Mutual TLS between nodes. As with nats-server both ends are verified, so `verify` can only be true."""
    found: Settings = {}
    files = ("cert_file", "key_file", "ca_file")
    apply_all("cluster.tls", value, {**{key: put(key, text) for key in files}, "verify": put("verify", boolean)}, found)
    if missing := [key for key in files if not found.get(key)]:
        raise OptionsError(f"cluster.tls needs {' and '.join(missing)}")
    if found.pop("verify", True) is not True:
        raise OptionsError("cluster.tls: connections between nodes are always verified")
    settings["cluster_tls"] = ClusterTls(**found)


def bulk_rate(settings: Settings, value: Any) -> None:
    """Bytes a second for snapshots and repairs, to each peer."""
    settings["bulk_bytes_per_s"] = integer("bulk_rate", value)
    if settings["bulk_bytes_per_s"] <= 0:
        raise OptionsError("cluster: bulk_rate must be positive")


def period_ns(key: str, value: Any) -> int | None:
    """A duration, or None for `off`, which the grammar reads as false."""
    return None if value is False or str(value).lower() == "off" else duration_ns(key, value)


def scrub(settings: Settings, value: Any) -> None:
    """`scrub { period, rate, compare }`: ours alone. Times or `off`; the rate in bytes a second."""
    keys = {
        "period": put("scrub_period_ns", period_ns, "period"),
        "rate": put("scrub_bytes_per_s", integer, "rate"),
        "compare": put("scrub_compare_ns", period_ns, "compare"),
    }
    apply_all("jetstream.scrub", value, keys, settings)
    numbers = [settings.get(key, 1) for key in ("scrub_bytes_per_s", "scrub_period_ns", "scrub_compare_ns")]
    if any(number is not None and number <= 0 for number in numbers):
        raise OptionsError("jetstream.scrub: period, rate and compare must be positive, or times off")


def listen(key: str, value: Any) -> str:
    """An address as text, where a port alone may have been written as a number."""
    return f":{integer(key, value)}" if isinstance(value, int) else text(key, value)


def sync_interval(_settings: Settings, value: Any) -> None:
    """Read and checked only: an acknowledgement waits for its fsync anyway, which is what `always` asks for."""
    if value != "always":
        duration_ns("sync_interval", value)


def strict(_settings: Settings, value: Any) -> None:
    """Whether requests with unknown fields are refused: they are, as by default in nats-server."""
    if not boolean("strict", value):
        raise OptionsError("strict: false is not served by jetraft yet")


def jetstream(settings: Settings, value: Any) -> None:
    """`jetstream: enabled` or the block."""
    if isinstance(value, bool):
        settings["jetstream"] = value
    elif isinstance(value, str):
        if value.lower() not in ("enabled", "enable", "disabled", "disable"):
            raise OptionsError(f"expected 'enabled' or 'disabled' for jetstream, got {value!r}")
        settings["jetstream"] = value.lower().startswith("enable")
    else:
        settings["jetstream"] = True
        apply_all("jetstream", value, JETSTREAM, settings)


JETSTREAM: Mapping[str, Apply] = {
    **spelled(put("jetstream", boolean, "enabled"), "enabled", "enable"),
    **spelled(put("store_dir", text), "store_dir", "storedir"),
    **spelled(put("max_memory_store", integer), "max_memory_store", "max_mem_store", "max_mem"),
    **spelled(put("max_file_store", integer), "max_file_store", "max_file"),
    "unique_tag": put("unique_tag", text),
    "strict": strict,
    **spelled(sync_interval, "sync_interval", "sync"),
    "raft_engine": put("raft_engine", text),
    "scrub": scrub,
    "cipher": put("cipher", cipher),
    **spelled(put("encryption_key", text), "key", "ek", "encryption_key"),
    **spelled(put("prev_encryption_key", text), "prev_key", "prev_ek", "prev_encryption_key"),
}

CLUSTER: Mapping[str, Apply] = {
    "name": put("cluster_name", text, "name"),
    "listen": put("cluster_listen", listen, "listen"),
    **spelled(put("cluster_host", text, "host"), "host", "net"),
    "port": put("cluster_port", integer, "port"),
    "routes": put("routes", texts),
    **spelled(put("cluster_advertise", text, "advertise"), "advertise", "cluster_advertise"),
    "no_advertise": put("no_advertise", boolean),
    "connect_retries": put("connect_retries", integer),
    "secret": put("cluster_secret", text, "secret"),
    "authorization": cluster_authorization,
    "tls": cluster_tls,
    "bulk_rate": bulk_rate,
}

TOP: Mapping[str, Apply] = {
    "listen": put_address("host", "port", DEFAULT_PORT, "listen"),
    **spelled(put("host", text), "host", "net"),
    "port": put("port", integer),
    "server_name": put("server_name", text),
    "client_advertise": put("client_advertise", text),
    "http": put_address("http_host", "http_port", DEFAULT_HTTP_PORT, "http"),
    **spelled(put("http_port", integer), "http_port", "monitor_port"),
    "http_base_path": put("http_base_path", text),
    "authorization": authorization,
    "cluster": lambda settings, value: apply_all("cluster", value, CLUSTER, settings),
    "jetstream": jetstream,
    "max_payload": put("max_payload_bytes", integer, "max_payload"),
    "max_control_line": put("max_control_line_bytes", integer, "max_control_line"),
    "max_pending": put("max_pending_bytes", integer, "max_pending"),
    **spelled(put("max_connections", integer), "max_connections", "max_conn"),
    **spelled(put("max_subscriptions", integer), "max_subscriptions", "max_subs"),
    "ping_interval": put("ping_interval_ns", duration_ns, "ping_interval"),
    "ping_max": put("ping_max", integer),
    "write_deadline": put("write_deadline_ns", duration_ns, "write_deadline"),
    "lame_duck_duration": put("lame_duck_duration_ns", duration_ns, "lame_duck_duration"),
    "lame_duck_grace_period": put("lame_duck_grace_period_ns", duration_ns, "lame_duck_grace_period"),
    "debug": put("debug", boolean),
    "trace": put("trace", boolean),
    "trace_verbose": put("trace_verbose", boolean),
    **spelled(put("logtime", boolean), "logtime", "log_time"),
    "logtime_utc": put("logtime_utc", boolean),
    **spelled(put("log_file", text), "log_file", "logfile"),
    **spelled(put("log_size_limit", integer), "log_size_limit", "logfile_size_limit"),
    **spelled(put("log_max_num", integer), "log_max_num", "logfile_max_num"),
    **spelled(put("pid_file", text), "pid_file", "pidfile"),
    "ports_file_dir": put("ports_file_dir", text),
    "server_tags": put("server_tags", texts),
    "server_metadata": put("server_metadata", pairs),
}


def apply_all(
    name: str, value: Any, keys: Mapping[str, Apply], settings: Settings, *, but: Collection[str] = ()
) -> None:
    """Apply every key of a block, except those in `but`. Raises PlacedError at the first that is wrong."""
    block = table(name, value)
    for key, given in block.items():
        if key in but:
            continue
        apply = keys.get(key.lower(), partial(refuse, name, key))
        try:
            apply(settings, given)
        except PlacedError:
            raise
        except OptionsError as error:
            raise PlacedError(f"{block.place(key)}: {error}") from error


def refuse(name: str, key: str, _settings: Settings, _value: Any) -> None:
    """Say that a key of a block is not served, or that nobody knows it."""
    within = f" in {name}" if name else ""
    if key.lower() in NOT_SERVED.get(name, ()):
        raise OptionsError(f'"{key}"{within} is not served by jetraft yet')
    raise OptionsError(f'unknown field "{key}"{within}')


def load_settings(path: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from a file and what it includes. Raises OptionsError with one line."""
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
    # A key that only defines a variable for `$key` is legal at the top, as in nats-server, when it is used.
    apply_all("", document, TOP, settings, but=parser.used)
    return settings
