"""Clients whom a service judges: the request goes to an account of the configuration, and its answer releases them.

A client is held meanwhile, as with passwords that are hashed, and ends with the deadline for naming oneself when no
answer comes. At most IN_FLIGHT_MAX are asked about at a time, and of one address ADDRESS_MAX.
"""

import secrets
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.auth.server_key import ServerKey, new_user_key
from jetraft.api.auth.verifying import Verifications
from jetraft.api.credentials.callout import SUBJECT, Asked, Question, judge_answer, without_asking
from jetraft.api.credentials.rules import AuthRules, CalloutRules
from jetraft.api.credentials.sealing import SealError
from jetraft.api.credentials.verdicts import ConnectionFacts, Credentials, LoginRefusal, Outcome, SlowCheck, Verdict
from jetraft.api.options.interfaces import payer_of
from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.session import Session, Sessions
from jetraft.api.tls.facts import TlsState
from jetraft.api.turns.outbox import PlaneOutbox, PlaneOutboxes
from jetraft.api.turns.reactor import Reactor
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import GLOBAL_ACCOUNT
from jetraft.store.model.versioning import SERVER_VERSION

if TYPE_CHECKING:
    from jetraft.api.auth.lookups import AccountLookups
    from jetraft.api.auth.registry import AccountRegistry
    from jetraft.api.credentials.sealing import SealingKeys

IN_FLIGHT_MAX: Final = 1024
ADDRESS_MAX: Final = 256
TOKEN_BYTES: Final = 12
XKEY_HEADER: Final = b"NATS/1.0\r\nNats-Server-Xkey: %s\r\n\r\n"
STARTS_WITH: Final = b"eyJ"  # a token that is not sealed
Done = Callable[[Verdict | LoginRefusal], None]


@attrs.frozen(kw_only=True)
class AskedConnection:
    """A connection that a service is asked about: what the request says of it, and whether it is still there."""

    ip: str
    client: Mapping[str, Any]
    tls: Mapping[str, Any] | None
    is_present: Callable[[], bool]


@attrs.frozen
class _Asking:
    asker: AskedConnection
    asked: Asked
    facts: ConnectionFacts = attrs.field(repr=False)
    done: Done
    rules: CalloutRules


