"""The places of a stream's replicas: `placement` asked with what the table, the view and the nodes themselves say.

Asked by the meta leader before it proposes; what it decides is a fact of the entry. Streams that are proposed and not
yet in the table count already (`placing`), so creations side by side do not all choose the same nodes.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.meta.node_load import PromisedLoad
from jetraft.cluster.meta.placement import FULL, NodeLoad, Placed, Wanted, fits, place, unique_tag_of
from jetraft.store.model import errors
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.store.model.config import Placement, StreamConfig
    from jetraft.store.model.ids import NodeId


class Allocator:
    """See the module. `unique_tag` is the prefix of the server's configuration; empty for none.

    `replicated_max`: how many streams with several replicas a node gets; 0 for any number.

    `is_short` says whether this node's disk is full now; of other nodes what they told last is known.
    """

    def __init__(
        self,
        *,
        machine: MetaMachine,
        cluster: ClusterView,
        unique_tag: str = "",
        replicated_max: int = 0,
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        self._machine = machine
        self._cluster = cluster
        self._unique_tag = unique_tag
        self._replicated_max = replicated_max
        self._is_short = is_short
        self._placing = PromisedLoad()

    @contextmanager
    def placing(self, config: StreamConfig, placed: Placed) -> Iterator[None]:
        """Count a stream that is being proposed."""
        self._placing.add(config, placed.peers, placed.preferred)
        try:
            yield
        finally:
            self._placing.add(config, placed.peers, placed.preferred, times=-1)

    def new(self, config: StreamConfig) -> Placed:
        """The nodes of a new stream. Raises ApiError: no suitable nodes, or, standing alone, no room."""
        if not self._cluster.clustered:
            if self._has_full_disk(self._cluster.node_id, config.storage):
                raise errors.STORAGE_RESOURCES_EXCEEDED.with_values()
            self._require_room_of((self._cluster.node_id,), config, more_bytes=config.max_bytes)
        return self._place(config, replicas=config.num_replicas, kept=(), away_max=(config.num_replicas - 1) // 2)

    def changed(self, existing: StreamAssignment, config: StreamConfig, leader: NodeId | None) -> tuple[NodeId, ...]:
        """The peers of a stream under a new config, empty when they stay. Raises ApiError.

        Replicas stay where they are unless a new placement forbids it; the leader keeps its own before others do.
        """
        more_bytes = config.max_bytes - max(0, existing.config.max_bytes)
        if config.max_bytes > 0 and more_bytes > 0:
            self._require_room_of(existing.peers, config, more_bytes=more_bytes)
        kept = existing.peers
        if config.placement != existing.config.placement and self._cluster.clustered:
            wanted = self._wanted(config, replicas=config.num_replicas, kept=())
            kept = tuple(node for node in kept if fits(self._load(node, config.storage), wanted, cluster=self._name))
        lacking = config.num_replicas - len(kept)
        if lacking > 0:
            placed = self._further(config, lacking, kept, frozenset(existing.peers))
            peers = tuple(sorted((*kept, *placed.peers)))
        else:
            peers = self._fewer(kept, config.num_replicas, leader)
        return () if peers == tuple(sorted(existing.peers)) else peers

    def moved(
        self, existing: StreamAssignment, placement: Placement | None, *, away: NodeId | None, leader: NodeId | None
    ) -> tuple[NodeId, ...]:
        """The peers of a stream that leaves node `away`, or any of its nodes, for nodes of a placement.

        Without a placement its own counts. Replicas stay where they may, the leader's first; one goes in any case, as
        in nats-server. Raises ApiError when there are not enough nodes.
        """
        config = existing.config if placement is None else attrs.evolve(existing.config, placement=placement)
        wanted = self._wanted(config, replicas=config.num_replicas, kept=())
        kept = tuple(
            node
            for node in existing.peers
            if node != away and fits(self._load(node, config.storage), wanted, cluster=self._name)
        )
        if len(kept) == config.num_replicas:
            kept = self._fewer(kept, config.num_replicas - 1, leader)
        lacking = config.num_replicas - len(kept)
        placed = self._place(config, replicas=lacking, kept=kept, without=frozenset(existing.peers))
        return tuple(sorted((*kept, *placed.peers)))

    def filled(
        self, existing: StreamAssignment, peers: tuple[NodeId, ...], *, without: AbstractSet[NodeId]
    ) -> tuple[NodeId, ...] | None:
        """As many peers as the stream wants, these among them; None when there are not enough nodes."""
        lacking = existing.config.num_replicas - len(peers)
        if lacking <= 0:
            return peers
        try:
            placed = self._place(existing.config, replicas=lacking, kept=peers, without=without)
        except errors.ApiError:
            return None
        return tuple(sorted((*peers, *placed.peers)))

    def _further(
        self, config: StreamConfig, lacking: int, kept: Sequence[NodeId], without: AbstractSet[NodeId]
    ) -> Placed:
        """The nodes of more replicas. Where nodes are at their limit of streams nats-server calls it resources."""
        try:
            return self._place(config, replicas=lacking, kept=kept, without=without)
        except errors.ApiError as error:
            if FULL in error.description:
                raise errors.INSUFFICIENT_RESOURCES.with_values() from error
            raise

    def _fewer(self, peers: tuple[NodeId, ...], count: int, leader: NodeId | None) -> tuple[NodeId, ...]:
        online, promised_load = self._cluster.online(), self._machine.table.promised_load
        by_worth = sorted(
            peers, key=lambda node: (node != leader, node not in online, promised_load.replicas(node), node)
        )
        return tuple(sorted(by_worth[:count]))

    def _place(
        self,
        config: StreamConfig,
        *,
        replicas: int,
        kept: Sequence[NodeId],
        without: AbstractSet[NodeId] = frozenset(),
        away_max: int = 0,
    ) -> Placed:
        loads = [
            self._load(node, config.storage)
            for node in sorted(self._cluster.members)
            if node not in without and node not in kept
        ]
        wanted = self._wanted(config, replicas=replicas, kept=kept)
        return place(attrs.evolve(wanted, away_max=away_max), loads, cluster=self._name)

    def _wanted(self, config: StreamConfig, *, replicas: int, kept: Sequence[NodeId]) -> Wanted:
        """A server that stands alone looks at no placement, as nats-server."""
        if not self._cluster.clustered:
            return Wanted(replicas=replicas)
        placement = config.placement
        taken = (unique_tag_of(self._cluster.profile_of(node).tags, self._unique_tag) for node in kept)
        return Wanted(
            replicas=replicas,
            cluster=placement.cluster if placement else "",
            tags=placement.tags if placement else (),
            max_bytes=config.max_bytes,
            unique_tag=self._unique_tag,
            replicated_max=self._replicated_max if self._replicated_max and config.num_replicas > 1 else None,
            taken=frozenset(tag for tag in taken if tag is not None),
        )

    def _load(self, node_id: NodeId, kind: StorageType) -> NodeLoad:
        promised_load, placing = self._machine.table.promised_load, self._placing
        profile = self._cluster.profile_of(node_id)
        promised_bytes = promised_load.promised_bytes(node_id, kind) + placing.promised_bytes(node_id, kind)
        return NodeLoad(
            node_id=node_id,
            online=self._cluster.is_up(node_id),
            replicas=promised_load.replicas(node_id) + placing.replicas(node_id),
            replicated=promised_load.replicated(node_id) + placing.replicated(node_id),
            leaders=promised_load.leaders(node_id) + placing.leaders(node_id),
            reserved_bytes=promised_bytes,
            room_bytes=profile.room(kind, promised_bytes),
            is_short=self._has_full_disk(node_id, kind),
            is_drained=profile.drained,
            tags=profile.tags,
        )

    def _has_full_disk(self, node_id: NodeId, kind: StorageType) -> bool:
        if kind is not StorageType.FILE:
            return False
        return self._is_short() if node_id == self._cluster.node_id else self._cluster.profile_of(node_id).is_short

    def _require_room_of(self, nodes: Sequence[NodeId], config: StreamConfig, *, more_bytes: int) -> None:
        """Refuse to promise more bytes than the nodes of a stream have; here only promises count, as in nats-server."""
        promised_load, placing, kind = self._machine.table.promised_load, self._placing, config.storage
        for node in nodes:
            capacity = self._cluster.profile_of(node).capacity.get(kind)
            promised_bytes = promised_load.promised_bytes(node, kind) + placing.promised_bytes(node, kind)
            if capacity is None or more_bytes <= 0 or promised_bytes + more_bytes <= capacity:
                continue
            if kind is StorageType.MEMORY:
                raise errors.MEMORY_RESOURCES_EXCEEDED.with_values()
            raise errors.STORAGE_RESOURCES_EXCEEDED.with_values()

    @property
    def _name(self) -> str:
        return self._cluster.name
