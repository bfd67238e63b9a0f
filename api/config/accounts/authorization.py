"""The `authorization` block: one user, a token, or a list of users with what each of them may do.

Texts of errors are nats-server's where it has one that says what is wrong; none of them shows a secret.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from jetraft.api.config.blocks import Apply, PlacedError, apply_all, put, spelled
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import boolean, duration_ns, integer, secret_text, text
from jetraft.api.credentials.nkeys import public_user_key
from jetraft.api.credentials.permissions import Permissions, ResponseRules, SubjectRules
from jetraft.api.credentials.rules import CONNECTION_TYPES, NkeyUser, PasswordUser
from jetraft.api.credentials.secret import Secret
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.subject import valid_subject

AnyUser = PasswordUser | NkeyUser
QUEUE_WORDS = 2  # "subject queue"


def authorization(settings: Settings, value: object) -> None:
    """`authorization { user, password | token | users [...], permissions, timeout }`."""
    found: Settings = {}
    keys: dict[str, Apply] = {
        **spelled(put("user", text), "user", "username"),
        **spelled(put("password", secret_text), "pass", "password"),
        "token": put("token", secret_text),
        "users": put("users", users),
        **spelled(callout, "auth_callout", "auth_hook"),
        "proxy_required": put("proxy_required", boolean),
        "timeout": put("auth_timeout_ns", timeout_ns, "timeout"),
        **spelled(
            put("permissions", permissions), "default_permission", "default_permissions", "permission", "permissions"
        ),
    }
    apply_all("authorization", value, keys, found)
    if (found.get("user") or found.get("password")) and found.get("token"):
        raise OptionsError("Cannot have a user/pass and token")
    default = found.pop("permissions", None)
    if found.get("users") is not None:
        check_alone(found)
        found["users"] = tuple(settled(found["users"], default))
    settings |= found


def callout(settings: Settings, value: object) -> None:
    """A service that says who clients are."""
    from jetraft.api.config.accounts.callout import auth_callout  # noqa: PLC0415  few servers have one

    auth_callout(settings, value)


def check_alone(found: Settings) -> None:
    """Raise OptionsError for one user or a token where there is a list of users, of an account or of none."""
    if found.get("user"):
        raise OptionsError("Can not have a single user/pass and a users array")
    if found.get("token"):
        raise OptionsError("Can not have a token and a users array")


def timeout_ns(key: str, value: object) -> int | None:
    """How long a client may take to name itself; 0 is the default."""
    try:
        return duration_ns(key, value) or None
    except OptionsError as error:
        raise OptionsError(f"error parsing authorization config, {error}") from error


def settled(found: list[AnyUser], default: Permissions | None) -> list[AnyUser]:
    """Users with the permissions that those without any have. Raises OptionsError for one that is there twice."""
    names: set[tuple[str, str]] = set()
    for user in found:
        name = ("user", user.name) if isinstance(user, PasswordUser) else ("nkey", user.nkey)
        if name in names:
            raise OptionsError(f'Duplicate {name[0]} "{name[1]}" detected')
        names.add(name)
    return [with_default(user, default) for user in found]


def with_default(user: AnyUser, default: Permissions | None) -> AnyUser:
    """A user that has permissions when there are any."""
    if user.permissions is not None or default is None:
        return user
    return attrs.evolve(user, permissions=default)


def users(_key: str, value: object) -> list[AnyUser]:
    """The list of users, by name or by key."""
    if not isinstance(value, list):
        raise OptionsError("Expected users field to be an array")
    if any(not isinstance(item, Table) for item in value):
        raise OptionsError("Expected user entry to be a map/struct")
    return [user_of(item) for item in value]


def user_of(block: Table) -> AnyUser:
    """One user. Raises PlacedError with the place of the last key, as nats-server's, when it is incomplete."""
    found: Settings = {}
    apply_all("authorization.users", block, USER_KEYS, found)
    nkey, name, password = found.get("nkey", ""), found.get("user", ""), found.get("password", "")
    problem = ""
    if not nkey and not name:
        problem = "User entry requires a user"
    elif nkey and public_user_key(nkey) is None:
        problem = "Not a valid public nkey for a user"
    elif nkey and (name or password):
        problem = "Nkey users do not take usernames or passwords"
    if problem:
        raise PlacedError(f"{block.place(list(block)[-1])}: {problem}") if block else OptionsError(problem)
    rest = {
        "permissions": found.get("permissions"),
        "connection_types": found.get("connection_types", frozenset()),
        "proxy_required": found.get("proxy_required", False),
    }
    return NkeyUser(nkey=nkey, **rest) if nkey else PasswordUser(name=name, password=Secret(password), **rest)


def connection_types(_key: str, value: object) -> frozenset[str]:
    """How a user may connect; an empty list is any way."""
    words = [str(item).upper() for item in (value if isinstance(value, list) else [value])]
    wrong = [word for word in words if word not in CONNECTION_TYPES]
    if wrong:
        raise OptionsError(f"invalid connection types [{' '.join(map(go_quote, wrong))}]")
    return frozenset(words)


