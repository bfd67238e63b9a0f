"""The claims in tokens of operators, accounts and users, as values. Pure.

Names and rules are those of github.com/nats-io/jwt (v2). A field that a token lacks is empty or zero, as there: a user
without `subs` may have no subscription. A claim that is not served and would widen or misdirect what clients reach is
refused.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from jetraft.api.credentials.claim_fields import TokenError, flag, integer, items, string, strings, table
from jetraft.api.credentials.conditions import ALWAYS, Conditions, conditions_of
from jetraft.api.credentials.nkeys import PREFIX_CURVE, is_account_key, is_operator_key, public_key, public_user_key
from jetraft.api.credentials.permissions import (
    NO_LIMIT,
    RESPONSES_EXPIRE_NS,
    RESPONSES_MAX,
    Permissions,
    ResponseRules,
    SubjectRules,
)
from jetraft.api.credentials.rules import CalloutRules
from jetraft.api.credentials.sharing_claims import sharing_of
from jetraft.api.credentials.tokens import InvalidClaimsError, Token
from jetraft.api.exchange.values import PERCENT, Sharing, TraceDestination
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.state import AccountLimits
from jetraft.store.model.subject import valid_publish_subject, valid_subject
from jetraft.store.model.tiers import Allowance, TieredLimits

ENTRIES_MAX: Final = 10_000  # of the lists of permissions of one token
TIERS_MAX: Final = 100  # five can be of use
SCOPE: Final = "user_scope"
EVERY_USER: Final = "*"  # of revocations
EVERY_ACCOUNT: Final = "*"
NO_SCOPE_LIMITS: Final = {"subs": NO_LIMIT, "data": NO_LIMIT, "payload": NO_LIMIT}


@attrs.frozen(kw_only=True, slots=True)
class Rights:
    """The rights of a user, and when and from where it may connect; of a user's token, or of a scoped signing key."""

    permissions: Permissions | None = None
    max_subs: int = 0
    max_data: int = 0
    max_payload: int = 0
    conditions: Conditions = ALWAYS
    is_bearer: bool = False
    proxy_required: bool = False


NO_RIGHTS: Final = Rights()


@attrs.frozen(kw_only=True, slots=True)
class UserClaims:
    """The token of a user. `issuer` is its account, or a signing key of `account`."""

    subject: str
    issuer: str
    account: str
    is_by_signing_key: bool
    name: str = ""
    tags: tuple[str, ...] = ()
    issued_at_s: int = 0
    expires_s: int = 0
    rights: Rights = NO_RIGHTS


@attrs.frozen(kw_only=True, slots=True)
class OperatorClaims:
    """The token of an operator, which signs its accounts; with `strict`, with signing keys only."""

    subject: str
    name: str = ""
    signing_keys: tuple[str, ...] = ()
    strict: bool = False
    system_account: str = ""
    assert_version: str = ""
    account_server_url: str = attrs.field(default="", repr=False)  # may have a password

    @property
    def keys(self) -> frozenset[str]:
        """The keys that accounts may be signed with."""
        return frozenset(self.signing_keys) | (frozenset() if self.strict else {self.subject})


@attrs.frozen(kw_only=True, slots=True)
class AccountClaims:
    """The token of an account. `jetstream` is None where it is not enabled."""

    subject: str
    issuer: str
    name: str = ""
    tags: tuple[str, ...] = ()
    issued_at_s: int = 0
    expires_s: int = 0
    not_before_s: int = 0
    signing_keys: Mapping[str, Rights | None] = MappingProxyType({})  # None: without a scope
    revocations: Mapping[str, int] = MappingProxyType({})  # user's key or `*` -> tokens up to this second
    default_permissions: Permissions | None = None
    max_leafnodes: int = NO_LIMIT
    sharing: Sharing = attrs.field(factory=Sharing)  # with the limit of its connections
    max_subs: int = NO_LIMIT
    max_payload: int = NO_LIMIT
    allows_bearer: bool = True
    jetstream: Allowance | None = None
    callout: CalloutRules | None = None  # where a service of the account says who clients are
    trace: TraceDestination | None = None

    def has_revoked(self, user: UserClaims) -> bool:
        """Whether the token of a user does not count any more."""
        until_s = max(self.revocations.get(key, NO_LIMIT) for key in (user.subject, EVERY_USER))
        return user.issued_at_s <= until_s

    def holds_at(self, now_s: float) -> bool:
        """Whether the account's time has come and is not over."""
        return self.not_before_s <= int(now_s) and not 0 < self.expires_s < int(now_s)

    def signer(self, key: str) -> tuple[bool, Rights | None]:
        """Whether the key may sign the account's users, and the scope that it gives them."""
        return key == self.subject or key in self.signing_keys, self.signing_keys.get(key)


