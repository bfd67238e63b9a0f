"""The usage of an account: each node sums up its own replicas, and the node that is asked adds the sums of all."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.calls.messages.usage import METHOD, NodeUsage, UsageQuestion
from jetraft.cluster.calls.shared_runs import SharedRuns
from jetraft.cluster.calls.waiting import ask_all
from jetraft.cluster.requests.tier_usage import TierUsages
from jetraft.store.model.config import StorageType
from jetraft.store.model.state import NOTHING_ALLOWED, AccountInfo, AccountLimits, ApiStats
from jetraft.store.model.tiers import TieredLimits
from jetraft.store.model.versioning import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.calls.forward import MeshLike
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.ids import NodeId
    from jetraft.store.model.tiers import Allowance

USAGE_WAIT_S: Final = 1.0
ACCOUNTS_AT_ONCE: Final = 4  # that are summed up: each asks all nodes


@attrs.define
class ApiCounts:
    """An account's API requests that this node has answered since it started, and those with an error."""

    requests: int = 0
    errors: int = 0


class Usages:
    """See the module. A node that does not answer in time counts nothing."""

    def __init__(
        self,
        *,
        mesh: MeshLike | None,
        machine: MetaMachine,
        replicas: Callable[[], Sequence[tuple[StreamAssignment, StreamReplica]]],
        limits_of: Callable[[str], Allowance] = lambda _account: AccountLimits(),
        domain: str = "",
    ) -> None:
        self._domain = domain
        self._mesh = mesh
        self._machine = machine
        self._replicas = replicas
        self._limits_of = limits_of
        self._tiers = TierUsages(mesh=mesh, machine=machine, replicas=replicas)
        self._runs: SharedRuns[AccountInfo] = SharedRuns(ACCOUNTS_AT_ONCE)
        self.api: defaultdict[str, ApiCounts] = defaultdict(ApiCounts)  # by account; the gateway counts
        if mesh is not None:
            mesh.serve(METHOD, self._serve)

    async def account_info(self, account: str) -> AccountInfo:
        """Sum up what the account uses on all nodes, every replica counted, and what their APIs have answered."""
        return await self._runs.answer(account, lambda: self._sum_up(account))

    async def _sum_up(self, account: str) -> AccountInfo:
        allowance = self._limits_of(account)
        tiers = await self._tiers.of(account, allowance) if isinstance(allowance, TieredLimits) else {}
        usages = [self.here(account), *await self._of_peers(account)]
        rows = list(self._machine.table.of_account(account))
        reserved = {
            kind: sum(max(0, row.config.max_bytes) for row in rows if row.config.storage is kind)
            for kind in StorageType
        }
        return AccountInfo(
            memory=sum(usage.memory for usage in usages),
            storage=sum(usage.storage for usage in usages),
            reserved_memory=reserved[StorageType.MEMORY],
            reserved_storage=reserved[StorageType.FILE],
            streams=len(rows),
            consumers=sum(usage.consumers for usage in usages),
            limits=NOTHING_ALLOWED if isinstance(allowance, TieredLimits) else allowance,
            domain=self._domain,
            api=ApiStats(
                level=API_LEVEL,
                total=sum(usage.api_requests for usage in usages),
                errors=sum(usage.api_errors for usage in usages),
            ),
            tiers=tiers,
        )

    def here(self, account: str) -> NodeUsage:
        """Sum up what this node's replicas of the account's streams hold."""
        memory = storage = consumers = 0
        api = self.api.get(account, ApiCounts())
        for row, replica in self._replicas():
            if row.account != account:
                continue
            used = replica.stored_bytes
            memory += used if row.config.storage is StorageType.MEMORY else 0
            storage += used if row.config.storage is StorageType.FILE else 0
            consumers += replica.consumer_count if replica.is_leader else 0
        return NodeUsage(
            memory=memory,
            storage=storage,
            consumers=consumers,
            api_requests=api.requests,
            api_errors=api.errors,
        )

    async def _of_peers(self, account: str) -> Sequence[NodeUsage]:
        if self._mesh is None:
            return []
        return await ask_all(NodeUsage, self._mesh, METHOD, UsageQuestion(account).pack(), timeout_s=USAGE_WAIT_S)

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        return self.here(UsageQuestion.unpack(payload).account).pack()
