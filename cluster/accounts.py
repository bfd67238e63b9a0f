"""What each account may use of JetStream, and whether that is used up on this node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.quota import Quota
from jetraft.store.model.config import StorageType
from jetraft.store.model.state import AccountLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica import StreamReplica
    from jetraft.store.model.config import StreamConfig

INT64_MAX: Final = 2**63 - 1


@attrs.frozen(eq=False)
class Accounts:
    """See the module. An account that is not named, or has None, has no limits; `replicas` gives this node's.

    With `may_change` the limits are looked up each time, also those of accounts that have none now.
    """

    limits: Mapping[str, AccountLimits | None]
    replicas: Callable[[], Sequence[tuple[StreamAssignment, StreamReplica]]]
    may_change: bool = False
    _quotas: dict[str, Quota] = attrs.field(factory=dict)

    def limits_of(self, account: str) -> AccountLimits:
        """What the account may use."""
        return self.limits.get(account) or AccountLimits()

    def quota_of(self, account: str) -> Quota | None:
        """What its streams may hold; None: as much as there is."""
        bounds = AccountBounds(self, account)
        if (bounds or self.may_change) and account not in self._quotas:
            self._quotas[account] = Quota(bounds if self.may_change else dict(bounds), lambda: self.held_bytes(account))
        return self._quotas.get(account)

    def room_for(self, account: str, config: StreamConfig) -> int:
        """Bytes of messages that a new stream may have beside what the account holds, counted as for publishes."""
        limits = self.limits_of(account)
        limit = limits.max_memory if config.storage is StorageType.MEMORY else limits.max_storage
        if limit < 0:
            return INT64_MAX
        return max(0, limit - self.held_bytes(account)[config.storage]) // config.num_replicas

    def held_bytes(self, account: str) -> Mapping[StorageType, int]:
        """Bytes of the account's messages as far as this node knows: all replicas of a stream that it leads."""
        held = dict.fromkeys(StorageType, 0)
        for row, replica in self.replicas():
            if row.account == account:
                copies = row.config.num_replicas if replica.is_leader else 1
                held[row.config.storage] += replica.stored_bytes * copies
        return held


@attrs.frozen(eq=False)
class AccountBounds(Mapping[StorageType, int]):
    """Bytes that an account's streams may hold, by kind; what has no limit is not there."""

    accounts: Accounts
    account: str

    def _now(self) -> dict[StorageType, int]:
        limits = self.accounts.limits_of(self.account)
        named = {StorageType.MEMORY: limits.max_memory, StorageType.FILE: limits.max_storage}
        return {kind: limit for kind, limit in named.items() if limit >= 0}

    def __getitem__(self, kind: StorageType) -> int:
        return self._now()[kind]

    def __iter__(self) -> Iterator[StorageType]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())
