"""Judges a user that shows a token: user -> account (or its signing key) -> operator (or its signing key). Pure.

The order of the questions is nats-server's (server/auth.go). Which accounts there are changes while the server runs:
they are asked for by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.credentials.callout import without_asking
from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.claims import NO_RIGHTS, user_claims
from jetraft.api.credentials.permissions import least
from jetraft.api.credentials.templates import TemplateError, fill_rights
from jetraft.api.credentials.tokens import decode_token
from jetraft.api.credentials.verdicts import (
    USER_EXPIRED,
    ConnectionFacts,
    Credentials,
    LoginRefusal,
    Verdict,
    VerifySignature,
)
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jetraft.api.credentials.claims import AccountClaims, OperatorClaims, Rights, UserClaims

    AccountOf = Callable[[str], AccountClaims | None]

USER_REVOKED: Final = b"-ERR 'User Authentication Revoked'\r\n"
VIOLATION: Final = b"-ERR 'Authorization Violation'\r\n"
ACCOUNT_EXPIRED_HERE: Final = "Account JWT has expired or is not yet valid"
ACCOUNT_EXPIRED: Final = b"-ERR 'Account Authentication Expired'\r\n"


@attrs.frozen(kw_only=True)
class TrustRules:
    """The operators, and the accounts that may be used (empty: all that they have signed).

    `trusted` are keys of operators without their tokens; `default_sentinel` is the token of clients that show none.
    """

    operators: tuple[OperatorClaims, ...] = ()
    pinned: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()
    default_sentinel: str = attrs.field(default="", repr=False)

    @property
    def keys(self) -> frozenset[str]:
        """The keys that accounts may be signed with."""
        return self.trusted.union(*(operator.keys for operator in self.operators))


@attrs.frozen(eq=False)
class TokenJudge:
    """Judges tokens of users, which takes the time of two verifications."""

    rules: TrustRules
    account_of: AccountOf
    verify_signature: VerifySignature
    _keys: frozenset[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_keys", self.rules.keys)

    def judge(self, offered: Credentials, facts: ConnectionFacts) -> Verdict | LoginRefusal:
        """The user of a connection."""
        if not offered.jwt:
            return LoginRefusal("Authentication requires a user JWT")
        try:
            token = decode_token(offered.jwt)
            user = user_claims(token)
        except TokenError as error:
            return LoginRefusal(f"User JWT not valid: {error}")
        now_s = facts.unix_ns / NS_PER_S
        if problem := token.time_problem(now_s):
            return LoginRefusal(f"User JWT no longer valid: {problem}")
        return self.judge_user(user, offered, facts)

    def judge_user(
        self, user: UserClaims, offered: Credentials | None, facts: ConnectionFacts
    ) -> Verdict | LoginRefusal:
        """The user whose token is verified and within its time; `offered` None: it is the user without a proof."""
        if self.rules.pinned and user.account not in self.rules.pinned:
            return LoginRefusal("Account not listed as operator pinned account")
        account = self.account_of(user.account)
        if account is None:
            return LoginRefusal("Account JWT lookup error: account missing", account=user.account)
        try:
            rights = rights_in(account, user)
        except TemplateError as error:
            return LoginRefusal(f"User JWT is not valid: {error}")
        until_s = rights.conditions.open_until(facts.unix_ns / NS_PER_S)
        if rights.proxy_required and not facts.is_proxied:
            return LoginRefusal("proxy required", needs_proxy=True)
        problem = next(self._problems(user, rights, account, offered, facts), "")
        if not problem and until_s is None:
            problem = "Outside connect times"
        if problem:
            return LoginRefusal(problem, account=user.account if problem == ACCOUNT_EXPIRED_HERE else "")
        return verdict_of(user, rights, account, until_s or 0.0)

    def judge_issued(self, user: UserClaims, facts: ConnectionFacts) -> Verdict | LoginRefusal:
        """The user whose token a service has made for the connection: nothing has to be proved."""
        return self.judge_user(user, None, facts)

    def _problems(
        self,
        user: UserClaims,
        rights: Rights,
        account: AccountClaims,
        offered: Credentials | None,
        facts: ConnectionFacts,
    ) -> Iterator[str]:
        """Reasons that keep a user out, the first question first; a signature is verified where all others pass."""
        if account.issuer not in self._keys:
            yield "Account JWT not signed by trusted operator"
        if not user.rights.conditions.admits_kind(facts.kind) or not rights.conditions.admits_kind(facts.kind):
            yield "Connection type not allowed"
        if not account.holds_at(facts.unix_ns / NS_PER_S):
            yield ACCOUNT_EXPIRED_HERE
        if offered is not None and (problem := self._proof_problem(user, rights, account, offered, facts)):
            yield problem
        if account.has_revoked(user):
            yield "User authentication revoked"
        if not rights.conditions.admits_address(facts.ip):
            yield f"Bad src Ip {facts.ip}"

    def _proof_problem(
        self, user: UserClaims, rights: Rights, account: AccountClaims, offered: Credentials, facts: ConnectionFacts
    ) -> str:
        """Why the client does not prove to be the user; empty when it does, or needs not."""
        if rights.is_bearer:
            return "" if account.allows_bearer else "Account does not allow bearer tokens"
        if not offered.signature:
            return "Signature missing"
        is_signed = self.verify_signature(user.subject, offered.signature, facts.nonce)
        return "" if is_signed else "Signature not verified"


def rights_in(account: AccountClaims, user: UserClaims) -> Rights:
    """The rights of a user in its account: its own, or those of the scope that signed it. Raises TemplateError."""
    is_known, scope = account.signer(user.issuer)
    if not is_known:
        raise TemplateError("its issuer is not known")
    if scope is None:
        rights = user.rights
    elif user.rights != NO_RIGHTS:
        raise TemplateError("scoped users require no permissions or limits set")
    else:
        rights = fill_rights(scope, user, account)
    if rights.permissions is None:
        return attrs.evolve(rights, permissions=account.default_permissions)
    return rights


@attrs.frozen(kw_only=True, slots=True)
class Eviction:
    """A connection that may not stay, and what it is told."""

    last_words: bytes = b""
    is_revoked: bool = False
    is_expired: bool = False


def renewed(before: Verdict, account: AccountClaims | None, now_s: float) -> Verdict | Eviction:
    """The verdict on the connection of a user whose account has another token now; None: it has none any more.

    Where it would have other permissions it ends, and has them when it connects again.
    """
    user = before.claims
    assert user is not None, "a user of an operator's account"
    if account is None or not account.holds_at(now_s):
        return Eviction(last_words=ACCOUNT_EXPIRED, is_expired=True)
    if account.has_revoked(user):
        return Eviction(last_words=USER_REVOKED, is_revoked=True)
    try:
        rights = rights_in(account, user)
    except TemplateError:
        return Eviction()
    if rights.is_bearer and not account.allows_bearer:
        return Eviction(last_words=VIOLATION)
    until_s = rights.conditions.open_until(now_s)
    if until_s is None:
        return Eviction(last_words=USER_EXPIRED, is_expired=True)
    verdict = verdict_of(user, rights, account, until_s)
    return verdict if verdict.permissions == before.permissions else Eviction()


def verdict_of(user: UserClaims, rights: Rights, account: AccountClaims, until_s: float) -> Verdict:
    """The rights of a user's connection, and until when."""
    ends = [(user.expires_s, USER_EXPIRED), (until_s, USER_EXPIRED), (account.expires_s, ACCOUNT_EXPIRED)]
    expires_s, words = min((end for end in ends if end[0] > 0), default=(0, USER_EXPIRED))
    verdict = Verdict(
        user=user.subject,
        label=f"nkey:{user.subject}",
        account=account.subject,
        permissions=rights.permissions,
        expires_unix_ns=int(expires_s * NS_PER_S) if expires_s else None,
        last_words=words,
        max_subs=least(rights.max_subs, account.max_subs),
        max_payload=least(rights.max_payload, account.max_payload),
        max_leafnodes=account.max_leafnodes,
        claims=user,
    )
    return verdict if account.callout is None else without_asking(verdict, account.callout)
