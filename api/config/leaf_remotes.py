"""The hubs of a `leafnodes` block, and what holds for connections in both directions: TLS.

Keys and texts of errors are nats-server's. A key that weakens a connection when it is passed over is refused by name.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from jetraft.api.config.accounts.authorization import subjects
from jetraft.api.config.blocks import Apply, PlacedError, apply_all, put, spelled
from jetraft.api.config.compression import compression
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import boolean, duration_ns, secret_text, signed_duration_ns, text
from jetraft.api.credentials.secret import Secret
from jetraft.api.credentials.seeds import SeedError, UserKey
from jetraft.api.options.leafnodes import DEFAULT_LEAF_PORT, LeafProxy, RemoteOptions, RemoteUrl
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.url import redacted

WEB_PORTS = {"ws": 80, "wss": 443}  # where an address has none
PROXY_PORTS = {"http": 80, "https": 443}
NEEDS_TLS = "proxy is configured but a remote URL requires TLS and no TLS configuration is provided"
WRONG_URL = "error parsing leafnode url"


def remote_url(given: Any) -> RemoteUrl:
    """An address of a hub; a scheme that is none of ours, such as `leaf`, is as good as `nats`. Raises OptionsError."""
    wrong = OptionsError(WRONG_URL)
    if not isinstance(given, str):
        raise OptionsError(f"Expected remote leafnode url to be an array or string, got {given}")
    try:
        parts = urlsplit(given if "//" in given else f"nats://{given}")
        port = parts.port or WEB_PORTS.get(parts.scheme, DEFAULT_LEAF_PORT)
    except ValueError:  # its text quotes the password
        raise wrong from None
    if not parts.hostname:
        raise wrong
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    web = parts.scheme in WEB_PORTS
    path = parts.path.rstrip("/") if web else ""
    tls = parts.scheme in ("tls", "wss")
    return RemoteUrl(host=parts.hostname, port=port, user=user, password=password, tls=tls, web=web, path=path)


def remote_urls(_key: str, value: Any) -> tuple[RemoteUrl, ...]:
    """One address or several."""
    given = value if isinstance(value, list) else [value]
    urls = [remote_url(item) for item in given]
    if len(set(urls)) < len(urls):
        raise OptionsError("Duplicate leafnode entry detected")
    if len({url.web for url in urls}) > 1:
        listed = " ".join(go_quote(redacted(item)) for item in given)
        raise OptionsError(
            f"remote leaf node configuration cannot have a mix of websocket and non-websocket urls: [{listed}]"
        )
    return tuple(urls)


def tls(settings: Settings, value: object) -> None:
    """TLS of the listener, or towards a hub; its files are looked at."""
    from jetraft.api.config.tls import checked, tls_options  # noqa: PLC0415  only servers with TLS pay for it

    settings["tls"] = checked(tls_options(value))


def subject_list(key: str, value: object) -> tuple[str, ...]:
    """Subjects that do not go over a connection."""
    return subjects(key, value, with_queues=False)


def remote_seed(_key: str, value: Any) -> Secret:
    """The seed of the user that this server is; it is in no text."""
    try:
        UserKey.read(value if isinstance(value, str) else "")
    except SeedError as error:
        raise OptionsError("Remote leafnode nkey is not a valid seed") from error
    return Secret(value)


def remote(block: Any) -> RemoteOptions | None:
    """One hub; None for one that is disabled."""
    if not isinstance(block, Table):
        raise OptionsError(f"Expected remote leafnode entry to be a map/struct, got {block}")
    found: Settings = {}
    apply_all("leafnodes.remotes", block, REMOTE, found)
    if found.pop("disabled", False):
        return None
    if not found.get("urls"):
        raise OptionsError("a remote leafnode needs an url")
    if found.get("credentials") and found.get("seed"):
        raise OptionsError("Remote leafnode can not have both creds and nkey defined")
    urls: tuple[RemoteUrl, ...] = found["urls"]
    if "proxy" in found and "tls" not in found and any(url.tls for url in urls):
        raise PlacedError(f"{block.place('proxy')}: {NEEDS_TLS}")
    return RemoteOptions(**found)


def remotes(_key: str, value: object) -> tuple[RemoteOptions, ...]:
    """All hubs. Raises OptionsError where two entries are the same."""
    if not isinstance(value, list):
        raise OptionsError("Expected remotes field to be an array")
    found = [one for one in map(remote, value) if one is not None]
    seen: set[tuple[tuple[RemoteUrl, ...], str]] = set()
    for one in found:
        if (one.urls, one.account) in seen:
            urls = ",".join(f'"nats://{url.address}"' for url in one.urls)
            raise OptionsError(f"duplicate remote urls=[{urls}], account={go_quote(one.account)}")
        seen.add((one.urls, one.account))
    return tuple(found)


def proxy(settings: Settings, value: object) -> None:
    """`proxy { url, username, password, timeout }`."""
    if not isinstance(value, Table):
        raise OptionsError(f"Expected proxy to be a map, got {go_type(value)}")
    found: Settings = {}
    keys: dict[str, Apply] = {
        "url": put("url", text),
        "username": put("username", text),
        "password": put("password", secret_text),
        "timeout": put("timeout", duration_ns, "proxy timeout"),
    }
    apply_all("leafnodes.remotes.proxy", value, keys, found)
    if not found.get("url"):
        if found:
            raise OptionsError("proxy URL must be specified when other proxy options are set")
        return
    if bool(found.get("username")) != bool(found.get("password")):
        raise OptionsError("proxy username and password must both be specified or both be empty")
    if found.get("timeout", 0) < 0:
        raise OptionsError("proxy timeout must be >= 0")
    host, port = proxy_address(found["url"])
    settings["proxy"] = LeafProxy(
        host=host,
        port=port,
        username=found.get("username", ""),
        password=Secret(found.get("password", "")),
        timeout_ns=found.get("timeout", 0),
    )


def proxy_address(given: str) -> tuple[str, int]:
    """The address of a proxy. Raises OptionsError."""
    try:
        parts: SplitResult = urlsplit(given)
        port = parts.port or PROXY_PORTS.get(parts.scheme, 0)
    except ValueError:
        raise OptionsError(f"invalid proxy URL {go_quote(redacted(given))}") from None
    if parts.scheme not in PROXY_PORTS:
        raise OptionsError(f"proxy URL scheme must be http or https, got: {parts.scheme}")
    if not parts.hostname:
        raise OptionsError("proxy URL must specify a host")
    if parts.scheme == "https":
        raise OptionsError("a proxy of a leafnode that is reached by https is not served by jetraft yet")
    return parts.hostname, port


def cluster_migrate(settings: Settings, value: object) -> None:
    """`true`, or `{ leader_migrate_delay }`; as in nats-server other keys of the block are passed over."""
    if not isinstance(value, bool | Table):
        raise OptionsError(f"Expected boolean or map for jetstream_cluster_migrate, got {go_type(value)}")
    settings["cluster_migrate"] = value is not False
    if isinstance(value, Table) and "leader_migrate_delay" in value:
        try:
            settings["migrate_delay_ns"] = duration_ns("leader_migrate_delay", value["leader_migrate_delay"])
        except OptionsError as error:
            raise PlacedError(f"{value.place('leader_migrate_delay')}: {error}") from error


REMOTE: Mapping[str, Apply] = {
    **spelled(put("urls", remote_urls), "url", "urls"),
    **spelled(put("account", text), "account", "local"),
    **spelled(put("deny_imports", subject_list), "deny_imports", "deny_import"),
    **spelled(put("deny_exports", subject_list), "deny_exports", "deny_export"),
    **spelled(put("credentials", text), "credentials", "creds"),
    **spelled(put("seed", remote_seed, "nkey"), "nkey", "seed"),
    "hub": put("hub", boolean),
    **spelled(put("no_randomize", boolean), "no_randomize", "dont_randomize"),
    **spelled(put("isolate", boolean), "isolate", "isolate_leafnode_interest"),
    "request_isolation": put("request_isolation", boolean),
    "ignore_discovered_servers": put("ignore_discovered_servers", boolean),
    "first_info_timeout": put("first_info_timeout_ns", duration_ns, "first_info_timeout"),
    "dial_timeout": put("dial_timeout_ns", signed_duration_ns, "dial_timeout"),
    "disabled": put("disabled", boolean),
    "tls": tls,
    "compression": compression,
    **spelled(
        put("ws_compression", boolean), "ws_compression", "ws_compress", "websocket_compress", "websocket_compression"
    ),
    **spelled(put("ws_no_masking", boolean), "ws_no_masking", "websocket_no_masking"),
    "proxy": proxy,
    **spelled(cluster_migrate, "jetstream_cluster_migrate", "js_cluster_migrate"),
}
