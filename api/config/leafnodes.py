"""The `leafnodes` block: the listener, who may connect as a leaf node, and the hubs to connect to.

Keys and texts of errors are nats-server's. A key that weakens a connection when it is passed over is refused by name.
"""

import re
from collections.abc import Mapping

from jetraft.api.config.blocks import Apply, apply_all, put, put_address, spelled
from jetraft.api.config.compression import compression
from jetraft.api.config.grammar import Table
from jetraft.api.config.leaf_remotes import remotes, tls
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import boolean, duration_ns, integer, secret_text, signed_duration_ns, text
from jetraft.api.config.without_effect import write_timeout
from jetraft.api.credentials.nkeys import public_user_key
from jetraft.api.credentials.rules import AuthRules, NkeyUser, PasswordUser
from jetraft.api.credentials.secret import Secret
from jetraft.api.options.leafnodes import LeafOptions
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.ids import GLOBAL_ACCOUNT

VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-.*)?")
OLDEST = (2, 8, 0)
PORT_MAX = 65535


def leafnodes(settings: Settings, value: object) -> None:
    """All of it, as `settings["leafnodes"]`."""
    found: Settings = {}
    apply_all("leafnodes", value, LEAFNODES, found)
    auth = found.pop("auth", {})
    settings["leafnodes"] = LeafOptions(**found, **auth)


def leaf_user(block: object) -> PasswordUser:
    """One of the users that leaf nodes connect as."""
    if not isinstance(block, Table):
        raise OptionsError("Expected user entry to be a map/struct")
    found: Settings = {}
    keys: dict[str, Apply] = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", secret_text), "pass", "password"),
        "account": put("account", text),
        "proxy_required": put("proxy_required", boolean),
    }
    apply_all("leafnodes.authorization.users", block, keys, found)
    if not found.get("user"):
        raise OptionsError("User entry requires a user")
    return PasswordUser(
        name=found["user"],
        password=Secret(found.get("password", "")),
        account=found.get("account") or GLOBAL_ACCOUNT,
        proxy_required=found.get("proxy_required", False),
    )


def leaf_users(_key: str, value: object) -> tuple[PasswordUser, ...]:
    """The list of them. Raises OptionsError for one that is there twice."""
    if not isinstance(value, list):
        raise OptionsError("Expected users field to be an array")
    users = tuple(leaf_user(block) for block in value)
    names = [user.name for user in users]
    for name in names:
        if names.count(name) > 1:
            raise OptionsError(f"Duplicate user {go_quote(name)} detected in leafnode authorization")
    return users


def leaf_nkey(key: str, value: object) -> str:
    """The public key that leaf nodes prove to have."""
    found = text(key, value)
    if public_user_key(found) is None:
        raise OptionsError("Not a valid public nkey for leafnode authorization")
    return found


def authorization(settings: Settings, value: object) -> None:
    """`authorization { user, password, account, users [...], timeout }`."""
    found: Settings = {}
    keys: dict[str, Apply] = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", secret_text), "pass", "password"),
        "account": put("account", text),
        "users": put("users", leaf_users),
        "nkey": put("nkey", leaf_nkey),
        "timeout": put("timeout", duration_ns),
        "proxy_required": put("proxy_required", boolean),
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
        proxy_required=found.get("proxy_required", False),
    )
    timeout = {"auth_timeout_ns": found["timeout"]} if found.get("timeout") else {}
    settings["auth"] = {"auth": rules, "account": found.get("account", ""), **timeout}


def min_version(_key: str, value: object) -> tuple[int, int, int]:
    """The oldest version of a leaf node."""
    match = VERSION.fullmatch(str(value))
    if match is None:
        raise OptionsError("invalid leafnode's minimum version: invalid semver")
    major, minor, patch = (int(part) for part in match.groups())
    if (major, minor, patch) < OLDEST:
        raise OptionsError("the minimum version should be at least 2.8.0")
    return major, minor, patch


def reconnect_ns(key: str, value: object) -> int:
    """The time between two attempts."""
    return duration_ns(key, value)


def port(key: str, value: object) -> int:
    """A port; -1: any free one."""
    found = integer(key, value)
    if not -1 <= found <= PORT_MAX:
        raise OptionsError(f"leafnodes {key}: expected a port from -1 to {PORT_MAX}, got {found}")
    return found


LEAFNODES: Mapping[str, Apply] = {
    "listen": put_address("host", "port"),
    **spelled(put("host", text), "host", "net"),
    "port": put("port", port),
    **spelled(put("advertise", text), "advertise", "leafnode_advertise"),
    "no_advertise": put("no_advertise", boolean),
    "authorization": authorization,
    **spelled(put("min_version", min_version), "min_version", "minimum_version"),
    **spelled(put("isolate_interest", boolean, "isolate_leafnode_interest"), "isolate_leafnode_interest", "isolate"),
    **spelled(put("reconnect_ns", reconnect_ns, "reconnect"), "reconnect", "reconnect_delay", "reconnect_interval"),
    "dial_timeout": put("dial_timeout_ns", signed_duration_ns, "dial_timeout"),
    "write_deadline": put("write_deadline_ns", duration_ns, "write_deadline"),
    "write_timeout": put("write_timeout", write_timeout),
    "compression": compression,
    "remotes": put("remotes", remotes),
    "tls": tls,
}
