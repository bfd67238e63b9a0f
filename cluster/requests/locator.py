"""The owner, as far as this node knows: the meta leader what exists, a stream's leader what is in the stream.

`locate` guesses, for a request that is looking for its owner; a guess that is wrong costs a "moved". `leading`,
`leading_meta` and `require_meta` decide: what they let through is carried out here, and Moved is raised before
anything was done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.calls.forward import MeshLike, Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.meta_group import MetaGroup, MetaGroupRef
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.ids import NodeId


@attrs.frozen(slots=True)
class LeaderElsewhere:
    """The leader of a stream, and since this node's replica follows it, in which term; 0 where there is no replica."""

    node: NodeId
    incarnation: int
    term: int


class Owners:
    """See the module. `replica_of` finds this node's replica of a stream; `mesh` is None where no other node is."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        mesh: MeshLike | None,
        machine: MetaMachine,
        meta_group: MetaGroupRef,
        replica_of: Callable[[StreamKey], StreamReplica | None],
    ) -> None:
        self._node_id = node_id
        self._mesh = mesh
        self._machine = machine
        self._replica_of = replica_of
        self._meta_group = meta_group

    def locate(self, request: ForwardedRequest, asked: AbstractSet[NodeId] = frozenset()) -> NodeId | None:
        """Return the node that probably owns what the request is about, none of those that were just asked."""
        if request.owner is Owner.ANY:
            return self._node_id
        if request.owner is Owner.META:
            return self._first([*self._meta_leader(), *self.others()], asked)
        key = StreamKey(request.account, request.stream)
        replica, row = self._replica_of(key), self._machine.table.get(key)
        if replica is not None:
            if replica.is_leader or replica.leader is not None:
                return self._first([replica.leader or self._node_id], asked)
            # Without a leader this node is the first to know of one, unless it is this node that lost its link to it.
            return self._first([self._node_id, *(() if row is None else row.holders)], asked)
        if row is not None:
            return self._first([row.preferred, *row.holders], asked)
        return self._first([*self._meta_leader(), *self.others()], asked)

    def leading(self, account: str, name: str) -> StreamReplica:
        """Return the stream's replica on this node if it leads. Raises Moved, or ApiError when there is no stream."""
        key = StreamKey(account, name)
        replica = self._replica_of(key)
        if replica is not None:
            if replica.is_leader:
                return replica
            raise Moved(replica.leader)
        if self._machine.table.get(key) is None and self._machine.leading_term is not None:
            raise errors.STREAM_NOT_FOUND.with_values()
        raise Moved

    def led_here(self, account: str, name: str) -> StreamReplica | None:
        """Return the stream's replica on this node, if it leads."""
        replica = self._replica_of(StreamKey(account, name))
        return replica if replica is not None and replica.is_leader else None

    def followed(self, account: str, name: str) -> LeaderElsewhere | None:
        """Return who leads the stream, if this node can ask it directly and knows without asking."""
        key = StreamKey(account, name)
        replica, row = self._replica_of(key), self._machine.table.get(key)
        found: LeaderElsewhere | None = None
        if replica is not None:
            known = replica.group.followed()
            found = None if known is None else LeaderElsewhere(known[0], replica.incarnation, known[1])
        elif row is not None and len(row.holders) == 1:
            found = LeaderElsewhere(row.preferred, row.incarnation, 0)
        if found is None or found.node == self._node_id or self._mesh is None:
            return None
        peer = self._mesh.peers.get(found.node)
        return found if peer is not None and peer.up else None

    def leading_meta(self) -> MetaGroup:
        """Return the meta group if this node leads it. Raises Moved."""
        self.require_meta()
        if self._meta_group.group is None:
            raise Moved(self._machine.leader)
        return self._meta_group.group

    def require_meta(self) -> None:
        """Raise Moved unless this node leads the meta group."""
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)

    def leader_of(self, row: StreamAssignment) -> NodeId | None:
        """The stream's leader as far as this node knows: it was asked of its replica here, or is where it began."""
        replica = self._replica_of(row.key)
        if replica is None:
            return row.preferred
        return self._node_id if replica.is_leader else replica.leader

    @property
    def meta_leader(self) -> NodeId | None:
        """The leader of the meta group as far as this node knows."""
        return self._node_id if self._machine.leading_term is not None else self._machine.leader

    def others(self) -> list[NodeId]:
        """The other nodes that can be reached now."""
        if self._mesh is None:
            return []
        return sorted(node_id for node_id, peer in self._mesh.peers.items() if peer.up)

    def _meta_leader(self) -> list[NodeId]:
        leader = self.meta_leader
        return [] if leader is None else [leader]

    def _first(self, candidates: Iterable[NodeId], asked: AbstractSet[NodeId]) -> NodeId | None:
        return next((node for node in candidates if node not in asked and self._reaches(node)), None)

    def _reaches(self, node: NodeId) -> bool:
        """Whether this node can ask that one, or a peer can for it."""
        if node == self._node_id or self._mesh is None:
            return node == self._node_id
        peer = self._mesh.peers.get(node)
        return (peer is not None and peer.up) or self._mesh.relay_to(node) is not None
