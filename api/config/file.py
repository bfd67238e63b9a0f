"""The keys of a configuration file, made into the settings that flags make too; an unknown key is an error."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jetraft.api.config.build import OptionsError, Settings, split_url
from jetraft.api.config.grammar import ConfigError, Parser
from jetraft.api.config.options import DEFAULT_HTTP_PORT, ClusterTls, User
from jetraft.store.model.clock import NS_PER_S

DURATION_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
CONFIG_BYTES_MAX = 4 * 1024 * 1024  # a configuration is read whole; nats-server has no limit

Apply = Callable[[Settings, Any], None]


def duration_ns(value: Any) -> int:
    """A duration as `2m`, `1h30m`, `250ms`, or a plain number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value * NS_PER_S)
    total, text = 0.0, str(value)
    while text:
        digits = len(text) - len(text.lstrip("0123456789."))
        unit = next((u for u in ("ns", "us", "µs", "ms", "s", "m", "h") if text[digits:].startswith(u)), "")
        if not digits or not unit:
            raise OptionsError(f'invalid duration "{value}"')
        total += float(text[:digits]) * DURATION_UNITS_NS[unit]
        text = text[digits + len(unit) :]
    return int(total)


def integer(key: str, value: Any) -> int:
    """A whole number; booleans and text are refused."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise OptionsError(f"{key}: expected a number, got {value!r}")
    return value


def address(value: Any, default_port: int) -> tuple[str, int]:
    """`host:port`, `:port`, a port alone, or a URL."""
    if isinstance(value, int):
        return "", value
    host, port, _ = split_url(str(value), default_port=default_port)
    return host, port


def text(key: str, value: Any) -> str:
    """A string; a number is refused, as nats-server does."""
    if not isinstance(value, str):
        raise OptionsError(f"{key}: expected a string, got {value!r}")
    return value


def cipher(key: str, value: Any) -> str:
    """`aes` or `chachapoly`, also written `chacha`."""
    name = {"chacha": "chachapoly"}.get(text(key, value).lower(), str(value).lower())
    if name not in ("aes", "chachapoly"):
        raise OptionsError(f'Unknown cipher type: "{value}"')
    return name


def put(setting: str, convert: Callable[[str, Any], Any] | None = None) -> Apply:
    """A key that is one setting."""

    def apply(settings: Settings, value: Any) -> None:
        settings[setting] = convert(setting, value) if convert else value

    return apply


def put_duration(setting: str) -> Apply:
    """A key that is one duration."""
    return lambda settings, value: settings.__setitem__(setting, duration_ns(value))


def listen(settings: Settings, value: Any) -> None:
    """`listen: host:port` for clients."""
    host, port = address(value, 4222)
    settings["port"] = port
    if host:
        settings["host"] = host


def http(settings: Settings, value: Any) -> None:
    """`http: host:port` for monitoring."""
    host, port = address(value, DEFAULT_HTTP_PORT)
    settings["http_port"] = port
    if host:
        settings["http_host"] = host


def authorization(settings: Settings, value: Any) -> None:
    """`authorization { user, password | token | users [...] , timeout }`."""
    block = table("authorization", value)
    known = {"user", "username", "pass", "password", "token", "users", "timeout"}
    refuse_unknown("authorization", block, known)
    if "timeout" in block:
        settings["auth_timeout_ns"] = duration_ns(block["timeout"])
    users = [
        User(
            name=str(user.get("user", user.get("username", ""))), secret=str(user.get("password", user.get("pass", "")))
        )
        for user in block.get("users", ())
    ]
    name = block.get("user", block.get("username"))
    if name is not None:
        users.append(User(name=str(name), secret=str(block.get("password", block.get("pass", "")))))
    if "token" in block:
        users.append(User(name=None, secret=str(block["token"])))
    settings["users"] = tuple(users)


def cluster(settings: Settings, value: Any) -> None:
    """The `cluster` block."""
    keys: dict[str, Apply] = {
        "name": put("cluster_name"),
        "listen": put("cluster_listen"),
        "host": put("cluster_host"),
        "port": put("cluster_port", integer),
        "routes": lambda into, routes: into.__setitem__("routes", tuple(str(route) for route in routes)),
        "advertise": put("cluster_advertise"),
        "no_advertise": put("no_advertise"),
        "connect_retries": put("connect_retries", integer),
        "secret": put("cluster_secret"),
        "authorization": cluster_authorization,
        "tls": cluster_tls,
        "bulk_rate": bulk_rate,
    }
    apply_all("cluster", table("cluster", value), keys, settings)


def cluster_authorization(settings: Settings, value: Any) -> None:
    """The secret that peers must prove to have."""
    block = table("cluster.authorization", value)
    refuse_unknown("cluster.authorization", block, {"user", "password", "pass", "timeout"})
    settings["cluster_secret"] = f"{block.get('user', '')}:{block.get('password', block.get('pass', ''))}"


def cluster_tls(settings: Settings, value: Any) -> None:
    """Mutual TLS between nodes. As with nats-server both ends are verified, so `verify` can only be true."""
    block = table("cluster.tls", value)
    refuse_unknown("cluster.tls", block, {"cert_file", "key_file", "ca_file", "verify"})
    files = {key.lower(): str(path) for key, path in block.items() if key.lower() != "verify"}
    if missing := [key for key in ("cert_file", "key_file", "ca_file") if not files.get(key)]:
        raise OptionsError(f"cluster.tls needs {' and '.join(missing)}")
    if not all(path is True for key, path in block.items() if key.lower() == "verify"):
        raise OptionsError("cluster.tls: connections between nodes are always verified")
    settings["cluster_tls"] = ClusterTls(**files)


def bulk_rate(settings: Settings, value: Any) -> None:
    """Bytes a second for snapshots and repairs, to each peer."""
    settings["bulk_bytes_per_s"] = integer("bulk_rate", value)
    if settings["bulk_bytes_per_s"] <= 0:
        raise OptionsError("cluster: bulk_rate must be positive")


def scrub(settings: Settings, value: Any) -> None:
    """`scrub { period, rate, compare }`: ours alone. Times or `off`; the rate in bytes a second."""
    block = table("jetstream.scrub", value)
    refuse_unknown("jetstream.scrub", block, {"period", "rate", "compare"})
    for key, given in block.items():
        if key.lower() == "rate":
            settings["scrub_bytes_per_s"] = integer("rate", given)
        else:
            is_off = given is False or str(given).lower() == "off"  # the grammar reads `off` as false
            settings[f"scrub_{key.lower()}_ns"] = None if is_off else duration_ns(given)
    numbers = [settings.get(key, 1) for key in ("scrub_bytes_per_s", "scrub_period_ns", "scrub_compare_ns")]
    if any(number is not None and number <= 0 for number in numbers):
        raise OptionsError("jetstream.scrub: period, rate and compare must be positive, or times off")


def jetstream(settings: Settings, value: Any) -> None:
    """`jetstream: enabled` or the block."""
    if isinstance(value, bool):
        settings["jetstream"] = value
        return
    if isinstance(value, str):
        if value.lower() not in ("enabled", "enable", "disabled", "disable"):
            raise OptionsError(f"expected 'enabled' or 'disabled' for jetstream, got {value!r}")
        settings["jetstream"] = value.lower().startswith("enable")
        return
    settings["jetstream"] = True
    keys: dict[str, Apply] = {
        "enabled": put("jetstream"),
        "store_dir": put("store_dir"),
        "storedir": put("store_dir"),
        "max_memory_store": put("max_memory_store", integer),
        "max_mem_store": put("max_memory_store", integer),
        "max_mem": put("max_memory_store", integer),
        "max_file_store": put("max_file_store", integer),
        "max_file": put("max_file_store", integer),
        "domain": put("domain"),
        "unique_tag": put("unique_tag"),
        "strict": put("strict"),
        "sync_interval": lambda into, interval: into.__setitem__("sync_always", str(interval) == "always"),
        "raft_engine": put("raft_engine"),
        "scrub": scrub,
        "cipher": put("cipher", cipher),
        **dict.fromkeys(("key", "ek", "encryption_key"), put("encryption_key", text)),
        **dict.fromkeys(("prev_key", "prev_ek", "prev_encryption_key"), put("prev_encryption_key", text)),
    }
    apply_all("jetstream", table("jetstream", value), keys, settings)


TOP: dict[str, Apply] = {
    "listen": listen,
    "host": put("host"),
    "net": put("host"),
    "port": put("port", integer),
    "server_name": put("server_name"),
    "client_advertise": put("client_advertise"),
    "http": http,
    "http_port": put("http_port", integer),
    "monitor_port": put("http_port", integer),
    "http_base_path": put("http_base_path"),
    "authorization": authorization,
    "cluster": cluster,
    "jetstream": jetstream,
    "max_payload": put("max_payload_bytes", integer),
    "max_control_line": put("max_control_line_bytes", integer),
    "max_pending": put("max_pending_bytes", integer),
    "max_connections": put("max_connections", integer),
    "max_conn": put("max_connections", integer),
    "max_subscriptions": put("max_subscriptions", integer),
    "max_subs": put("max_subscriptions", integer),
    "ping_interval": put_duration("ping_interval_ns"),
    "ping_max": put("ping_max", integer),
    "write_deadline": put_duration("write_deadline_ns"),
    "lame_duck_duration": put_duration("lame_duck_duration_ns"),
    "lame_duck_grace_period": put_duration("lame_duck_grace_period_ns"),
    "debug": put("debug"),
    "trace": put("trace"),
    "trace_verbose": put("trace_verbose"),
    "logtime": put("logtime"),
    "log_time": put("logtime"),
    "logtime_utc": put("logtime_utc"),
    "log_file": put("log_file"),
    "logfile": put("log_file"),
    "pid_file": put("pid_file"),
    "pidfile": put("pid_file"),
    "ports_file_dir": put("ports_file_dir"),
    "server_tags": lambda into, tags: into.__setitem__(
        "server_tags", tuple(tags if isinstance(tags, list) else [tags])
    ),
    "server_metadata": lambda into, data: into.__setitem__("server_metadata", tuple(sorted(data.items()))),
}


def table(name: str, value: Any) -> Mapping[str, Any]:
    """The value as a map."""
    if not isinstance(value, Mapping):
        raise OptionsError(f"expected {name} to be a map, got {value!r}")
    return value


def refuse_unknown(name: str, block: Mapping[str, Any], known: set[str]) -> None:
    """Say which key of a block nobody knows."""
    for key in block:
        if key.lower() not in known:
            raise OptionsError(f'unknown field "{key}" in {name}')


def apply_all(name: str, block: Mapping[str, Any], keys: Mapping[str, Apply], settings: Settings) -> None:
    """Apply every key of a block."""
    for key, value in block.items():
        apply = keys.get(key.lower())
        if apply is None:
            # A key that only defines a variable for `$key` is legal at the top, as in nats-server, when it is used.
            raise OptionsError(f'unknown field "{key}"' + (f" in {name}" if name else ""))
        apply(settings, value)


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
        document = parser.parse()
    except OSError as error:
        raise OptionsError(f"error opening config file: open {path}: {error.strerror}") from error
    except (ConfigError, UnicodeDecodeError) as error:
        raise OptionsError(str(error)) from error
    settings: Settings = {"config_file": str(path), "config_digest": "sha256:" + hashlib.sha256(raw).hexdigest()}
    apply_all("", {key: value for key, value in document.items() if key not in parser.used}, TOP, settings)
    return settings
