"""The `accounts` block: which accounts there are, their users, and what each may use of JetStream.

`accounts { A { users [...], jetstream: enabled, exports [...] }, B { ... } }`, or a list of names alone. Keys and texts
of errors are nats-server's. Exports and imports are read in exports.py and imports.py.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from jetraft.api.config.accounts.authorization import AnyUser, permissions, settled, users, with_default
from jetraft.api.config.accounts.exports import exports
from jetraft.api.config.accounts.imports import imports
from jetraft.api.config.accounts.mappings import limits, mappings
from jetraft.api.config.accounts.message_trace import message_trace
from jetraft.api.config.blocks import Apply, PlacedError, apply_all, put, spelled
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import boolean, integer
from jetraft.api.credentials.nkeys import is_account_key
from jetraft.api.exchange.rules import SharingError, check_sharing
from jetraft.api.exchange.values import Sharing
from jetraft.api.options.options import AccountOptions
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.ids import GLOBAL_ACCOUNT
from jetraft.store.model.state import AccountLimits

NAME_BYTES_MAX = 255  # api/plane: ACCOUNT_NAME_MAX


def cluster_traffic(_settings: Settings, value: object) -> None:
    """In which account replication runs: checked, without effect. Links between nodes are apart from accounts."""
    text = 'Expected {} string value for "cluster_traffic", got {}'
    if not isinstance(value, str):
        raise OptionsError(text.format("either 'system' or 'owner'", value))
    if value not in ("", "system", "owner"):
        raise OptionsError(text.format("'system' or 'owner'", value))


LIMITS: Mapping[str, Apply] = {
    **spelled(put("max_memory", integer), "max_memory", "max_mem", "mem", "memory"),
    **spelled(put("max_storage", integer), "max_store", "max_file", "max_disk", "store", "disk"),
    **spelled(put("max_streams", integer), "max_streams", "streams"),
    **spelled(put("max_consumers", integer), "max_consumers", "consumers"),
    **spelled(put("max_bytes_required", boolean), "max_bytes_required", "max_stream_bytes", "max_bytes"),
    **spelled(put("memory_max_stream_bytes", integer), "mem_max_stream_bytes", "memory_max_stream_bytes"),
    **spelled(put("storage_max_stream_bytes", integer), "disk_max_stream_bytes", "store_max_stream_bytes"),
    "max_ack_pending": put("max_ack_pending", integer),
    "cluster_traffic": cluster_traffic,
}


def accounts(settings: Settings, value: object) -> None:
    """All of them. The users join those of the `authorization` block."""
    if isinstance(value, list):
        names = [check_name(str(name), dict.fromkeys(map(str, value[:at]))) for at, name in enumerate(value)]
        settings["accounts"] = tuple(AccountOptions(name=name) for name in names)
        return
    if not isinstance(value, Table):
        raise OptionsError(f"Expected accounts field to be a map/struct or array, got {value}")
    found: dict[str, AccountOptions] = {}
    everybody: list[AnyUser] = []
    for name, block in value.given(()):
        try:
            check_name(name, found)
            account, members = account_of(name, block)
        except PlacedError:
            raise
        except OptionsError as error:
            raise PlacedError(f"{value.place(name)}: {error}") from error
        found[name] = account
        everybody += members
    try:
        check_sharing({name: account.sharing for name, account in found.items()})
    except SharingError as error:
        raise OptionsError(str(error)) from error
    settings["accounts"] = tuple(found.values())
    settings["account_users"] = tuple(settled(everybody, None))


def check_name(name: str, before: Mapping[str, Any]) -> str:
    """Return a name that an account can have. Raises OptionsError."""
    if name == GLOBAL_ACCOUNT:
        raise OptionsError(f"{go_quote(name)} is a Reserved Account")
    if name in before:
        raise OptionsError(f"Duplicate Account Entry: {name}")
    if not name or len(name.encode()) > NAME_BYTES_MAX or not name.isprintable() or " " in name:
        raise OptionsError(f"account name {go_quote(name)} cannot contain spaces")
    return name


def account_of(name: str, value: object) -> tuple[AccountOptions, list[AnyUser]]:
    """One account and its users. Raises OptionsError."""
    if not isinstance(value, Table):
        raise OptionsError(f"Expected map entries for accounts: {name}")
    found: Settings = {}
    keys: dict[str, Apply] = {
        "users": put("users", users),
        "default_permissions": put("default_permissions", permissions),
        "jetstream": jetstream,
        "exports": put("exports", exports),
        "imports": put("imports", imports),
        **spelled(put("mappings", mappings), "mappings", "maps"),
        "limits": put("limits", limits),
        "nkey": public_key,
        "msg_trace": partial(message_trace, "msg_trace"),
        "trace_dest": partial(message_trace, "trace_dest"),
    }
    apply_all("accounts", value, keys, found)
    default = found.pop("default_permissions", None)
    members = [with_account(with_default(user, default), name) for user in found.pop("users", ())]
    traced = {key: found.pop(key) for key in ("trace_dest", "trace_sampling") if key in found}
    enabled = found.pop("jetstream", None)
    return AccountOptions(name=name, jetstream=enabled, sharing=Sharing(**found), **traced), members


def public_key(_settings: Settings, value: object) -> None:
    """The key of an account; checked, as nothing asks for it, in nats-server neither."""
    if not isinstance(value, str) or not is_account_key(value):
        raise OptionsError(f"Not a valid public nkey for an account: {go_quote(str(value))}")


def with_account(user: AnyUser, account: str) -> AnyUser:
    """A user of an account."""
    return attrs.evolve(user, account=account)


def jetstream(settings: Settings, value: object) -> None:
    """`jetstream: enabled`, `disabled`, or its limits; what is not named has none."""
    if isinstance(value, bool):
        settings["jetstream"] = AccountLimits() if value else None
    elif isinstance(value, str):
        words = {"enabled": AccountLimits(), "enable": AccountLimits(), "disabled": None, "disable": None}
        if value.lower() not in words:
            raise OptionsError(f"Expected 'enabled' or 'disabled' for string value, got '{value}'")
        settings["jetstream"] = words[value.lower()]
    else:
        limits: Settings = {}
        apply_all("accounts.jetstream", value, LIMITS, limits)
        settings["jetstream"] = AccountLimits(**limits)
