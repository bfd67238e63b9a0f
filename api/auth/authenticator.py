"""Judges who a client is from what its CONNECT says. Pure: the facts come in, the outcome goes out as a value.

The order of the questions is nats-server's (server/auth.go): a key, then a user with a password, then the token, then
the one user of the configuration. A secret that is a bcrypt hash costs a tenth of a second of a processor, so the
outcome is a `SlowCheck` and somebody else hashes. While any secret is hashed, a refusal costs as much, whether the user
exists or not.
"""

from collections.abc import Callable
from typing import Final

import attrs

from jetraft.api.credentials.rules import AuthRules, NkeyUser, PasswordUser
from jetraft.api.credentials.secret import Secret
from jetraft.api.credentials.verdicts import (
    REDACTED,
    ConnectionFacts,
    Credentials,
    LoginRefusal,
    Outcome,
    SlowCheck,
    Verdict,
    VerifySignature,
)

# (what a CONNECT offers, facts) -> who shows a token
JudgeToken = Callable[[Credentials, ConnectionFacts], Verdict | LoginRefusal]
UNKNOWN: Final = LoginRefusal("no such user")
WRONG: Final = LoginRefusal("wrong secret")
PROXY_NEEDED: Final = LoginRefusal("proxy required", needs_proxy=True)


@attrs.frozen(eq=False)
class Authenticator:
    """Judges by one set of rules; a reload makes another one."""

    rules: AuthRules
    verify_signature: VerifySignature
    judge_token: JudgeToken | None = None  # where operators sign accounts and these users: nothing else names a client
    _costly: bytes | None = attrs.field(init=False)  # the hash that takes longest, for refusals to be as slow

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_costly", max(self.rules.hashes, key=lambda hashed: hashed[4:6], default=None))

    def judge(self, offered: Credentials, facts: ConnectionFacts) -> Outcome:
        """The user of a connection."""
        if self.judge_token is not None:
            return self.judge_token(offered, facts)
        if self.rules.proxy_required and not facts.is_proxied:
            return PROXY_NEEDED
        return self._judge_named(offered, facts)

    def _judge_named(self, offered: Credentials, facts: ConnectionFacts) -> Outcome:
        rules = self.rules
        if not rules.required:
            return Verdict(user=shown_user(offered), label=f"user:{offered.user}" if offered.user else "")
        if rules.nkeys:
            nkey = self._claimed_nkey(offered)
            if nkey:
                return self._judge_nkey(nkey, offered, facts)
        if rules.users and (outcome := self._judge_listed(offered, facts)) is not None:
            return outcome
        if rules.token:
            return self._compare(rules.token, offered.token, Verdict(user=REDACTED, label="token"))
        if rules.username and rules.username == offered.user:
            verdict = Verdict(user=offered.user, label=f"user:{offered.user}")
            return self._compare(rules.password, offered.password, verdict)
        return UNKNOWN if offered.names_nobody else self._refuse(UNKNOWN, offered.password)

    def judge_silent(self, facts: ConnectionFacts) -> Verdict | None:
        """The verdict for a client that begins without CONNECT: `no_auth_user`, when it is a user with a password.

        Where certificates name users it is the one of the certificate, as with nats-server.
        """
        user = self.rules.by_name.get(self.rules.no_auth_user)
        if user is None:
            return None
        if facts.maps_certificates:
            outcome = self._judge_certificate("", facts)
            return outcome if isinstance(outcome, Verdict) else None
        if not admits(user, facts) or ((user.proxy_required or self.rules.proxy_required) and not facts.is_proxied):
            return None
        return Verdict(user=user.name, account=user.account, permissions=user.permissions)

    def _claimed_nkey(self, offered: Credentials) -> str:
        if not offered.nkey and offered.names_nobody and self.rules.no_auth_user in self.rules.by_nkey:
            return self.rules.no_auth_user
        return offered.nkey

    def _judge_nkey(self, nkey: str, offered: Credentials, facts: ConnectionFacts) -> Outcome:
        user = self.rules.by_nkey.get(nkey)
        if user is None or not admits(user, facts):
            return UNKNOWN
        if nkey != self.rules.no_auth_user:
            if not offered.signature:
                return LoginRefusal("signature missing")
            if not self.verify_signature(nkey, offered.signature, facts.nonce):
                return LoginRefusal("signature not verified")
        if user.proxy_required and not facts.is_proxied:
            return PROXY_NEEDED
        return Verdict(user=nkey, label=f"nkey:{nkey}", account=user.account, permissions=user.permissions)

    def _judge_listed(self, offered: Credentials, facts: ConnectionFacts) -> Outcome | None:
        """The outcome where there is a list of users; None when none of them is meant."""
        if facts.maps_certificates:
            return self._judge_certificate(offered.password, facts)
        user, secret = offered.user, offered.password
        if offered.names_nobody and (default := self.rules.by_name.get(self.rules.no_auth_user)) is not None:
            user, secret = default.name, default.password.offered_by_default
        return self._judge_user(self.rules.by_name.get(user), secret, facts) if user else None

    def _judge_certificate(self, secret: str, facts: ConnectionFacts) -> Outcome:
        return self._judge_user(self.rules.by_name.get(facts.certificate_user or ""), secret, facts)

    def _judge_user(self, user: PasswordUser | None, secret: str, facts: ConnectionFacts) -> Outcome:
        if user is None or not admits(user, facts):
            return self._refuse(UNKNOWN, secret)
        if user.proxy_required and not facts.is_proxied:
            return self._refuse(PROXY_NEEDED, secret)
        return self._compare(user.password, secret, _verdict_for(user))

    def _compare(self, secret: Secret, offered: str, verdict: Verdict) -> Outcome:
        hashed = secret.hashed
        if hashed is not None:
            return SlowCheck(hashed=hashed, offered=encoded(offered), outcome=verdict)
        return verdict if secret.equals(offered) else self._refuse(WRONG, offered)

    def _refuse(self, refusal: LoginRefusal, offered: str) -> Outcome:
        """Refuse; at the cost of a hash where a user that exists may have one."""
        if self._costly is None:
            return refusal
        return SlowCheck(hashed=self._costly, offered=encoded(offered), outcome=refusal)


def _verdict_for(user: PasswordUser) -> Verdict:
    label = f"user:{user.name}"
    return Verdict(user=user.name, label=label, account=user.account, permissions=user.permissions)


def admits(user: PasswordUser | NkeyUser, facts: ConnectionFacts) -> bool:
    """Whether a user may come over a connection of this kind."""
    return not user.connection_types or facts.kind in user.connection_types


def encoded(offered: str) -> bytes:
    """A password as bytes, whatever the JSON of a CONNECT made of it."""
    return offered.encode(errors="surrogatepass")


def shown_user(offered: Credentials) -> str:
    """Whom pages show where no proof is asked for, as nats-server does."""
    return offered.nkey or offered.user or (REDACTED if offered.token else "")
