"""An account's limits of JetStream: one limit for all of its streams, or one for each tier. Pure.

A tier is all the streams with one number of replicas: `R1`, `R3`. Its sizes are those of one replica, while limits
without tiers count every replica. Tiers stand in the tokens of accounts only. Source: jetstream.go (selectLimits).
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs

from jetraft.store.model import errors
from jetraft.store.model.state import AccountLimits

NO_TIER: Final = ""  # of accounts whose limits are for all of their streams


@attrs.frozen(slots=True)
class TieredLimits:
    """Limits by tier. Streams of a tier that is not named may not be made, and store nothing."""

    tiers: Mapping[str, AccountLimits]


Allowance: TypeAlias = AccountLimits | TieredLimits


def tier_name(replicas: int) -> str:
    """The tier of what has so many replicas."""
    return f"R{max(1, replicas)}"


def tier_of(allowance: Allowance, replicas: int) -> str:
    """The tier whose limits count; NO_TIER where there are none."""
    return tier_name(replicas) if isinstance(allowance, TieredLimits) else NO_TIER


def limits_for(allowance: Allowance, replicas: int) -> AccountLimits:
    """The limits for so many replicas. Raises ApiError when the account may have nothing with as many."""
    if isinstance(allowance, AccountLimits):
        return allowance
    found = allowance.tiers.get(tier_name(replicas))
    if found is None:
        raise errors.NO_LIMITS.with_values()
    return found
