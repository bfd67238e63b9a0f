"""Permissions of a scoped signing key with the user's own values: `orders.{{name()}}.{{tag(region)}}.>`. Pure.

A placeholder is a whole token of a subject. Several tags with one name make several subjects. An allowed subject that
comes out invalid is left out, a denied one refuses the user, as in nats-server (processUserPermissionsTemplate).
"""

from itertools import product
from math import prod
from typing import Final

import attrs

from jetraft.api.credentials.claims import ENTRIES_MAX, AccountClaims, Rights, UserClaims
from jetraft.api.credentials.permissions import Permissions, SubjectRules
from jetraft.store.model.subject import valid_subject

NOTHING_ALLOWED: Final = ">"  # denied where all that was allowed came out invalid
UNKNOWN: Final = (" ",)  # makes the subject invalid


class TemplateError(ValueError):
    """The templates do not fit the user; the message is one line."""


def fill_rights(scope: Rights, user: UserClaims, account: AccountClaims) -> Rights:
    """The rights of a user that a scoped key has signed. Raises TemplateError."""
    permissions = scope.permissions
    if permissions is None:
        return scope
    filled = attrs.evolve(
        permissions,
        publish=_fill_rules(permissions.publish, user, account),
        subscribe=_fill_rules(permissions.subscribe, user, account),
    )
    return attrs.evolve(scope, permissions=None if filled == Permissions() else filled)


def _fill_rules(rules: SubjectRules, user: UserClaims, account: AccountClaims) -> SubjectRules:
    allow = _fill(rules.allow, user, account, is_denied=False)
    deny = _fill(rules.deny, user, account, is_denied=True)
    if rules.allow and not allow:
        deny = (*deny, NOTHING_ALLOWED)
    return SubjectRules(allow=allow, deny=deny)


def _fill(entries: tuple[str, ...], user: UserClaims, account: AccountClaims, *, is_denied: bool) -> tuple[str, ...]:
    if not any(_is_template(token) for entry in entries for token in entry.split(".")):
        return _checked(entries)
    filled: list[str] = []
    for entry in entries:
        choices = [_choices(token, user, account) for token in entry.split(".")]
        if prod(map(len, choices)) + len(filled) > ENTRIES_MAX:
            raise TemplateError("too many subjects")
        for tokens in product(*choices):
            subject = ".".join(tokens)
            if valid_subject(subject.encode()):
                filled.append(subject)
            elif is_denied:
                raise TemplateError("generated invalid subject")
    return tuple(filled)


def _checked(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Entries without a placeholder, which may name a queue."""
    if not all(valid_subject(entry.split(" ")[0].encode()) for entry in entries):
        raise TemplateError("invalid subject")
    return entries


def _is_template(token: str) -> bool:
    return token.startswith("{{") and token.endswith("}}")


def _choices(token: str, user: UserClaims, account: AccountClaims) -> tuple[str, ...]:
    """The values that may stand for a token."""
    if not _is_template(token):
        return (token,)
    word = token[2:-2].lower()
    values = {
        "name()": user.name,
        "subject()": user.subject,
        "account-name()": account.name,
        "account-subject()": user.account,
    }
    if word in values:
        return (values[word],)
    for function, tags in (("tag(", user.tags), ("account-tag(", account.tags)):
        if word.startswith(function) and word.endswith(")"):
            prefix = word[len(function) : -1] + ":"
            return tuple(tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)) or ("",)
    return UNKNOWN
