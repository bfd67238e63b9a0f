"""Asks a service who a client is: the request as a token, and what counts as an answer (server/auth_callout.go). Pure.

The request names a key that was made for it; the answer must be for that key and this server, signed by the issuer of
the configuration. So an answer can neither be used again nor come from another client of the account.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import attrs
import orjson

from jetraft.api.credentials.claim_fields import TokenError, string
from jetraft.api.credentials.claims import Rights, UserClaims, user_claims
from jetraft.api.credentials.nkeys import public_user_key
from jetraft.api.credentials.permissions import NO_LIMIT, Permissions, SubjectRules, least
from jetraft.api.credentials.rules import CalloutRules
from jetraft.api.credentials.tokens import ALGORITHM, VERSION, Token, decode_token
from jetraft.api.credentials.verdicts import ConnectionFacts, LoginRefusal, Verdict
from jetraft.store.model.clock import NS_PER_S

SUBJECT: Final = "$SYS.REQ.USER.AUTH"
AUDIENCE: Final = "nats-authorization-request"
HEADER: Final = {"typ": "JWT", "alg": ALGORITHM}
OPTIONS: Final = ("jwt", "nkey", "sig", "auth_token", "user", "pass", "name", "lang", "version")
ERROR_CHARS_MAX: Final = 256  # of what the service says, in a line of the log
Sign = Callable[[bytes], bytes]
JudgeIssued = Callable[[UserClaims, ConnectionFacts], Verdict | LoginRefusal]


@attrs.frozen(kw_only=True, slots=True)
class Asked:
    """The expectation that an answer is compared with."""

    user_key: str
    server_id: str
    accounts: Collection[str]  # that there are


@attrs.frozen(kw_only=True)
class Question:
    """The question: what is known of the client, and its CONNECT (`document`) with its secrets."""

    rules: CalloutRules
    server: Mapping[str, Any]
    user_key: str
    client: Mapping[str, Any]
    document: Mapping[str, Any] = attrs.field(repr=False)
    tls: Mapping[str, Any] | None
    now_s: int
    expires_s: int

    def token(self, sign: Sign) -> bytes:
        """The question as a token that the server has signed."""
        options = {key: value for key in OPTIONS if (value := self.document.get(key))}
        nats = {
            "server_id": self.server,
            "user_nkey": self.user_key,
            "client_info": self.client,
            "connect_opts": {**options, "protocol": self.document.get("protocol", 0)},
            **({"client_tls": self.tls} if self.tls is not None else {}),
            "type": "authorization_request",
            "version": VERSION,
        }
        named = {"iss": self.server["id"], "sub": self.rules.issuer, "aud": AUDIENCE}
        claims = {**named, "iat": self.now_s, "exp": self.expires_s, "nats": nats}
        identity = hashlib.sha256(orjson.dumps(claims)).hexdigest()
        signed = b".".join(_encoded(orjson.dumps(part)) for part in (HEADER, {**claims, "jti": identity}))
        return signed + b"." + _encoded(sign(signed))


def _encoded(raw: bytes) -> bytes:
    return urlsafe_b64encode(raw).rstrip(b"=")


def judge_answer(
    payload: bytes, rules: CalloutRules, asked: Asked, facts: ConnectionFacts, issued: JudgeIssued | None = None
) -> Verdict | LoginRefusal:
    """The client's user, by the answer of the service; `issued` judges users where operators sign accounts."""
    if not payload:
        return LoginRefusal("auth callout violation: no reason supplied")
    now_s = facts.unix_ns / NS_PER_S
    try:
        answer = _checked(decode_token(payload), rules, asked, now_s)
        token = decode_token(string(answer.nats, "jwt"))
        if problem := token.time_problem(now_s):
            raise TokenError(problem)  # noqa: TRY301  one refusal for every reason
        user = user_claims(token)
        _check_user(user, rules, asked)
    except TokenError as error:
        return LoginRefusal(f"auth callout: {error}")
    return _judge_placed(user, token.audience, asked, facts) if issued is None else issued(user, facts)


def _judge_placed(user: UserClaims, account: str, asked: Asked, facts: ConnectionFacts) -> Verdict | LoginRefusal:
    """The user of a client that the service puts into an account of the configuration."""
    rights, now_s = user.rights, facts.unix_ns / NS_PER_S
    if rights.proxy_required and not facts.is_proxied:
        return LoginRefusal("auth callout: proxy required", needs_proxy=True)
    until_s = rights.conditions.open_until(now_s)
    if until_s is None:
        return LoginRefusal("auth callout: authorized user outside of valid connect times")
    if not rights.conditions.admits_kind(facts.kind) or not rights.conditions.admits_address(facts.ip):
        return LoginRefusal("auth callout: authorized user may not connect from here")
    if account not in asked.accounts:
        return LoginRefusal("auth callout: no valid account in the response")
    return _verdict(user, rights, account, until_s)


def _checked(answer: Token, rules: CalloutRules, asked: Asked, now_s: float) -> Token:
    """The answer, when it is one to this question. Raises TokenError."""
    if answer.kind != "authorization_response" or public_user_key(answer.subject) is None:
        raise TokenError("the response is no authorization response")
    if problem := answer.time_problem(now_s):
        raise TokenError(f"authorization response had validation errors: {problem}")
    if answer.subject != asked.user_key:
        raise TokenError("auth callout response is not for expected user")
    if answer.audience != asked.server_id:
        raise TokenError("auth callout response is not for server")
    if not _may_answer(answer.issuer, string(answer.nats, "issuer_account"), rules):
        raise TokenError("wrong issuer for auth callout response")
    if error := string(answer.nats, "error"):
        raise TokenError(f"auth callout service returned an error: {error[:ERROR_CHARS_MAX]!r}")
    return answer


def _may_answer(issuer: str, account: str, rules: CalloutRules) -> bool:
    """Whether a key signs answers of the service: its issuer, or a signing key of its account."""
    if rules.allowed is None:
        return issuer == rules.issuer
    return account in ("", rules.account) and issuer in (rules.account, *rules.signers)


def _check_user(user: UserClaims, rules: CalloutRules, asked: Asked) -> None:
    if rules.allowed is None and user.is_by_signing_key:
        raise TokenError("attempted to use issuer_account")
    if rules.allowed is None and user.issuer != rules.issuer:
        raise TokenError("wrong issuer for auth callout response")
    if rules.allowed is not None and not {user.account, "*"} & rules.allowed:
        raise TokenError("the account of the user is none in which the service may put a client")
    if user.subject != asked.user_key:
        raise TokenError("the response is for another user")


def _verdict(user: UserClaims, rights: Rights, account: str, until_s: float) -> Verdict:
    ends = [end for end in (user.expires_s, until_s) if end > 0]
    return Verdict(
        user=user.name or user.subject,
        label=f"user:{user.name}" if user.name else f"nkey:{user.subject}",
        account=account,
        permissions=rights.permissions,
        expires_unix_ns=int(min(ends) * NS_PER_S) if ends else None,
        max_subs=least(rights.max_subs or NO_LIMIT, NO_LIMIT),  # 0 is a token that does not say
        max_payload=least(rights.max_payload or NO_LIMIT, NO_LIMIT),
    )


def without_asking(verdict: Verdict, rules: CalloutRules) -> Verdict:
    """The verdict of a client that may be in the service's account: it may not ask the service itself."""
    if verdict.account != rules.account:
        return verdict
    granted = verdict.permissions or Permissions()
    publish = SubjectRules(allow=granted.publish.allow, deny=(*granted.publish.deny, SUBJECT))
    return attrs.evolve(verdict, permissions=attrs.evolve(granted, publish=publish))
