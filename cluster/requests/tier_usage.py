"""The usage of an account with limits by tier, in each: as in usage.py, by the number of replicas of its streams.

A stream counts in the tier of its replicas, a consumer in that of its own, where it says how many it wants.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.calls.messages.usage import TIERS_METHOD, NodeTiers, TierShare, UsageQuestion
from jetraft.cluster.calls.waiting import ask_all
from jetraft.cluster.meta.account_limits import reserved_bytes
from jetraft.store.model.config import StorageType
from jetraft.store.model.state import NOTHING_ALLOWED, TierUsage
from jetraft.store.model.tiers import tier_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jetraft.cluster.calls.forward import MeshLike
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.ids import NodeId
    from jetraft.store.model.tiers import TieredLimits

WAIT_S: Final = 1.0


@attrs.define
class _Share:
    memory: int = 0
    storage: int = 0
    consumers: int = 0


class TierUsages:
    """See the module. A node that does not answer in time counts nothing."""

    def __init__(
        self,
        *,
        mesh: MeshLike | None,
        machine: MetaMachine,
        replicas: Callable[[], Sequence[tuple[StreamAssignment, StreamReplica]]],
    ) -> None:
        self._mesh = mesh
        self._machine = machine
        self._replicas = replicas
        if mesh is not None:
            mesh.serve(TIERS_METHOD, self._serve)

    async def of(self, account: str, allowance: TieredLimits) -> Mapping[str, TierUsage]:
        """Sum up each tier that the account has limits for, or something in."""
        shares = list(self.here(account).shares)
        if self._mesh is not None:
            question = UsageQuestion(account).pack()
            answers = await ask_all(NodeTiers, self._mesh, TIERS_METHOD, question, timeout_s=WAIT_S)
            shares += [share for answer in answers for share in answer.shares]
        rows = list(self._machine.table.of_account(account))
        used = {tier_name(share.replicas) for share in shares} | {tier_name(row.config.num_replicas) for row in rows}
        return {tier: _summed_up(tier, allowance, rows, shares) for tier in used | allowance.tiers.keys()}

    def here(self, account: str) -> NodeTiers:
        """Sum up what this node's replicas of the account's streams hold."""
        found: defaultdict[int, _Share] = defaultdict(_Share)
        for row, replica in self._replicas():
            if row.account != account:
                continue
            replicas = row.config.num_replicas
            if row.config.storage is StorageType.MEMORY:
                found[replicas].memory += replica.stored_bytes
            else:
                found[replicas].storage += replica.stored_bytes
            for state in replica.machine.consumers.values() if replica.is_leader else ():
                found[state.config.num_replicas or replicas].consumers += not state.config.direct
        return NodeTiers(
            shares=tuple(
                TierShare(replicas=replicas, memory=share.memory, storage=share.storage, consumers=share.consumers)
                for replicas, share in sorted(found.items())
            )
        )

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        return self.here(UsageQuestion.unpack(payload).account).pack()


def _summed_up(
    tier: str, allowance: TieredLimits, rows: Iterable[StreamAssignment], shares: Iterable[TierShare]
) -> TierUsage:
    mine = [share for share in shares if tier_name(share.replicas) == tier]
    configs = [row.config for row in rows if tier_name(row.config.num_replicas) == tier]
    reserved = dict.fromkeys(StorageType, 0)
    for config in configs:
        reserved[config.storage] += reserved_bytes(config, tier)
    return TierUsage(
        memory=sum(share.memory for share in mine),
        storage=sum(share.storage for share in mine),
        reserved_memory=reserved[StorageType.MEMORY],
        reserved_storage=reserved[StorageType.FILE],
        streams=len(configs),
        consumers=sum(share.consumers for share in mine),
        limits=allowance.tiers.get(tier, NOTHING_ALLOWED),
    )
