"""Accounts that are not known here are looked up elsewhere, beside the turn, while who asked is held.

Several clients of one account wait for one look-up. How many run at a time and how many wait is bounded, for one
address too, and nothing is remembered of a failure: the next client asks again, as with nats-server. A token that is
found is verified, and the accounts that it imports from are looked up before it is in force.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from jetraft.api.auth.registry import AccountRegistry, SignedAccount
from jetraft.api.auth.token_source import AccountLookupError, TokenSource
from jetraft.api.auth.verifying import Verifications, Work
from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.nkeys import is_account_key
from jetraft.api.credentials.verdicts import LoginRefusal, Outcome
from jetraft.api.logs.logger import Logger
from jetraft.store.model.clock import NS_PER_S, Clock

PARALLEL: Final = 16  # look-ups under way
WAITING_MAX: Final = 1024  # accounts that are looked up or wait for it
ADDRESS_MAX: Final = 256  # the same for one address, once there are so many
WAITERS_MAX: Final = 4096  # connections that wait for one account
EXPORTERS_MAX: Final = 64  # accounts that are looked up because another imports from them
AGAIN_NS: Final = NS_PER_S  # an account that is known and has expired is looked up at most so often
SLOW_NS: Final = NS_PER_S // 2

Take = Callable[[SignedAccount], Awaitable[None]]


@attrs.define(eq=False)
class _LookUp:
    ip: str
    waiters: list[Work]


@attrs.define(eq=False)
class AccountLookups:
    """See the module."""

    registry: AccountRegistry
    clock: Clock
    say: Logger
    verifications: Verifications = attrs.field(factory=Verifications)  # who waited is judged in their line
    found: int = 0
    failed: int = 0
    refused: int = 0
    _open: dict[str, _LookUp] = attrs.field(factory=dict, init=False)
    _asked_ns: dict[str, int] = attrs.field(factory=dict, init=False)  # of accounts that are known
    _send: trio.MemorySendChannel[str] = attrs.field(init=False)
    _receive: trio.MemoryReceiveChannel[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[str](WAITING_MAX)

    def seeks(self, outcome: Outcome, ip: str, again: Work) -> bool:
        """Whether the account that a refusal was for want of is looked up; `again` judges once more, after that."""
        return isinstance(outcome, LoginRefusal) and bool(outcome.account) and self.find(outcome.account, ip, again)

    def find(self, key: str, ip: str, again: Work) -> bool:
        """Look an account up; `again` is done when it is there or was not found. False: it is not looked up."""
        if not is_account_key(key) or not self._may_ask(key):
            return False
        known = self._open.get(key)
        if known is not None:
            if len(known.waiters) < WAITERS_MAX:
                known.waiters.append(again)
                return True
        elif self._has_room(ip):
            self._open[key] = _LookUp(ip, [again])
            self._send.send_nowait(key)
            return True
        self.refused += 1
        return False

    def _may_ask(self, key: str) -> bool:
        """Whether an account that is known was not asked about just now."""
        if self.registry.get(key) is None:
            return True
        now_ns = self.clock.mono_ns()
        if now_ns - self._asked_ns.get(key, -AGAIN_NS) < AGAIN_NS:
            return False
        self._asked_ns[key] = now_ns
        return True

    def _has_room(self, ip: str) -> bool:
        if len(self._open) < ADDRESS_MAX:
            return True
        return len(self._open) < WAITING_MAX and Counter(one.ip for one in self._open.values())[ip] < ADDRESS_MAX

    async def run(self, source: TokenSource, take: Take) -> None:
        """Serve until cancelled. `take` keeps an account and lets it be in force."""
        async with trio.open_nursery() as nursery:
            for _ in range(PARALLEL):
                nursery.start_soon(self._serve, source, take)

    async def _serve(self, source: TokenSource, take: Take) -> None:
        async for key in self._receive:
            try:
                await self._look_up(key, source, take)
            except (AccountLookupError, TokenError, OSError) as error:
                self.failed += 1
                self.say.debug(f"Account [{key}] could not be looked up: {error}")
            for again in self._open.pop(key).waiters:
                self.verifications.put(again)

    async def _look_up(self, key: str, source: TokenSource, take: Take) -> None:
        """Fetch an account and, before it is in force, those that it imports from and that are not known."""
        accounts = [await self._fetched(key, source)]
        seen = {key}
        for account in accounts:  # grows
            for imported in account.claims.sharing.imports:
                name = imported.account
                if name in seen or len(seen) > EXPORTERS_MAX or self.registry.get(name) is not None:
                    continue
                seen.add(name)
                try:
                    accounts.append(await self._fetched(name, source))
                except (AccountLookupError, TokenError) as error:
                    self.say.error(f"Can't locate account [{name}] for an import of {key} (err={error})")
        for account in reversed(accounts):
            await take(account)
        self.found += 1

    async def _fetched(self, key: str, source: TokenSource) -> SignedAccount:
        """An account as another place has it, verified. Raises AccountLookupError, TokenError."""
        if not is_account_key(key):
            raise AccountLookupError("will only fetch valid account keys")
        start_ns = self.clock.mono_ns()
        token = await source.fetch(key)
        took_ns = self.clock.mono_ns() - start_ns
        say = self.say.warning if took_ns > SLOW_NS else self.say.debug
        say(f"Account [{key}] fetch took {took_ns / 10**6:.6g}ms")
        account = SignedAccount.read(token.strip())
        if account.claims.subject != key:
            raise TokenError("account validation failed")
        self.registry.check_issuer(account.claims)
        return account

    def statistics(self) -> dict[str, int]:
        """How many were found, not found, and not looked up because too many were."""
        return {"accounts_found": self.found, "accounts_not_found": self.failed, "lookups_refused": self.refused}
