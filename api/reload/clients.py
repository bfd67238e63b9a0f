"""Connected clients under new rules: who may stay, as whom, and with which subscriptions. Texts are nats-server's.

A client whose user is gone, or is in another account now, is closed without a word; one whose secret is wrong is told.
A password is hashed again only when its hash has changed.
"""

from collections.abc import Callable, Container
from functools import partial
from typing import Final

import attrs

from jetraft.api.auth.login import AUTHORIZATION_VIOLATION, Logins
from jetraft.api.credentials.rules import AuthRules
from jetraft.api.credentials.verdicts import LoginRefusal, SlowCheck, Verdict, log_refusal
from jetraft.api.credentials.violations import quoted
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import credentials_of
from jetraft.api.sessions.session import Session
from jetraft.store.model.gosyntax import go_quote

WRONG: Final = LoginRefusal("wrong secret")


@attrs.frozen(eq=False)
class ConnectedClients:
    """Judges who is connected."""

    logins: Logins
    plane: Plane
    known_accounts: Callable[[], Container[str]]

    def judge_again(self, old: AuthRules) -> None:
        """Apply the rules in force to every connection; `old` are those before.

        Tokens of operators say who their clients are, and a reload changes nothing about them.
        """
        if self.logins.registry is not None:
            return
        for session in list(self.logins.sessions.by_cid.values()):
            self._judge(session, old)

    def _judge(self, session: Session, old: AuthRules) -> None:
        rules = self.logins.rules_for(session)
        if session.verdict is None:
            if rules.required and not old.required:
                self._refuse(session)  # it may have begun without a CONNECT
            return
        if was_listed(session.verdict, old) and not is_listed(session.verdict, rules):
            self.plane.close(session.cid, Reason.CLIENT_CLOSED)
            return
        if self.logins.is_judged_elsewhere(session):  # the service is not asked again
            if session.account not in self.known_accounts():
                self.plane.close(session.cid, Reason.CLIENT_CLOSED)
            return
        outcome = self.logins.judge_again(session)
        if isinstance(outcome, SlowCheck) and isinstance(outcome.outcome, Verdict) and outcome.hashed in old.hashes:
            outcome = outcome.outcome  # it was compared when the client connected
        if isinstance(outcome, SlowCheck):
            self._hash(session, outcome)
        else:
            self._settle(session, outcome)

    def _hash(self, session: Session, check: SlowCheck) -> None:
        cid, basis = session.cid, self.logins.basis()

        def done(same: bool) -> None:  # noqa: FBT001  (the queue's own signature)
            if cid not in self.logins.sessions.by_cid:
                return
            if basis == self.logins.basis():
                self._settle(session, check.outcome if same else WRONG)
            else:
                self._hashed_before(session, check, same=same)

        is_wanted = partial(self.logins.sessions.by_cid.__contains__, cid)
        if not self.logins.checks.submit(session.ip, check.offered, check.hashed, is_wanted, done):
            self._refuse(session)

    def _hashed_before(self, session: Session, check: SlowCheck, *, same: bool) -> None:
        """A password was compared for rules that another reload has replaced meanwhile: these say who this is now."""
        outcome = self.logins.judge_again(session)
        if not isinstance(outcome, SlowCheck):
            self._settle(session, outcome)
        elif outcome.hashed == check.hashed:
            self._settle(session, outcome.outcome if same else WRONG)
        else:
            self._hash(session, outcome)

    def _settle(self, session: Session, outcome: Verdict | LoginRefusal) -> None:
        if isinstance(outcome, LoginRefusal):
            self._refuse(session)
            return
        assert session.verdict is not None
        outcome = self.logins.bounded(outcome)
        if outcome.account != session.account:
            self.plane.close(session.cid, Reason.CLIENT_CLOSED)
            return
        changed = outcome.permissions != session.verdict.permissions
        session.verdict = outcome
        if changed:
            self._grant(session, outcome)

    def _grant(self, session: Session, verdict: Verdict) -> None:
        """Give a client other permissions, and end the subscriptions that it may not have."""
        granted = self.logins.grants.of(verdict.permissions)
        session.options = attrs.evolve(session.options, permissions=granted)
        self.plane.regrant(session.cid, granted, partial(self._say_removed, session.cid, verdict.user))

    def _say_removed(self, cid: int, user: str, removed: list[tuple[bytes, bytes, bytes]]) -> None:
        for subject, queue, sid in removed:
            shown = quoted(subject) + (f" using queue {quoted(queue)}" if queue else "")
            shown += f" (sid {quoted(sid)})"
            self.logins.say.info(f"Removed sub {shown} for User {go_quote(user)} - not authorized")
            text = f"-ERR 'Permissions Violation for Subscription to {shown}'\r\n"
            self.plane.write(cid, text.encode("utf-8", "replace"))

    def _refuse(self, session: Session) -> None:
        offered = credentials_of(session.document or {})
        log_refusal(session.title, session.ip, offered, "not authorized after the reload")
        self.plane.close(session.cid, Reason.AUTHENTICATION_FAILURE, AUTHORIZATION_VIOLATION)


def was_listed(verdict: Verdict, rules: AuthRules) -> bool:
    """Whether somebody is one of a list of users."""
    return bool(verdict.user) and is_listed(verdict, rules)


def is_listed(verdict: Verdict, rules: AuthRules) -> bool:
    """Whether the rules list this user."""
    return verdict.user in rules.by_name or verdict.user in rules.by_nkey
