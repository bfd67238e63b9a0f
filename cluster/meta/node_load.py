"""The load that the table puts on each node: replicas, streams to lead, bytes promised. Kept up to date row by row.

Counting again for each creation would make the thousandth a thousand times as dear as the first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.store.model.config import StorageType, StreamConfig
    from jetraft.store.model.ids import NodeId


class PromisedLoad:
    """Sums by node. Invariant: they are those of all rows added and not taken away."""

    def __init__(self) -> None:
        self._replicas: Counter[NodeId] = Counter()
        self._replicated: Counter[NodeId] = Counter()
        self._leaders: Counter[NodeId] = Counter()
        self._promised: Counter[tuple[NodeId, StorageType]] = Counter()

    def add(self, config: StreamConfig, peers: Iterable[NodeId], preferred: NodeId, *, times: int = 1) -> None:
        """Count a row; with `times` -1 take it away."""
        promised_bytes = times * max(0, config.max_bytes)
        self._leaders[preferred] += times
        nodes = tuple(peers)
        for peer in nodes:
            self._replicas[peer] += times
            self._replicated[peer] += times * (len(nodes) > 1)
            self._promised[peer, config.storage] += promised_bytes

    def replicas(self, node_id: NodeId) -> int:
        """Replicas that are assigned to the node."""
        return self._replicas[node_id]

    def replicated(self, node_id: NodeId) -> int:
        """Replicas of streams with several that are assigned to the node."""
        return self._replicated[node_id]

    def leaders(self, node_id: NodeId) -> int:
        """Streams that the node was chosen to lead."""
        return self._leaders[node_id]

    def promised_bytes(self, node_id: NodeId, kind: StorageType) -> int:
        """Sum of `max_bytes` of the node's replicas."""
        return self._promised[node_id, kind]