# -- users


def user_claims(token: Token) -> UserClaims:
    """Read the token of a user. Raises TokenError."""
    if token.kind != "user":
        raise TokenError("not user claim")
    if public_user_key(token.subject) is None:
        raise TokenError("the subject is not a user public key")
    account = string(token.nats, "issuer_account")
    if account and not is_account_key(account):
        raise TokenError("account_id is not an account public key")
    return UserClaims(
        subject=token.subject,
        issuer=token.issuer,
        account=account or token.issuer,
        is_by_signing_key=bool(account),
        name=token.name,
        tags=strings(token.nats, "tags"),
        issued_at_s=token.issued_at_s,
        expires_s=token.expires_s,
        rights=rights_of(token.nats, are_templates=False),
    )


def rights_of(block: Mapping[str, Any], *, are_templates: bool) -> Rights:
    """Permissions, limits and conditions. Raises TokenError."""
    return Rights(
        permissions=permissions_of(block, are_templates=are_templates),
        max_subs=integer(block, "subs"),
        max_data=integer(block, "data"),
        max_payload=integer(block, "payload"),
        conditions=conditions_of(block),
        is_bearer=flag(block, "bearer_token"),
        proxy_required=flag(block, "proxy_required"),
    )


def permissions_of(block: Mapping[str, Any], *, are_templates: bool) -> Permissions | None:
    """`pub`, `sub` and `resp`; None when there are none. Raises TokenError."""
    publish = _subject_rules(table(block, "pub"), with_queues=False, are_templates=are_templates)
    subscribe = _subject_rules(table(block, "sub"), with_queues=True, are_templates=are_templates)
    answers = None
    if block.get("resp") is not None:
        found = table(block, "resp")
        answers = ResponseRules(
            max_msgs=integer(found, "max") or RESPONSES_MAX, expires_ns=integer(found, "ttl") or RESPONSES_EXPIRE_NS
        )
    permissions = Permissions(publish=publish, subscribe=subscribe, responses=answers)
    return None if permissions == Permissions() else permissions


def _subject_rules(block: Mapping[str, Any], *, with_queues: bool, are_templates: bool) -> SubjectRules:
    rules = SubjectRules(allow=strings(block, "allow"), deny=strings(block, "deny"))
    if len(rules.allow) + len(rules.deny) > ENTRIES_MAX:
        raise TokenError("the token has too many permissions")
    for entry in (*rules.allow, *rules.deny):
        subject, *queue = entry.split(" ")
        if len(queue) > with_queues or any(not one or "\t" in one for one in (subject, *queue)):
            raise TokenError("a permission has a queue or blanks that it cannot have")
        if not are_templates and not valid_subject(subject.encode()):
            raise TokenError("a permission is not a valid subject")
    return rules


# -- operators


def operator_claims(token: Token) -> OperatorClaims:
    """Read the token of an operator. Raises TokenError."""
    if token.kind != "operator":
        raise TokenError("not operator claim")
    nats = token.nats
    keys, system = strings(nats, "signing_keys"), string(nats, "system_account")
    if not all(map(is_operator_key, (token.subject, *keys))):
        raise TokenError("a key is not an operator public key")
    if system and not is_account_key(system):
        raise TokenError("the system account is not an account public key")
    if token.issuer not in (token.subject, *keys):
        raise TokenError("the operator's token is signed by another")
    return OperatorClaims(
        subject=token.subject,
        name=token.name,
        signing_keys=keys,
        strict=flag(nats, "strict_signing_key_usage"),
        system_account=system,
        assert_version=string(nats, "assert_server_version"),
        account_server_url=string(nats, "account_server_url"),
    )


# -- accounts


def account_claims(token: Token) -> AccountClaims:
    """Read the token of an account. Raises TokenError."""
    if token.kind != "account":
        raise TokenError("not account claim")
    if not is_account_key(token.subject):
        raise TokenError("the subject is not an account public key")
    nats = token.nats
    limits = table(nats, "limits")
    signing_keys = dict(map(_signing_key, items(nats, "signing_keys")))
    return AccountClaims(
        subject=token.subject,
        issuer=token.issuer,
        name=token.name,
        tags=strings(nats, "tags"),
        issued_at_s=token.issued_at_s,
        expires_s=token.expires_s,
        not_before_s=token.not_before_s,
        signing_keys=MappingProxyType(signing_keys),
        revocations=MappingProxyType(_revocations(nats)),
        default_permissions=permissions_of(table(nats, "default_permissions"), are_templates=False),
        max_leafnodes=integer(limits, "leaf"),
        sharing=sharing_of(token),
        max_subs=integer(limits, "subs"),
        max_payload=integer(limits, "payload"),
        allows_bearer=not flag(limits, "disallow_bearer"),
        jetstream=jetstream_limits(limits),
        callout=callout_of(table(nats, "authorization"), token.subject, frozenset(signing_keys)),
        trace=trace_of(nats),
    )


