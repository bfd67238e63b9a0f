"""A client names itself: its CONNECT is judged, at once or after a password was hashed, and refusals are logged.

While a password is hashed the connection is held: its further bytes wait in the plane unread. The connection may end
meanwhile, by itself or by the deadline for naming oneself; the result is dropped then. Texts and their order are those
of nats-server 2.15.1.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.auth.authenticator import Authenticator
from jetraft.api.auth.granting import Grants
from jetraft.api.auth.hashing import PasswordChecks
from jetraft.api.auth.verifying import Verifications
from jetraft.api.credentials.nkeys import signed, signed_by_one
from jetraft.api.credentials.rules import AuthRules, CalloutRules
from jetraft.api.credentials.verdicts import (
    ConnectionFacts,
    Credentials,
    LoginRefusal,
    Outcome,
    SlowCheck,
    Verdict,
    log_refusal,
)
from jetraft.api.credentials.violations import texts
from jetraft.api.logs.logger import Logger
from jetraft.api.options.options import Options
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import ConnectOptions, credentials_of, options_of, parse_connect
from jetraft.api.sessions.session import Session, Sessions
from jetraft.api.sessions.web_facts import with_cookies
from jetraft.api.tls.facts import mapped_user
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.events import CONNECTION_REFUSED, PERMISSION_DENIED
from jetraft.store.model.signal import Signal

if TYPE_CHECKING:
    from jetraft.api.auth.callouts import Callouts
    from jetraft.api.auth.lookups import AccountLookups
    from jetraft.api.auth.registry import AccountRegistry
    from jetraft.api.credentials.claims import AccountClaims
    from jetraft.api.credentials.trust import Eviction

PROTOCOLS: Final = (0, 1)
AUTHORIZATION_VIOLATION: Final = b"-ERR 'Authorization Violation'\r\n"
NO_RESPONDERS_NEED_HEADERS: Final = b"-ERR 'no responders requires headers support'\r\n"
INVALID_PROTOCOL: Final = b"-ERR 'invalid client protocol'\r\n"
UNPARSED: Final = ConnectOptions(close_reason=Reason.PROTOCOL_VIOLATION)
NO_CREDENTIALS: Final = Credentials()
ACCOUNT_CONNECTIONS: Final = b"-ERR 'maximum account active connections exceeded'\r\n"
TOO_MANY: Final = ConnectOptions(error=ACCOUNT_CONNECTIONS, close_reason=Reason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED)
PENDING: Final = ConnectOptions(is_pending=True)


def build_authenticator(rules: AuthRules, registry: "AccountRegistry | None" = None) -> Authenticator:
    """The authenticator for the rules in force."""
    if rules.nkeys or registry is not None:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401, PLC0415  now, not at the first CONNECT
    if rules.hashes:
        import bcrypt  # noqa: F401, PLC0415  a server that cannot hash does not start, rather than end at a login
    return Authenticator(rules, signed, None if registry is None else registry.judge().judge)


def reason_of(eviction: "Eviction") -> Reason:
    """Why a connection is closed whose account has changed."""
    if eviction.is_revoked:
        return Reason.CREDENTIALS_REVOKED
    return Reason.AUTHENTICATION_EXPIRED if eviction.is_expired else Reason.AUTHENTICATION_FAILURE


def web_rules(options: Options) -> AuthRules:
    """The rules for clients over WebSocket, who may have a user or a token of their own."""
    web = options.websocket
    if web is None or not web.overrides_auth:
        return options.auth
    return attrs.evolve(
        options.auth, username=web.username, password=web.password, token=web.token, no_auth_user=web.no_auth_user
    )


@attrs.define(eq=False)
class Logins:
    """Judges CONNECT lines. `run` serves the slow ones and the deadlines."""

    sessions: Sessions
    say: Logger
    verifications: Verifications = attrs.field(factory=Verifications)
    callouts: "Callouts | None" = None  # where a service says who clients are
    registry: "AccountRegistry | None" = None  # of the accounts that operators have signed
    lookups: "AccountLookups | None" = None  # of those that are not in it
    checks: PasswordChecks = attrs.field(factory=PasswordChecks)
    grants: Grants = attrs.field(factory=Grants)
    on_account_changed: "Signal[[str, AccountClaims | None]]" = attrs.field(factory=Signal, init=False)
    editions: int = attrs.field(default=0, init=False)  # of the rules
    authenticator: Authenticator = attrs.field(init=False)
    web_authenticator: Authenticator = attrs.field(init=False)
    _plane: Plane | None = None
    _reactor: Reactor | None = None

    def __attrs_post_init__(self) -> None:
        self.follow_rules()
        if self.lookups is not None:
            self.verifications = self.lookups.verifications  # one line
        if self.authenticator.rules.has_plain_password:
            self.say.warning("Plaintext passwords detected, use nkeys or bcrypt")

    async def run(self, plane: Plane, reactor: Reactor) -> None:
        """Serve until cancelled."""
        import trio  # noqa: PLC0415

        self._plane, self._reactor = plane, reactor
        if self.callouts is not None:
            self.callouts.start(plane, reactor, self.verifications)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.checks.run)
            nursery.start_soon(self.verifications.run, reactor.end_turn)
            for deadlines in (self.sessions.deadlines, self.sessions.web_deadlines):
                nursery.start_soon(deadlines.run, plane.close, reactor.end_turn)

    def on_connect(self, cid: int, text: bytes | None) -> ConnectOptions:
        """Judge what follows the verb of a CONNECT; None: the client began with something else and has to be known."""
        session = self.sessions.by_cid.get(cid)
        if session is None:  # closed in this turn, because there are too many
            return UNPARSED
        if text is None:
            return self._silent(session)
        document = parse_connect(text, session.document)
        if document is None:
            return UNPARSED
        if self.sessions.requires_auth(session) or credentials_of(document) != NO_CREDENTIALS:
            session.document = document  # a reload asks again
        if session.web is not None:
            document = with_cookies(document, session.web.cookies)
        if self._is_costly(document) and not self.verifications.may_now(self._turn):
            self.verifications.put(partial(self._judge_later, cid, document))
            return PENDING
        return self._judge(session, document)

    @property
    def _turn(self) -> int:
        return 0 if self._reactor is None else self._reactor.turns

    def _is_costly(self, document: dict[str, Any]) -> bool:
        """Whether a CONNECT makes the server verify or make signatures."""
        is_of_key = bool(self.authenticator.rules.nkeys and document.get("nkey")) or "proxy_sig" in document
        return is_of_key or self.registry is not None or self.callouts is not None

    def _judge_later(self, cid: int, document: dict[str, Any], *, is_last: bool = False) -> None:
        """The turn of a connection that was held has come."""
        session = self.sessions.by_cid.get(cid)
        assert self._plane is not None
        if session is None:
            return
        options = self._judge(session, document, is_last=is_last)
        if not options.is_pending:
            self._plane.release(cid, options)

    def _judge(self, session: Session, document: dict[str, Any], *, is_last: bool = False) -> ConnectOptions:
        """`is_last`: its account was looked up, and is there or not."""
        cid = session.cid
        if self.registry is not None and not document.get("jwt") and (default := self.registry.rules.default_sentinel):
            document = {**document, "jwt": default}
        session.is_called = False
        authenticator = self._authenticator_of(session)
        if self.callouts is not None:
            document = self.callouts.by_default(document, credentials_of(document), authenticator.rules)
        offered = credentials_of(document)
        if not self._trusts_proxy(session, document):
            return self._refuse(session, offered, "proxy is not trusted", Reason.PROXY_NOT_TRUSTED)
        facts = self._facts_of(session)
        if self.callouts is not None and not self.callouts.may_stand(offered, authenticator.rules):
            return self._ask(session, document, facts, None)
        outcome = authenticator.judge(offered, facts)
        if not is_last and self._looks_up(session, document, outcome):
            return PENDING
        if self.callouts is not None and (service := self.callouts.service_for(offered, outcome)) is not None:
            return self._ask(session, document, facts, service)
        if isinstance(outcome, SlowCheck):
            queued = self.checks.submit(
                session.ip,
                outcome.offered,
                outcome.hashed,
                lambda: cid in self.sessions.by_cid,
                partial(self._hashed, cid, document, outcome, self.basis()),
            )
            return PENDING if queued else self._refuse(session, offered, "too many passwords wait to be hashed")
        return self._settle(session, document, outcome)

    def _looks_up(self, session: Session, document: dict[str, Any], outcome: Outcome) -> bool:
        """Whether the account of a refused user is looked up, and the client judged again after that."""
        again = partial(self._judge_later, session.cid, document, is_last=True)
        return self.lookups is not None and self.lookups.seeks(outcome, session.ip, again)

    def _ask(
        self, session: Session, document: dict[str, Any], facts: ConnectionFacts, rules: CalloutRules | None
    ) -> ConnectOptions:
        """Let a service say who a client is: that of the configuration, or an account's."""
        assert self.callouts is not None
        done = partial(self._answered, session.cid, document, self.basis(rules), rules)
        session.is_called = True
        is_asked = self.callouts.ask(self.callouts.asker_of(session, document), document, facts, done, rules)
        refused = "too many callouts are in flight"
        return PENDING if is_asked else self._refuse(session, credentials_of(document), refused)

    def _trusts_proxy(self, session: Session, document: dict[str, Any]) -> bool:
        """Note which trusted proxy speaks for a client; False: one that is not trusted claims to."""
        signature = document.get("proxy_sig")
        if not signature:
            return True
        session.proxy_key = signed_by_one(self.sessions.options.proxies, signature, session.nonce.encode())
        return bool(session.proxy_key)

    def judge_again(self, session: Session) -> Outcome:
        """Judge a client that is connected by the rules in force, with what its CONNECT said."""
        authenticator = self._authenticator_of(session)
        if session.document is None and session.web is None and authenticator.rules.required:
            return authenticator.judge_silent(self._facts_of(session)) or LoginRefusal("no CONNECT")
        return authenticator.judge(self._offered_by(session), self._facts_of(session))

    def is_judged_elsewhere(self, session: Session) -> bool:
        """Whether a service said who this client is, and not the rules."""
        return session.is_called

    def bounded(self, verdict: Verdict) -> Verdict:
        """The verdict, without what a client may not do however it is listed."""
        return verdict if self.callouts is None else self.callouts.bounded(verdict)

    def _offered_by(self, session: Session) -> Credentials:
        document = session.document or {}
        return credentials_of(document if session.web is None else with_cookies(document, session.web.cookies))

    def follow_rules(self) -> None:
        """Judge by the rules of the options in force."""
        self.editions += 1
        options = self.sessions.options
        self.authenticator = self.web_authenticator = build_authenticator(options.auth, self.registry)
        if (rules := web_rules(options)) is not options.auth:
            self.web_authenticator = build_authenticator(rules, self.registry)

    def rules_for(self, session: Session) -> AuthRules:
        """The rules for the way in which this client connected."""
        return self._authenticator_of(session).rules

    def _authenticator_of(self, session: Session) -> Authenticator:
        return self.authenticator if session.web is None else self.web_authenticator

    def _facts_of(self, session: Session) -> ConnectionFacts:
        options, nonce = self.sessions.options, session.nonce.encode()
        tls = options.websocket.tls if session.web is not None and options.websocket is not None else options.tls
        if tls is None or not tls.verify_and_map or self.registry is not None:
            unix_ns = self.sessions.clock.unix_ns()
            return ConnectionFacts(
                kind=session.kind, nonce=nonce, ip=session.ip, unix_ns=unix_ns, is_proxied=bool(session.proxy_key)
            )
        user = mapped_user(session.tls, self.authenticator.rules.by_name)
        return ConnectionFacts(
            kind=session.kind,
            nonce=nonce,
            maps_certificates=True,
            certificate_user=user,
            is_proxied=bool(session.proxy_key),
        )

    def on_violation(self, cid: int, kind: int, subject: bytes, queue: bytes, sid: bytes) -> bytes:
        """The error for a client that may not publish or subscribe to something."""
        said, logged = texts(kind, subject, queue, sid)
        session = self.sessions.by_cid.get(cid)
        if session is not None:
            PERMISSION_DENIED.log(client=session.title, violation=logged)
        return f"-ERR '{said}'\r\n".encode("utf-8", "replace")

    def basis(self, service: "CalloutRules | None" = None) -> object:
        """The rules that a judgement rests on, and the account whose service is asked.

        A judgement that takes longer than a turn is made again where this is another one when it ends: a reload, or a
        token of the account, may have taken what it gives.
        """
        account = None if self.registry is None or service is None else self.registry.get(service.account)
        return self.editions, account

    def _judge_over(self, session: Session, document: dict[str, Any]) -> None:
        """A client that was held is judged by other rules than those by which it was held."""
        assert self._plane is not None
        options = self._judge(session, document)
        if not options.is_pending:
            self._plane.release(session.cid, options)

    def _hashed(
        self,
        cid: int,
        document: dict[str, Any],
        check: SlowCheck,
        basis: object,
        same: bool,  # noqa: FBT001  (the queue's own signature)
    ) -> None:
        """A password was compared."""
        assert self._reactor is not None
        session, refused = self.sessions.by_cid.get(cid), credentials_of(document)
        if session is not None and basis != self.basis():
            now = self._authenticator_of(session).judge(refused, self._facts_of(session))
            if self.callouts is not None or not isinstance(now, SlowCheck) or now.hashed != check.hashed:
                self._judge_over(session, document)
                self._reactor.end_turn()
                return
            check = now  # the same hash, which is that of a user with other rights
        if session is None or same or self.callouts is None or not self.callouts.is_asked_after(refused):
            self._answered(cid, document, self.basis(), None, check.outcome if same else LoginRefusal("wrong secret"))
        elif not (options := self._ask(session, document, self._facts_of(session), None)).is_pending:
            assert self._plane is not None
            self._plane.release(cid, options)
        self._reactor.end_turn()

    def _answered(
        self,
        cid: int,
        document: dict[str, Any],
        basis: object,
        service: "CalloutRules | None",
        outcome: Verdict | LoginRefusal,
    ) -> None:
        """A held connection gets its answer, if it is still there."""
        session = self.sessions.by_cid.get(cid)
        assert self._plane is not None
        assert self._reactor is not None
        if session is not None and basis != self.basis(service):
            self._judge_over(session, document)
            self._reactor.kick()
        elif session is not None:
            self._plane.release(cid, self._settle(session, document, outcome))
            self._reactor.kick()

    def account_changed(self, before: "AccountClaims | None", account: "AccountClaims | None") -> None:
        """An account has another token, or none: its connections have what that says at once, or end."""
        from jetraft.api.credentials.trust import Eviction, renewed  # noqa: PLC0415  only servers with operators have it

        changed = account or before
        assert changed is not None
        self.on_account_changed.emit(changed.subject, account)
        assert self._plane is not None
        assert self._reactor is not None
        now_s, kept = self.sessions.clock.unix_ns() / NS_PER_S, 0
        for session in list(self.sessions.by_cid.values()):  # the oldest may stay
            if session.verdict is None or session.verdict.claims is None or session.account != changed.subject:
                continue
            outcome = renewed(session.verdict, account, now_s)
            if isinstance(outcome, Eviction):
                self._plane.close(session.cid, reason_of(outcome), outcome.last_words)
            elif account is not None and 0 <= account.sharing.limits.max_connections <= kept:
                self._plane.close(session.cid, Reason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED, ACCOUNT_CONNECTIONS)
            else:
                kept += 1
                session.verdict = outcome
                self._bound(session, outcome)
        self._reactor.kick()

    def _bound(self, session: Session, verdict: Verdict) -> None:
        """Limits and the end of a connection are those of its verdict."""
        assert self._plane is not None
        self._plane.limit_connection(session.cid, max_payload=verdict.max_payload, max_subs=verdict.max_subs)
        self.sessions.deadlines.expire(session.cid, verdict.expires_unix_ns, verdict.last_words)

    def _is_full(self, session: Session, verdict: Verdict) -> bool:
        """Whether the account has as many connections as it may have. The plane keeps to it, and tells the client."""
        return self._plane is not None and self._plane.is_full(session.cid, verdict.account)

    def _silent(self, session: Session) -> ConnectOptions:
        verdict = self._authenticator_of(session).judge_silent(self._facts_of(session))
        if verdict is None or (self.callouts is not None and not self.callouts.stands(verdict)):
            return self._refuse(session, Credentials(), "no CONNECT")
        return self._admit(session, ConnectOptions(), verdict)

    def _settle(self, session: Session, document: dict[str, Any], outcome: Verdict | LoginRefusal) -> ConnectOptions:
        """Check the wishes of a client that may come in: it may ask for what there is not."""
        if isinstance(outcome, LoginRefusal):
            reason = Reason.PROXY_REQUIRED if outcome.needs_proxy else Reason.AUTHENTICATION_FAILURE
            return self._refuse(session, credentials_of(document), outcome.why, reason)
        if document.get("account") or document.get("new_account"):
            return self._refuse(session, credentials_of(document), "a CONNECT does not choose its account")
        options = options_of(document)
        if options.protocol not in PROTOCOLS:
            return ConnectOptions(error=INVALID_PROTOCOL, close_reason=Reason.PROTOCOL_VIOLATION)
        if self.sessions.options.no_header_support:
            options = attrs.evolve(options, headers=False)
        if options.no_responders and not options.headers:
            return ConnectOptions(error=NO_RESPONDERS_NEED_HEADERS, close_reason=Reason.PROTOCOL_VIOLATION)
        return self._admit(session, options, self.bounded(outcome))

    def _admit(self, session: Session, options: ConnectOptions, verdict: Verdict) -> ConnectOptions:
        if self._is_full(session, verdict):
            reason = f"maximum connections exceeded - Account:{verdict.account}"
            CONNECTION_REFUSED.log(client=session.title, reason=reason)
            return TOO_MANY
        granted = self.grants.of(verdict.permissions)
        options = attrs.evolve(
            options,
            account=verdict.account,
            permissions=granted,
            max_payload=verdict.max_payload,
            max_subs=verdict.max_subs,
        )
        session.options, session.verdict = options, verdict
        self.sessions.deadlines.named(session.cid)
        self.sessions.web_deadlines.named(session.cid)
        self.sessions.deadlines.expire(session.cid, verdict.expires_unix_ns, verdict.last_words)
        self.sessions.on_admitted.emit(session)
        return options

    def _refuse(
        self, session: Session, offered: Credentials, why: str, reason: Reason = Reason.AUTHENTICATION_FAILURE
    ) -> ConnectOptions:
        log_refusal(session.title, session.ip, offered, why)
        session.named, session.options = offered.user or offered.nkey, options_of(session.document or {})
        return ConnectOptions(error=AUTHORIZATION_VIOLATION, close_reason=reason)

    def statistics(self) -> dict[str, int]:
        """Passwords compared, and who has not named itself yet."""
        return {
            **self.checks.statistics(),
            **self.verifications.statistics(),
            **self.sessions.deadlines.statistics(),
        }
