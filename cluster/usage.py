"""What an account uses: each node sums up its own replicas, and whoever is asked adds the sums of all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import msgpack
import trio

from jetraft.cluster.shared_runs import SharedRuns
from jetraft.cluster.waiting import ask_peer
from jetraft.store.model.config import StorageType
from jetraft.store.model.state import AccountInfo, ApiStats
from jetraft.store.model.versioning import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.forward import MeshLike
    from jetraft.cluster.meta.assignment import StreamAssignment
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.streams.shell import StreamShell
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.ids import NodeId

USAGE_WAIT_S: Final = 1.0
ACCOUNTS_AT_ONCE: Final = 4  # that are summed up: each asks all nodes
METHOD: Final = "js.usage"


@attrs.frozen(kw_only=True, slots=True)
class NodeUsage:
    """What a node's replicas hold in bytes, the consumers of streams it leads, the API requests it answered."""

    memory: int = 0
    storage: int = 0
    consumers: int = 0
    api_requests: int = 0
    api_errors: int = 0

    def pack(self) -> bytes:
        """The bytes in which it travels."""
        packed: bytes = msgpack.packb(attrs.astuple(self))
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> NodeUsage:
        """Return the usage of `pack`. Raises ValueError when it is none."""
        memory, storage, consumers, requests, failures = msgpack.unpackb(packed)
        return cls(memory=memory, storage=storage, consumers=consumers, api_requests=requests, api_errors=failures)


class Usages:
    """See the module. A node that does not answer in time counts nothing."""

    def __init__(
        self,
        *,
        mesh: MeshLike | None,
        machine: MetaMachine,
        replicas: Callable[[], Sequence[tuple[StreamAssignment, StreamShell]]],
    ) -> None:
        self._mesh = mesh
        self._machine = machine
        self._replicas = replicas
        self._runs: SharedRuns[AccountInfo] = SharedRuns(ACCOUNTS_AT_ONCE)
        self.api_counts: Callable[[], tuple[int, int]] = lambda: (0, 0)  # requests and errors, the gateway's
        if mesh is not None:
            mesh.serve(METHOD, self._serve)

    async def account_info(self, account: str) -> AccountInfo:
        """Sum up what the account uses on all nodes, every replica counted, and what their APIs have answered."""
        return await self._runs.answer(account, lambda: self._sum_up(account))

    async def _sum_up(self, account: str) -> AccountInfo:
        usages = [self.here(account), *await self._of_peers(account)]
        rows = list(self._machine.table.of_account(account))
        reserved = {
            kind: sum(_reserved(row.config) for row in rows if row.config.storage is kind) for kind in StorageType
        }
        return AccountInfo(
            memory=sum(usage.memory for usage in usages),
            storage=sum(usage.storage for usage in usages),
            reserved_memory=reserved[StorageType.MEMORY],
            reserved_storage=reserved[StorageType.FILE],
            streams=len(rows),
            consumers=sum(usage.consumers for usage in usages),
            api=ApiStats(
                level=API_LEVEL,
                total=sum(usage.api_requests for usage in usages),
                errors=sum(usage.api_errors for usage in usages),
            ),
        )

    def here(self, account: str) -> NodeUsage:
        """Sum up what this node's replicas of the account's streams hold."""
        memory = storage = consumers = 0
        for row, replica in self._replicas():
            if row.account != account:
                continue
            used = replica.stored_bytes
            memory += used if row.config.storage is StorageType.MEMORY else 0
            storage += used if row.config.storage is StorageType.FILE else 0
            consumers += replica.consumer_count if replica.is_leader else 0
        requests, failures = self.api_counts()
        return NodeUsage(
            memory=memory, storage=storage, consumers=consumers, api_requests=requests, api_errors=failures
        )

    async def _of_peers(self, account: str) -> Sequence[NodeUsage]:
        usages: list[NodeUsage] = []
        mesh = self._mesh
        if mesh is None:
            return usages

        async def ask(peer: NodeId) -> None:
            answer = await ask_peer(mesh, peer, METHOD, account.encode(), timeout_s=USAGE_WAIT_S)
            if answer is not None:
                usages.append(NodeUsage.unpack(answer))

        async with trio.open_nursery() as nursery:
            for peer, link in mesh.peers.items():
                if link.up:
                    nursery.start_soon(ask, peer)
        return usages

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        return self.here(payload.decode()).pack()


def _reserved(config: StreamConfig) -> int:
    return max(0, config.max_bytes)
