"""The accounts that there are now, and what each may use of JetStream.

They change at a reload of the configuration, and with the tokens that operators sign. Parts that serve each account of
its own listen to `changed`.
"""

from collections.abc import Callable, Collection
from typing import Self

import attrs

from jetraft.api.options.options import JetStreamAccounts
from jetraft.store.model.signal import Signal
from jetraft.store.model.tiers import Allowance


def _unsigned(_account: str) -> str | None:
    """No operator has."""
    return None


def _own_name(account: str) -> str:
    """An account of the configuration is called what it is known by."""
    return account


def _borrows_nothing(_account: str) -> bool:
    """No account imports anything."""
    return False


@attrs.define(eq=False)
class LiveAccounts:
    """See the module. `limits` is None for an account without JetStream; `operators` may change the cluster itself."""

    limits: dict[str, Allowance | None]
    operators: frozenset[str]
    may_change: bool = False
    token_of: Callable[[str], str | None] = _unsigned  # by which an operator has signed an account
    name_of: Callable[[str], str] = _own_name  # what its token calls it, for people; others are known by a key
    borrows_api: Callable[[str], bool] = _borrows_nothing  # whether an account imports JetStream's API from another
    changed: Signal[[str]] = attrs.field(factory=Signal, init=False)

    @classmethod
    def of(
        cls,
        accounts: JetStreamAccounts,
        token_of: Callable[[str], str | None] = _unsigned,
        name_of: Callable[[str], str] = _own_name,
    ) -> Self:
        """Those of the start."""
        return cls(dict(accounts.limits), accounts.operators, accounts.may_change, token_of, name_of)

    def set(self, name: str, limits: Allowance | None) -> None:
        """An account is new, or may use something else from now on. Its streams stay."""
        self.limits[name] = limits
        self.changed.emit(name)

    def follow(self, accounts: JetStreamAccounts) -> None:
        """There are these accounts from now on, and no others."""
        self.operators = accounts.operators
        for name in self.limits.keys() - accounts.limits.keys():
            del self.limits[name]
            self.changed.emit(name)
        for name, limits in accounts.limits.items():
            if name not in self.limits or self.limits[name] != limits:
                self.set(name, limits)

    def is_answered(self, name: str) -> bool:
        """Whether API requests of an account are answered by this server itself, be it that it has no JetStream.

        Not where it has none and imports the API of another account: each request would have two answers.
        """
        if name not in self.limits:
            return False
        return self.limits[name] is not None or name in self.operators or not self.borrows_api(name)

    def follow_imports(self, borrows_api: Callable[[str], bool], shared: Signal[[str]]) -> None:
        """Ask this whether an account imports the API, whenever it shares something else too."""
        self.borrows_api = borrows_api
        shared.connect(self.changed.emit)

    def with_jetstream(self) -> Collection[str]:
        """The names of those that may use it."""
        return [name for name, limits in self.limits.items() if limits is not None]
