"""The `leafnodes` block: the listener, who may connect as a leaf node, and the hubs to connect to.

Keys and texts of errors are nats-server's. What weakens a connection when it is passed over is refused by name.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from jetraft.api.auth.nkeys import public_user_key
from jetraft.api.auth.rules import AuthRules, NkeyUser, PasswordUser
from jetraft.api.auth.secret import Secret
from jetraft.api.auth.seeds import SeedError, UserKey
from jetraft.api.config.authorization import subjects
from jetraft.api.config.blocks import Apply, apply_all, put, put_address, spelled
from jetraft.api.config.build import OptionsError, Settings
from jetraft.api.config.grammar import Table
from jetraft.api.config.values import boolean, duration_ns, integer, secret_text, text
from jetraft.api.leafnodes.options import DEFAULT_LEAF_PORT, LeafOptions, RemoteOptions, RemoteUrl
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.ids import GLOBAL_ACCOUNT

VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-.*)?")
OLDEST = (2, 8, 0)
PORT_MAX = 65535
UNCOMPRESSED = ("off", "disabled", "not supported")
NEVER_COMPRESSED = (*UNCOMPRESSED, "accept")  # a mode that only the other end can ask for


def leafnodes(settings: Settings, value: Any) -> None:
    """All of it, as `settings["leafnodes"]`."""
    found: Settings = {}
    apply_all("leafnodes", value, LEAFNODES, found)
    auth = found.pop("auth", {})
    settings["leafnodes"] = LeafOptions(**found, **auth)


def leaf_user(block: Any) -> PasswordUser:
    """One of the users that leaf nodes connect as."""
    if not isinstance(block, Table):
        raise OptionsError("Expected user entry to be a map/struct")
    found: Settings = {}
    keys: dict[str, Apply] = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", secret_text), "pass", "password"),
        "account": put("account", text),
    }
    apply_all("leafnodes.authorization.users", block, keys, found)
    if not found.get("user"):
        raise OptionsError("User entry requires a user")
    account = found.get("account") or GLOBAL_ACCOUNT
    return PasswordUser(name=found["user"], password=Secret(found.get("password", "")), account=account)


def leaf_users(_key: str, value: Any) -> tuple[PasswordUser, ...]:
    """The list of them. Raises OptionsError for one that is there twice."""
    if not isinstance(value, list):
        raise OptionsError("Expected users field to be an array")
    users = tuple(leaf_user(block) for block in value)
    names = [user.name for user in users]
    for name in names:
        if names.count(name) > 1:
            raise OptionsError(f"Duplicate user {go_quote(name)} detected in leafnode authorization")
    return users


def leaf_nkey(key: str, value: Any) -> str:
    """The public key that leaf nodes prove to have."""
    found = text(key, value)
    if public_user_key(found) is None:
        raise OptionsError("Not a valid public nkey for leafnode authorization")
    return found


def authorization(settings: Settings, value: Any) -> None:
    """`authorization { user, password, account, users [...], timeout }`."""
    found: Settings = {}
    keys: dict[str, Apply] = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", secret_text), "pass", "password"),
        "account": put("account", text),
        "users": put("users", leaf_users),
        "nkey": put("nkey", leaf_nkey),
        "timeout": put("timeout", duration_ns),
    }
    apply_all("leafnodes.authorization", value, keys, found)
    if found.get("users") and found.get("user"):
        raise OptionsError("can not have a single user/pass and a users array")
    nkey = "" if found.get("user") else found.get("nkey", "")
    rules = AuthRules(
        users=found.get("users", ()),
        nkeys=(NkeyUser(nkey=nkey),) if nkey else (),
        username=found.get("user", ""),
        password=Secret(found.get("password", "")),
    )
    timeout = {"auth_timeout_ns": found["timeout"]} if found.get("timeout") else {}
    settings["auth"] = {"auth": rules, "account": found.get("account", ""), **timeout}


def min_version(_key: str, value: Any) -> tuple[int, int, int]:
    """The oldest version of a leaf node."""
    match = VERSION.fullmatch(str(value))
    if match is None:
        raise OptionsError("invalid leafnode's minimum version: invalid semver")
    major, minor, patch = (int(part) for part in match.groups())
    if (major, minor, patch) < OLDEST:
        raise OptionsError("the minimum version should be at least 2.8.0")
    return major, minor, patch


def compression(_settings: Settings, value: Any) -> None:
    """Messages between servers are not compressed, which both ends can agree on."""
    if isinstance(value, Table):
        value = value.get("mode", "")
    if value is not False and str(value).lower() not in NEVER_COMPRESSED:
        raise OptionsError('"compression" in leafnodes is not served by jetraft yet, but for `off` and `accept`')


def reconnect_ns(key: str, value: Any) -> int:
    """The time between two attempts."""
    return duration_ns(key, value)


def remote_url(given: Any) -> RemoteUrl:
    """An address of a hub. Raises OptionsError."""
    wrong = OptionsError("error parsing leafnode url")
    if not isinstance(given, str):
        raise OptionsError(f"Expected remote leafnode url to be an array or string, got {given}")
    parts = urlsplit(given if "//" in given else f"nats://{given}")
    if parts.scheme in ("ws", "wss"):
        raise OptionsError(f'"{parts.scheme}://" in the url of a leafnode is not served by jetraft yet')
    if parts.scheme not in ("nats", "nats-leaf", "leafnode", "tls") or not parts.hostname:
        raise wrong
    try:
        port = parts.port or DEFAULT_LEAF_PORT
    except ValueError:
        raise wrong from None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return RemoteUrl(host=parts.hostname, port=port, user=user, password=password, tls=parts.scheme == "tls")


def remote_urls(_key: str, value: Any) -> tuple[RemoteUrl, ...]:
    """One address or several."""
    urls = [remote_url(item) for item in (value if isinstance(value, list) else [value])]
    if len(set(urls)) < len(urls):
        raise OptionsError("Duplicate leafnode entry detected")
    return tuple(urls)


def tls(settings: Settings, value: Any) -> None:
    """TLS of the listener, or towards a hub; its files are looked at."""
    from jetraft.api.config.tls import checked, tls_options  # noqa: PLC0415  only servers with TLS pay for it

    settings["tls"] = checked(tls_options(value))


def subject_list(key: str, value: Any) -> tuple[str, ...]:
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
    return RemoteOptions(**found)


def remotes(_key: str, value: Any) -> tuple[RemoteOptions, ...]:
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


def port(key: str, value: Any) -> int:
    """A port; -1: any free one."""
    found = integer(key, value)
    if not -1 <= found <= PORT_MAX:
        raise OptionsError(f"leafnodes {key}: expected a port from -1 to {PORT_MAX}, got {found}")
    return found


LEAFNODES: Mapping[str, Apply] = {
    "listen": put_address("host", "port", DEFAULT_LEAF_PORT, "listen"),
    **spelled(put("host", text), "host", "net"),
    "port": put("port", port),
    "advertise": put("advertise", text),
    "no_advertise": put("no_advertise", boolean),
    "authorization": authorization,
    "min_version": put("min_version", min_version),
    "isolate_leafnode_interest": put("isolate_interest", boolean, "isolate_leafnode_interest"),
    **spelled(put("reconnect_ns", reconnect_ns, "reconnect"), "reconnect", "reconnect_delay", "reconnect_interval"),
    "compression": compression,
    "remotes": put("remotes", remotes),
    "tls": tls,
}

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
    "disabled": put("disabled", boolean),
    "tls": tls,
    "compression": compression,
}