@attrs.define(eq=False)
class Callouts:
    """See the module. It serves from `start` on."""

    sessions: Sessions
    rules: CalloutRules | None  # of the configuration; with operators accounts have their own
    key: ServerKey
    registry: "AccountRegistry | None" = None
    lookups: "AccountLookups | None" = None
    asked: int = 0
    refused: int = 0
    _in_flight: dict[str, _Asking] = attrs.field(factory=dict)  # by the last word of the reply subject
    _outboxes: PlaneOutboxes | None = None
    _listening: dict[str, PlaneOutbox] = attrs.field(factory=dict)  # by account
    _sealers: "dict[str, SealingKeys]" = attrs.field(factory=dict)  # by the key of the reader
    _reactor: Reactor | None = None
    _verifications: Verifications | None = None
    _inbox: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._inbox = f"$SYS._INBOX.{self.sessions.identity.server_id}"
        if self.rules is not None and self.rules.xkey:
            self._sealer(self.rules)  # now: what it needs may be missing

    def start(self, plane: Plane, reactor: Reactor, verifications: Verifications) -> None:
        """Listen for answers, which are verified a few at a time."""
        self._verifications = verifications
        self._reactor = reactor
        self._outboxes = PlaneOutboxes(plane, reactor)
        if self.rules is not None:
            self._outbox(self.rules.account)

    def _outbox(self, account: str) -> PlaneOutbox:
        """The way to a service and back."""
        found = self._listening.get(account)
        if found is None:
            assert self._outboxes is not None
            found = self._listening[account] = self._outboxes(account)
            found.add_sink(f"{self._inbox}.*".encode(), partial(self._on_batch, account), kind=SinkKind.REPLY)
        return found

    def _sealer(self, rules: CalloutRules) -> "SealingKeys | None":
        """The key that seals requests to a service; None: they are not sealed."""
        if rules.xkey and rules.xkey not in self._sealers:
            from jetraft.api.credentials.sealing import SealingKeys  # noqa: PLC0415  only where a key is given

            self._sealers[rules.xkey] = SealingKeys.new(rules.xkey)
        return self._sealers.get(rules.xkey)

    def may_stand(self, offered: Credentials, listed: AuthRules | None) -> bool:
        """Whether the configuration may say who a client is, so that it is judged before a service is asked.

        With operators it always is: a client has a token first. The name that a client gives is not who it is: `stands`
        has the last word. Without `listed` users of no account are left to the configuration, as with nats-server those
        that leaf nodes connect as are not.
        """
        if self.rules is None:
            return True
        names = [name for name in (offered.nkey, offered.user) if name]
        if any(name in self.rules.users for name in names):
            return True
        found = [user for name in names if listed is not None and (user := listed.named(name)) is not None]
        return any(self._is_left(user.account) for user in found)

    def stands(self, verdict: Verdict, *, of_leaf: bool = False) -> bool:
        """Whether a verdict of the configuration holds without the service."""
        if self.rules is None or verdict.user in self.rules.users:
            return True
        return not of_leaf and self._is_left(verdict.account)

    def is_asked_after(self, refused: Credentials) -> bool:
        """Whether the service is asked about whom the configuration has refused; not about those it never judges."""
        return self.rules is not None and not {refused.nkey, refused.user} & self.rules.users

    def service_for(self, offered: Credentials, outcome: Outcome, *, of_leaf: bool = False) -> CalloutRules | None:
        """The service that is asked although there is an outcome.

        It is that of the account, or the one of the configuration, where another user was judged than those that are
        left to the configuration, or one of them was refused.
        """
        found = outcome.outcome if isinstance(outcome, SlowCheck) else outcome
        if isinstance(found, Verdict):
            return self.rules_for(found) if self.stands(found, of_leaf=of_leaf) else self.rules
        return self.rules if self.is_asked_after(offered) else None

    def by_default(self, document: dict[str, Any], offered: Credentials, listed: AuthRules) -> dict[str, Any]:
        """A CONNECT that names no user, as one of `no_auth_user`: that is who the service is asked about."""
        user = listed.by_name.get(listed.no_auth_user) if self.rules is not None and offered.is_blank else None
        return document if user is None else {**document, "user": user.name, "pass": user.password.offered_by_default}

    def _is_left(self, account: str) -> bool:
        """Whether users of an account are left to the configuration: it is none of `allowed_accounts`."""
        delegated = self.rules.delegated if self.rules is not None else None
        return delegated is not None and account not in delegated

    def rules_for(self, verdict: Verdict) -> CalloutRules | None:
        """Whose service says who this is, which has a token of an account with one; None: the verdict stands."""
        account = None if self.registry is None else self.registry.get(verdict.account)
        rules = None if account is None else account.callout
        return None if rules is None or verdict.user in rules.users else rules

    def bounded(self, verdict: Verdict) -> Verdict:
        """The verdict of a client that is let in: it may not ask the service itself."""
        return verdict if self.rules is None else without_asking(verdict, self.rules)

    @property
    def accounts(self) -> Collection[str]:
        """The accounts that the service may put a client into."""
        return {GLOBAL_ACCOUNT, *(account.name for account in self.sessions.options.accounts)}

    def asker_of(self, session: Session, document: Mapping[str, Any]) -> AskedConnection:
        """A client that a service is asked about."""
        kind = "nats" if session.web is None else "websocket"
        about = {"host": session.ip, "id": session.cid, "kind": "Client", "type": kind}
        return AskedConnection(
            ip=session.ip,
            client={**about, **names_of(document, session.nonce)},
            tls=tls_of(session.tls),
            is_present=lambda: session.cid in self.sessions.by_cid,
        )

    def ask(
        self,
        asker: AskedConnection,
        document: Mapping[str, Any],
        facts: ConnectionFacts,
        done: Done,
        rules: CalloutRules | None = None,
    ) -> bool:
        """Ask who a client is; `done` is called with the answer, in a later turn. False: too many are asked about."""
        rules, identity = rules or self.rules, self.sessions.identity
        assert rules is not None
        if self._outboxes is None or self._reactor is None or not self._has_room(asker.ip):
            self.refused += 1
            return False
        asked = Asked(user_key=new_user_key(), server_id=identity.server_id, accounts=self.accounts)
        self._note(asker, rules.account)
        word, now_s = secrets.token_urlsafe(TOKEN_BYTES), facts.unix_ns // NS_PER_S
        self._in_flight[word] = _Asking(asker, asked, facts, done, rules)
        self.asked += 1
        question = Question(
            rules=rules,
            server=self._server(rules),
            user_key=asked.user_key,
            client=asker.client,
            document=document,
            tls=asker.tls,
            now_s=now_s,
            expires_s=now_s + max(1, self.sessions.options.auth_timeout_ns // NS_PER_S),
        )
        # Not now: the plane is reading the client's bytes.
        self._reactor.later(partial(self._send, rules, word, question.token(self.key.sign)))
        return True

    def _send(self, rules: CalloutRules, word: str, token: bytes) -> None:
        reply, hdr, sealer = f"{self._inbox}.{word}".encode(), b"", self._sealer(rules)
        if sealer is not None:
            token, hdr = sealer.seal(token), XKEY_HEADER % sealer.public.encode()
        self._outbox(rules.account).send(
            SUBJECT.encode(), reply=reply, hdr=hdr, payload=token, origin=MessageOrigin.SERVER
        )

    def _has_room(self, ip: str) -> bool:
        """Whether one more may be asked about, after those that have gone are forgotten."""
        if len(self._in_flight) >= min(IN_FLIGHT_MAX, ADDRESS_MAX):
            self._in_flight = {word: one for word, one in self._in_flight.items() if one.asker.is_present()}
            by_address = Counter(payer_of(one.asker.ip) for one in self._in_flight.values())
            return len(self._in_flight) < IN_FLIGHT_MAX and by_address[payer_of(ip)] < ADDRESS_MAX
        return True

    def _server(self, rules: CalloutRules) -> dict[str, Any]:
        identity, options, sealer = self.sessions.identity, self.sessions.options, self._sealer(rules)
        xkey = "" if sealer is None else sealer.public
        named = {"cluster": identity.cluster_name, "tags": list(options.server_tags), "xkey": xkey}
        return {
            "name": identity.server_name,
            "host": options.host,
            "id": identity.server_id,
            "version": SERVER_VERSION,
            **{key: value for key, value in named.items() if value},
        }

    def _on_batch(self, account: str, batch: bytes) -> None:
        """Take answers; what is no answer to anything that the account was asked is passed over."""
        assert self._verifications is not None
        for capture in captures(batch):
            word = capture.subject.decode(errors="replace").rpartition(".")[2]
            asking = self._in_flight.get(word)
            if asking is not None and asking.rules.account == account:
                del self._in_flight[word]
                self._verifications.put(partial(self._answered, capture.payload, asking))

    def _answered(self, payload: bytes, asking: _Asking, *, is_last: bool = False) -> None:
        outcome = self._judge(payload, asking)
        again = partial(self._answered, payload, asking, is_last=True)
        if is_last or self.lookups is None or not self.lookups.seeks(outcome, asking.asker.ip, again):
            if isinstance(outcome, LoginRefusal):
                self._note(asking.asker, asking.rules.account, outcome.why)
            asking.done(outcome)

    def _note(self, asker: AskedConnection, account: str, why: str = "") -> None:
        """Note of a client what the account of the service hears when it ends without having been let in."""
        session = self.sessions.by_cid.get(asker.client["id"])
        if session is not None:
            session.asked_in, session.distrust, session.named = account, why, asker.client.get("user", "")

    def _judge(self, payload: bytes, asking: _Asking) -> Verdict | LoginRefusal:
        """The client's user; an answer to a sealed request may be sealed, or not."""
        sealer = self._sealer(asking.rules)
        if sealer is not None and payload and not payload.startswith(STARTS_WITH):
            try:
                payload = sealer.open(payload)
            except SealError as error:
                return LoginRefusal(f"error decrypting auth callout response: {error}")
        issued = None if self.registry is None else self.registry.judge().judge_issued
        return judge_answer(payload, asking.rules, asking.asked, asking.facts, issued)

    def statistics(self) -> dict[str, int]:
        """How many were asked about, refused because too many were, and wait."""
        return {"asked": self.asked, "not_asked": self.refused, "in_flight": len(self._in_flight)}


def names_of(document: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """The claims of a CONNECT about its sender, and what was signed for it."""
    found = {
        "user": document.get("nkey") or document.get("user"),
        "name": document.get("name"),
        "nonce": nonce if document.get("sig") else "",
    }
    return {key: value for key, value in found.items() if value}


def tls_of(state: TlsState | None) -> dict[str, Any] | None:
    """The part of the request about the connection's TLS."""
    if state is None:
        return None
    chain = [ssl.DER_cert_to_PEM_cert(one) for one in state.certificates]
    return {
        "version": state.version,
        "cipher": state.cipher,
        **({"verified_chains": [chain]} if chain else {}),
    }