def trace_of(nats: Mapping[str, Any]) -> TraceDestination | None:
    """The subject to which messages with `traceparent` are traced; None: they are not. Raises TokenError."""
    if nats.get("trace") is None:
        return None
    block = table(nats, "trace")
    dest, sampling = string(block, "dest"), integer(block, "sampling")
    named = "the account Trace.Destination subject"
    if not dest:
        raise InvalidClaimsError(f"{named} cannot be empty")
    if not valid_publish_subject(dest.encode()):
        raise InvalidClaimsError(f"{named} {go_quote(dest)} is not a valid publish subject")
    if not 0 <= sampling <= PERCENT:
        wrong = "is not valid, should be in the range [1..100]"
        raise InvalidClaimsError(f"the account Trace.Sampling value '{sampling}' {wrong}")
    return TraceDestination(dest=dest.encode(), sampling=sampling or PERCENT)


def callout_of(block: Mapping[str, Any], account: str, signers: frozenset[str]) -> CalloutRules | None:
    """Whom the account's service judges; None where it has none. Raises TokenError."""
    users, allowed, xkey = strings(block, "auth_users"), strings(block, "allowed_accounts"), string(block, "xkey")
    if not users:
        if allowed or xkey:
            raise TokenError("external authorization cannot have accounts or a key without users specified")
        return None
    if not all(public_user_key(user) is not None for user in users):
        raise TokenError("a user of external authorization is not a user public key")
    if allowed != (EVERY_ACCOUNT,) and not all(map(is_account_key, allowed)):
        raise TokenError("an account of external authorization is not an account public key")
    if xkey and public_key(xkey, PREFIX_CURVE) is None:
        raise TokenError("the key of external authorization is not a public xkey")
    return CalloutRules(
        issuer=account,
        account=account,
        users=frozenset(users),
        xkey=xkey,
        allowed=frozenset(allowed) | {account},
        signers=signers,
    )


def _signing_key(item: object) -> tuple[str, Rights | None]:
    """A key alone, or one with the rights of the users that it signs."""
    block = {"key": item} if isinstance(item, str) else item
    if not isinstance(block, dict) or not is_account_key(string(block, "key")):
        raise TokenError("a signing key is not an account public key")
    if isinstance(item, str):
        return item, None
    if block.get("kind") != SCOPE:
        raise TokenError("unknown signing key scope")
    return string(block, "key"), rights_of({**NO_SCOPE_LIMITS, **table(block, "template")}, are_templates=True)


def _revocations(nats: Mapping[str, Any]) -> dict[str, int]:
    found = table(nats, "revocations")
    return {key: integer(found, key) for key in found}


def jetstream_limits(limits: Mapping[str, Any]) -> Allowance | None:
    """The limits of the account, by tier where the token names tiers; None where JetStream is not enabled.

    Raises TokenError.
    """
    tiers = table(limits, "tiered_limits")
    if "" in tiers:
        raise InvalidClaimsError('Tiered JetStream Limits can not contain a blank "" tier name')
    if len(tiers) > TIERS_MAX:
        raise TokenError("the token has too many tiers")
    found = {name: _of_jetstream(table(tiers, name)) for name in tiers}
    everywhere = _of_jetstream(limits)
    if not any(one.max_memory or one.max_storage for one in found.values() or (everywhere,)):
        return None
    return TieredLimits(MappingProxyType(found)) if found else everywhere


def _of_jetstream(limits: Mapping[str, Any]) -> AccountLimits:
    return AccountLimits(
        max_memory=integer(limits, "mem_storage"),
        max_storage=integer(limits, "disk_storage"),
        max_streams=integer(limits, "streams"),
        max_consumers=integer(limits, "consumer"),
        max_ack_pending=_positive(limits, "max_ack_pending"),
        memory_max_stream_bytes=_positive(limits, "mem_max_stream_bytes"),
        storage_max_stream_bytes=_positive(limits, "disk_max_stream_bytes"),
        max_bytes_required=flag(limits, "max_bytes_required"),
    )


def _positive(limits: Mapping[str, Any], key: str) -> int:
    value = integer(limits, key)
    return value if value > 0 else NO_LIMIT
