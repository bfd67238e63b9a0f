"""The limits of each account in JetStream, and whether that is used up on this node.

An account with tiers has a quota of its own in each: a stream that changes its replicas counts in another from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from jetraft.cluster.quota import Quota
from jetraft.store.model import errors
from jetraft.store.model.config import StorageType
from jetraft.store.model.state import AccountLimits
from jetraft.store.model.tiers import NO_TIER, TieredLimits, limits_for, tier_name, tier_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.tiers import Allowance

INT64_MAX: Final = 2**63 - 1


class HeldStream(Protocol):
    """A replica on this node, as the limits of its account see it."""

    @property
    def stored_bytes(self) -> int:
        """The bytes that the live messages count."""

    @property
    def is_leader(self) -> bool:
        """True when this replica leads and takes publishes."""


@attrs.frozen(eq=False)
class Accounts:
    """See the module. An account that is not named, or has None, has no limits; `replicas` gives this node's.

    With `may_change` the limits are looked up each time, and one that has None may store nothing any more.
    """

    limits: Mapping[str, Allowance | None]
    replicas: Callable[[], Sequence[tuple[StreamAssignment, HeldStream]]]
    may_change: bool = False
    _quotas: dict[str, AccountQuota] = attrs.field(factory=dict)

    def limits_of(self, account: str) -> Allowance:
        """The limits of the account."""
        return self.limits.get(account) or AccountLimits()

    def limits_for(self, account: str, config: StreamConfig) -> AccountLimits:
        """The limits for such a stream. Raises ApiError when the account may not have it."""
        return limits_for(self.limits_of(account), config.num_replicas)

    def quota_of(self, account: str) -> AccountQuota | None:
        """The bytes that its streams may hold; None: as much as there is."""
        if (self.may_change or AccountBounds(self, account, replicas=1)) and account not in self._quotas:
            self._quotas[account] = AccountQuota(self, account)
        return self._quotas.get(account)

    def room_for(self, account: str, config: StreamConfig) -> int:
        """Bytes of messages that a new stream may have beside what the account holds, counted as for publishes.

        Raises ApiError when the account may not have it.
        """
        allowance, replicas = self.limits_of(account), config.num_replicas
        limits, tier = self.limits_for(account, config), tier_of(allowance, replicas)
        limit = limits.max_memory if config.storage is StorageType.MEMORY else limits.max_storage
        if limit < 0:
            return INT64_MAX
        limit *= 1 if tier == NO_TIER else replicas
        return max(0, limit - self.held_bytes(account, tier)[config.storage]) // replicas

    def held_bytes(self, account: str, tier: str = NO_TIER) -> Mapping[StorageType, int]:
        """Bytes of the account's messages, or of a tier, as far as this node knows: all replicas of what it leads."""
        held = dict.fromkeys(StorageType, 0)
        for row, replica in self.replicas():
            replicas = row.config.num_replicas
            if row.account == account and (tier == NO_TIER or tier == tier_name(replicas)):
                held[row.config.storage] += replica.stored_bytes * (replicas if replica.is_leader else 1)
        return held


@attrs.define(eq=False)
class AccountQuota:
    """Whether the streams of an account may store more, by what is known on this node."""

    accounts: Accounts
    account: str
    _by_tier: dict[str, Quota] = attrs.field(factory=dict, init=False)

    def refusal(self, config: StreamConfig, now_ns: int) -> ApiError | None:
        """Why a stream may store nothing now. `now_ns` is monotonic."""
        if self.accounts.may_change and self.accounts.limits.get(self.account) is None:
            return errors.NOT_ENABLED_FOR_ACCOUNT.with_values()
        allowance, replicas = self.accounts.limits_of(self.account), config.num_replicas
        tier = tier_of(allowance, replicas)
        if isinstance(allowance, TieredLimits) and tier not in allowance.tiers:
            return errors.NO_LIMITS.with_values()
        if tier not in self._by_tier:
            bounds = AccountBounds(self.accounts, self.account, replicas)
            self._by_tier[tier] = Quota(bounds, lambda: self.accounts.held_bytes(self.account, tier))
        if self._by_tier[tier].is_full(config.storage, now_ns):
            return errors.ACCOUNT_RESOURCES_EXCEEDED.with_values()
        return None


@attrs.frozen(eq=False)
class AccountBounds(Mapping[StorageType, int]):
    """Bytes that an account's streams may hold, by kind; what has no limit is not there.

    They are of all replicas, as what is held is; a tier's limits are of one of `replicas`.
    """

    accounts: Accounts
    account: str
    replicas: int

    def _now(self) -> dict[StorageType, int]:
        allowance = self.accounts.limits_of(self.account)
        limits = limits_for(allowance, self.replicas)
        copies = self.replicas if isinstance(allowance, TieredLimits) else 1
        named = {StorageType.MEMORY: limits.max_memory, StorageType.FILE: limits.max_storage}
        return {kind: limit * copies for kind, limit in named.items() if limit >= 0}

    def __getitem__(self, kind: StorageType) -> int:
        return self._now()[kind]

    def __iter__(self) -> Iterator[StorageType]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())