def permissions(_key: str, value: object) -> Permissions:
    """`{ publish, subscribe, allow_responses }`."""
    if not isinstance(value, Table):
        raise OptionsError(f"Expected permissions to be a map/struct, got {value}")
    found: Settings = {}
    known_keys("", value, PERMISSION_KEYS, "Unknown field {} parsing permissions")
    apply_all("permissions", value, PERMISSION_KEYS, found)
    return Permissions(**found)


def route_permissions(_key: str, found: Permissions) -> Permissions:
    """The same as routes have them: no queues, no answers. Raises OptionsError."""
    if found.responses is not None:
        raise OptionsError("Cluster permissions do not support dynamic responses")
    for name, listed in (("allow", found.subscribe.allow), ("deny", found.subscribe.deny)):
        for subject in listed:
            if not valid_subject(subject.encode()):
                raise OptionsError(f"cluster export {name}: subject {go_quote(subject)} is not a valid subject")
    return found


def rules(key: str, value: object, *, with_queues: bool) -> SubjectRules:
    """`{ allow, deny }`, or what is allowed alone."""
    if not isinstance(value, Table):
        return SubjectRules(allow=subjects(key, value, with_queues=with_queues))
    found: Settings = {}
    read = partial(subjects, with_queues=with_queues)
    keys: dict[str, Apply] = {"allow": put("allow", read), "deny": put("deny", read)}
    known_keys(
        key, value, keys, "Unknown field name {} parsing subject permissions, only 'allow' or 'deny' are permitted"
    )
    apply_all(key, value, keys, found)
    return SubjectRules(**found)


def known_keys(_name: str, block: Table, keys: Mapping[str, Apply], wrong: str) -> None:
    """Raise PlacedError for a key that is none of these."""
    for key, _ in block.given(keys):
        if key.lower() not in keys:
            raise PlacedError(f"{block.place(key)}: {wrong.format(go_quote(key))}")


def subjects(_key: str, value: Any, *, with_queues: bool) -> tuple[str, ...]:
    """Subjects with wildcards; one alone may stand without its list."""
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not all(isinstance(item, str) for item in items):
        raise OptionsError("Subject in permissions array cannot be cast to string")
    if not all(isinstance(item, str) for item in items):
        raise OptionsError("Expected subject permissions to be a subject, or array of subjects")
    for item in items:
        words = item.split()
        if with_queues and not valid_subject(item.encode()) and len(words) == QUEUE_WORDS:
            item = words[0]  # noqa: PLW2901  what has to be a subject
        if not valid_subject(item.encode()):
            raise OptionsError(f"subject {go_quote(item)} is not a valid subject")
    return tuple(items)


def responses(_key: str, value: object) -> ResponseRules | None:
    """`true`, or `{ max, expires }`; a negative limit is none."""
    if isinstance(value, bool):
        return ResponseRules() if value else None
    if not isinstance(value, Table):
        raise OptionsError("error parsing response permissions, expected a boolean or a map")
    found: Settings = {}
    keys: dict[str, Apply] = {
        **spelled(put("max_msgs", integer, "max"), "max", "max_msgs", "max_messages", "max_responses"),
        **spelled(put("expires_ns", expires_ns), "expires", "expiration", "ttl"),
    }
    known_keys("", value, keys, "Unknown field {} parsing permissions")
    apply_all("allow_responses", value, keys, found)
    return ResponseRules(**{name: number for name, number in found.items() if number != 0})


def expires_ns(_key: str, value: object) -> int:
    """A duration, which may be negative."""
    if not isinstance(value, str):
        raise OptionsError("error parsing expires, not a duration string")
    try:
        magnitude = duration_ns("time", value.removeprefix("-"))
    except OptionsError:
        raise OptionsError(f'error parsing expires: time: invalid duration "{value}"') from None
    return -magnitude if value.startswith("-") else magnitude


# Made once: a list may have a million users.
USER_KEYS: dict[str, Apply] = {
    "nkey": put("nkey", text),
    **spelled(put("user", text), "user", "username"),
    **spelled(put("password", secret_text), "pass", "password"),
    **spelled(put("permissions", permissions), "permission", "permissions", "authorization"),
    **spelled(put("connection_types", connection_types), "allowed_connection_types", "connection_types", "clients"),
    "proxy_required": put("proxy_required", boolean),
}
PERMISSION_KEYS: dict[str, Apply] = {
    **spelled(put("publish", partial(rules, with_queues=False), "publish"), "pub", "publish", "import"),
    **spelled(put("subscribe", partial(rules, with_queues=True), "subscribe"), "sub", "subscribe", "export"),
    **spelled(put("responses", responses), "publish_allow_responses", "allow_responses"),
}
