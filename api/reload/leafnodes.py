"""Changes of the `leafnodes` block that a reload follows: remotes that come and go, and certificates. Pure.

A remote is known by its addresses and its account. Anything else that differs is refused with nats-server's text, and
no text has a password.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from jetraft.api.options.leafnodes import LeafOptions, RemoteOptions
from jetraft.api.options.tls import TlsOptions
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.gotime import format_duration

Show = Callable[[Any], str]
HIDDEN: Final = None


def go_bool(value: bool) -> str:  # noqa: FBT001  (a value that is shown)
    """`true` or `false`."""
    return str(value).lower()


def go_list(value: Iterable[str]) -> str:
    """A list as Go prints it."""
    return f"[{' '.join(value)}]"


def go_version(value: tuple[int, int, int] | None) -> str:
    """A version, or nothing."""
    return ".".join(map(str, value)) if value else ""


def seconds(value_ns: int) -> str:
    """A number of seconds, as Go prints a float."""
    return f"{value_ns / NS_PER_S:g}"


BLOCK: Final[Mapping[str, tuple[str, Show | None]]] = {
    "host": ("Host", str),
    "port": ("Port", str),
    "auth": ("Users", HIDDEN),
    "account": ("Account", str),
    "auth_timeout_ns": ("AuthTimeout", seconds),
    "advertise": ("Advertise", str),
    "no_advertise": ("NoAdvertise", go_bool),
    "reconnect_ns": ("ReconnectInterval", format_duration),
    "dial_timeout_ns": ("DialTimeout", format_duration),
    "min_version": ("MinVersion", go_version),
    "write_deadline_ns": ("WriteDeadline", format_duration),
    "write_timeout": ("WriteTimeout", str),
    "isolate_interest": ("IsolateLeafnodeInterest", go_bool),
}
REMOTE: Final[Mapping[str, tuple[str, Show | None]]] = {
    "no_randomize": ("NoRandomize", go_bool),
    "credentials": ("Credentials", str),
    "seed": ("Nkey", HIDDEN),
    "hub": ("Hub", go_bool),
    "deny_imports": ("DenyImports", go_list),
    "deny_exports": ("DenyExports", go_list),
    "dial_timeout_ns": ("DialTimeout", format_duration),
    "first_info_timeout_ns": ("FirstInfoTimeout", format_duration),
    "ws_compression": ("Websocket", HIDDEN),
    "ws_no_masking": ("Websocket", HIDDEN),
    "isolate": ("LocalIsolation", go_bool),
    "request_isolation": ("RequestIsolation", go_bool),
    "ignore_discovered_servers": ("IgnoreDiscoveredServers", go_bool),
    "proxy": ("Proxy", HIDDEN),
    "cluster_migrate": ("JetStreamClusterMigrate", go_bool),
    "migrate_delay_ns": ("JetStreamClusterMigrateDelay", format_duration),
}


def _difference(before: object, after: object, fields: Mapping[str, tuple[str, Show | None]]) -> str:
    """The first field that differs, in nats-server's words; empty: none does."""
    for name, (title, show) in fields.items():
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            values = f": old={show(old)}, new={show(new)}" if show is not None else ""
            return f'field "{title}"{values}'
    return ""


def _tls_difference(before: TlsOptions | None, after: TlsOptions | None) -> str:
    if (before is None) == (after is None):
        return ""
    return f'field "TLSConfig": {"it is on" if before is None else "it is off"} now'


def title_of(remote: RemoteOptions) -> str:
    """A remote, as log lines name it; its addresses without users."""
    urls = ",".join(go_quote(url.shown) for url in remote.urls)
    return f"urls=[{urls}], account={go_quote(remote.account)}"


def refusal(before: LeafOptions | None, after: LeafOptions | None) -> str:
    """Why another block is not followed; empty: it is."""
    if before is None or after is None:
        return 'LeafNode: field "Port"' + (": it is on now" if before is None else ": it is off now")
    found = _difference(before, after, BLOCK) or _tls_difference(before.tls, after.tls)
    if after.uses_websocket and not before.uses_websocket:
        found = found or 'field "Remotes": the first one over WebSocket needs a restart'
    kept = {remote.key: remote for remote in before.remotes}
    for remote in after.remotes if not found else ():
        old = kept.get(remote.key)
        if old is not None and (why := _difference(old, remote, REMOTE) or _tls_difference(old.tls, remote.tls)):
            return f"LeafNode: remote {title_of(remote)}: {why}"
    return f"LeafNode: {found}" if found else ""


def compression_differs(before: LeafOptions, after: LeafOptions) -> bool:
    """Whether connections are compressed otherwise from now on."""
    kept = {remote.key: remote.compression for remote in before.remotes}
    changed = (kept.get(remote.key, remote.compression) != remote.compression for remote in after.remotes)
    return before.compression != after.compression or any(changed)


def removed(before: LeafOptions, after: LeafOptions) -> list[RemoteOptions]:
    """The remotes that are no more."""
    kept = {remote.key for remote in after.remotes}
    return [remote for remote in before.remotes if remote.key not in kept]
