"""Sharing between accounts of operators, kept in force as their tokens change and activations end."""

import math
from collections.abc import Mapping
from typing import Final

import attrs
import trio

from jetraft.api.credentials.claims import AccountClaims
from jetraft.api.exchange.admission import Admission, RefusedImport
from jetraft.api.exchange.setup import SharedAccounts
from jetraft.api.exchange.values import Sharing
from jetraft.api.logs.logger import Logger
from jetraft.store.model.clock import NS_PER_S, Clock

LOOK_S: Final = 60.0  # at least so often: the wall clock may be set


@attrs.define(eq=False)
class SignedSharing:
    """See the module. `fixed` is what the configuration itself says, of accounts that no operator has signed."""

    shared: SharedAccounts
    clock: Clock
    say: Logger
    fixed: Mapping[str, Sharing] = attrs.field(factory=dict)
    admission: Admission = attrs.field(factory=Admission, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def start(self, accounts: list[AccountClaims]) -> None:
        """Begin with these accounts, before the first client."""
        for claims in accounts:
            self.admission.put(claims.subject, claims.sharing, self._now_s)
        self._note(self.admission.check_all(self._now_s))
        self._follow()

    def account_changed(self, before: AccountClaims | None, after: AccountClaims | None) -> None:
        """An account has another token, or none: in force on return."""
        if after is not None:
            self._note(self.admission.put(after.subject, after.sharing, self._now_s))
        elif before is not None:
            self.admission.remove(before.subject, self._now_s)
        self._follow()
        self._changed.set()

    async def run(self) -> None:
        """Ask again when activations begin or end, until cancelled."""
        while True:
            moment_s = self.admission.next_change_s(self._now_s)
            wait_s = math.inf if moment_s is None else min(max(moment_s - self._now_s, 0.0), LOOK_S)
            self._changed = trio.Event()
            with trio.move_on_after(wait_s):
                await self._changed.wait()
            if moment_s is not None and self._now_s >= moment_s:
                self.admission.check_activations(self._now_s)
                self._follow()

    @property
    def _now_s(self) -> float:
        return self.clock.unix_ns() / NS_PER_S

    def _follow(self) -> None:
        self.shared.follow({**self.fixed, **self.admission.admitted})

    def _note(self, refused: list[RefusedImport]) -> None:
        """Name what an account imports without effect, without its token."""
        for one in refused:
            self.say.warning(
                f"Account {one.account}: an import of account {one.imported.account} has no effect: {one.why}"
            )
