"""/accountz and /accstatz: the accounts, and what goes in and out of each."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from jetraft.api.exchange.values import Sharing
from jetraft.api.monitor.questions import AccountzQuestion, PageError, StatzQuestion
from jetraft.api.monitor.shared import shared_fields
from jetraft.api.monitor.signed import claims_in, is_over, signed_fields
from jetraft.api.monitor.steps import Steps
from jetraft.api.monitor.subsz import sublist_stats
from jetraft.api.monitor.varz import LeafStatus
from jetraft.api.plane._plane import Plane
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.gotime import format_time


@attrs.frozen(kw_only=True, eq=False)
class AccountPages:
    """Makes the pages. `known_accounts` gives those of the configuration, with `$G` and the system's."""

    plane: Plane
    known_accounts: Callable[[], Collection[str]]
    system: str  # empty: none
    with_jetstream: Callable[[], Collection[str]]
    loaded_unix_ns: int
    sharing: Callable[[], Mapping[str, Sharing]]
    token_of: Callable[[str], str | None]  # of an account that an operator has signed
    name_of: Callable[[str], str]  # of an account, for people
    clock: Clock
    leafnodes: LeafStatus | None = None

    def accountz(self, question: AccountzQuestion) -> dict[str, Any]:
        """The page without its head. Raises PageError."""
        head = {"system_account": self.system} if self.system else {}
        if not question.account:
            return head | {"accounts": sorted(self.known_accounts())}
        return head | {"account_detail": self.info(question.account)}

    def info(self, account: str) -> dict[str, Any]:
        """One account. Raises PageError."""
        if account not in self.known_accounts():
            raise PageError(f"Account {account} does not exist")
        figures = self.plane.account(account).statistics()
        leafs = self._leafs()[account]
        token, now_s = self.token_of(account), self.clock.unix_ns() // NS_PER_S
        claims = claims_in(token) if token is not None else {}
        return {
            "account_name": account,
            "update_time": format_time(self.loaded_unix_ns),
            **({"is_system": True} if account == self.system else {}),
            "expired": is_over(claims, now_s),
            "complete": True,
            "jetstream_enabled": account in self.with_jetstream(),
            "leafnode_connections": leafs,
            "client_connections": figures["connections"] - leafs,
            "subscriptions": figures["subscriptions"] + figures["peer_subscriptions"],
            **shared_fields(account, self.sharing()),
            **(signed_fields(token, claims, now_s) if token is not None else {"name_tag": account}),
            "sublist_stats": sublist_stats(self.plane, account),
        }

    def statz(self, question: StatzQuestion) -> Steps[dict[str, Any]]:
        """The page of the accounts that are asked for, or of all; without `include_unused` of those with clients."""
        known, leafs = self.known_accounts(), self._leafs()
        names: Iterable[str] = question.accounts or sorted(known)
        rows = []
        for name in names:
            if name in known:
                row = self._row(name, leafs[name])
                if question.include_unused or row["conns"]:
                    rows.append(row)
            yield 0
        return {"account_statz": rows}

    def _leafs(self) -> Counter[str]:
        return Counter() if self.leafnodes is None else self.leafnodes.counts()

    def row(self, account: str) -> dict[str, Any]:
        """Counts of what goes in and out of an account on this node."""
        return self._row(account, self._leafs()[account])

    def _row(self, account: str, leafs: int) -> dict[str, Any]:
        figures = self.plane.account(account).statistics()
        nothing = {"msgs": 0, "bytes": 0}

        def moved(way: str) -> dict[str, Any]:
            routes = {"msgs": figures[f"routed_{way}_msgs"], "bytes": figures[f"routed_{way}_bytes"]}
            msgs = figures[f"{way}_msgs"] + routes["msgs"]
            whole = {"msgs": msgs, "bytes": figures[f"{way}_bytes"] + routes["bytes"]}
            return {**whole, "gateways": nothing, "routes": routes, "leafs": nothing}

        return {
            "acc": account,
            "name": self.name_of(account),
            "conns": figures["connections"] - leafs,
            "leafnodes": leafs,
            "total_conns": figures["connections"],
            "num_subscriptions": figures["subscriptions"] + figures["peer_subscriptions"],
            "sent": moved("out"),
            "received": moved("in"),
            "slow_consumers": figures["slow_consumers"],
        }
