"""Finds out who a leaf node is: now, or when its turn to be verified, a hash, a look-up or a service's answer comes.

Until then the connection is held; one that has gone meanwhile is passed over.
"""

from collections.abc import Callable, Container
from functools import partial

import attrs

from jetraft.api.auth.hashing import PasswordChecks
from jetraft.api.auth.verifying import Verifications
from jetraft.api.credentials.rules import CalloutRules
from jetraft.api.credentials.verdicts import Credentials, LoginRefusal, SlowCheck, Verdict
from jetraft.api.leafnodes.entry import LeafEntry
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import Clock


@attrs.define(eq=False, kw_only=True)
class Judging:
    """`settle` is called with who a leaf node is, or why it may not come in, and `refuse` where that is not found out.

    `attach` gives it the plane before the first connection.
    """

    entry: LeafEntry
    checks: PasswordChecks
    verifications: Verifications
    clock: Clock
    present: Container[int]  # ids of connections
    settle: Callable[[LeafLink, Credentials, Verdict | LoginRefusal], None]
    refuse: Callable[[LeafLink, Credentials, str, Reason], None]
    _plane: Plane | None = None
    _reactor: Reactor | None = None

    def attach(self, plane: Plane, reactor: Reactor) -> None:
        """Hold connections of this plane."""
        self._plane, self._reactor = plane, reactor

    @property
    def reactor(self) -> Reactor:
        """The reactor, which is there before the first connection."""
        assert self._reactor is not None
        return self._reactor

    def begin(self, link: LeafLink) -> None:
        """A leaf node has said who it is: `link.document`."""
        offered = self.entry.offered_by(link)
        if self.entry.is_costly(offered) and not self.verifications.may_now(self.reactor.turns):
            self._hold(link)
            self.verifications.put(partial(self._judge, link, offered))
        else:
            self._judge(link, offered)

    def _hold(self, link: LeafLink) -> None:
        assert self._plane is not None
        self._plane.hold(link.cid)

    def _judge(self, link: LeafLink, offered: Credentials, *, is_last: bool = False) -> None:
        if link.cid not in self.present:
            return
        if not self.entry.trusts_proxy(link):
            self.refuse(link, offered, "proxy is not trusted", Reason.PROXY_NOT_TRUSTED)
            return
        outcome = self.entry.judge(link, offered, self.clock.unix_ns())
        if not is_last and self.entry.seeks(link, outcome, partial(self._judge, link, offered, is_last=True)):
            self._hold(link)
        elif isinstance(outcome, SlowCheck):
            self._hash(link, offered, outcome)
        elif isinstance(outcome, CalloutRules):
            self._ask(link, offered, outcome)
        else:
            self.settle(link, offered, outcome)

    def _ask(self, link: LeafLink, offered: Credentials, service: CalloutRules) -> None:
        """Let a service say who this is. Its answer comes in a later turn."""
        self._hold(link)
        done = partial(self._answered, link, offered, self.entry.basis(service), service)
        if not self.entry.ask(link, service, self.clock.unix_ns(), lambda: link.cid in self.present, done):
            self.refuse(link, offered, "too many requests to the service wait", Reason.AUTHENTICATION_FAILURE)

    def _answered(
        self,
        link: LeafLink,
        offered: Credentials,
        basis: object,
        service: CalloutRules,
        outcome: Verdict | LoginRefusal,
    ) -> None:
        if link.cid not in self.present:
            return
        if basis != self.entry.basis(service):
            self._judge(link, offered)
        else:
            self.settle(link, offered, outcome)
        self.reactor.kick()

    def _hash(self, link: LeafLink, offered: Credentials, check: SlowCheck) -> None:
        self._hold(link)
        queued = self.checks.submit(
            link.ip,
            check.offered,
            check.hashed,
            lambda: link.cid in self.present,
            partial(self._hashed, link, offered, check, self.entry.basis(None)),
        )
        if not queued:
            self.refuse(link, offered, "too many passwords wait to be hashed", Reason.AUTHENTICATION_FAILURE)

    def _hashed(
        self,
        link: LeafLink,
        offered: Credentials,
        check: SlowCheck,
        basis: object,
        same: bool,  # noqa: FBT001  (the queue's own signature)
    ) -> None:
        if link.cid not in self.present:
            return
        if basis != self.entry.basis(None):
            self._judge(link, offered)
            self.reactor.end_turn()
            return
        outcome = check.outcome if same else LoginRefusal("wrong secret")
        called = self.entry.called
        service = None if same or called is None else called.service_for(offered, outcome, of_leaf=True)
        if service is not None:
            self._ask(link, offered, service)
        else:
            self.settle(link, offered, outcome)
        self.reactor.end_turn()
