"""The nodes of the cluster as this one sees them: who may hold replicas, who is up, what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from jetraft.cluster.meta.profile import UNKNOWN, NodeProfile, unpack_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.raft.transfer_candidates import LedGroup
    from jetraft.store.model.ids import GroupId, NodeId


class NamedPeer(Protocol):
    """A peer as the view needs it."""

    @property
    def name(self) -> str:
        """The server's name."""

    @property
    def up(self) -> bool:
        """Whether the link stands."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its server's description of itself."""


class ClusterView:
    """Names and liveness; `peers` is None on a server that stands alone."""

    def __init__(  # noqa: PLR0913  (where names and liveness come from)
        self,
        *,
        node_id: NodeId,
        server_name: str,
        cluster_name: str,
        peers: Callable[[], Mapping[NodeId, NamedPeer]] | None,
        machine: MetaMachine,
        members: Callable[[], Sequence[NodeId]] = tuple,
        link_heard_ns: Callable[[NodeId], int | None] = lambda _node: None,
    ) -> None:
        """`members` gives those of the meta group, none before it is founded.

        `link_heard_ns` says when the link with a node was last heard (mono), None for never.
        """
        self.link_heard_ns = link_heard_ns
        self.node_id = node_id
        self.own_profile = UNKNOWN
        self._server_name = server_name
        self._peers = peers
        self._machine = machine
        self.name = cluster_name
        self.clustered = peers is not None
        self._had_majority = False
        self._members = members

    @property
    def members(self) -> Sequence[NodeId]:
        """The members of the meta group; before it is founded, this node."""
        return self._members() or (self.node_id,)

    def online(self) -> Mapping[NodeId, str]:
        """Return the members of the meta group that can be reached now, by id, with their names; this node included."""
        return {node_id: self.name_of(node_id) for node_id in self.members if self.is_up(node_id)}

    @property
    def is_cut_off(self) -> bool:
        """Whether this node and those that it is linked with are no majority of the members, and were one before.

        One that starts waits for the others.
        """
        if not self.clustered or len(self.members) == 1:
            return False
        has_majority = 2 * len(self.online()) > len(self.members)
        self._had_majority = self._had_majority or has_majority
        return self._had_majority and not has_majority

    def name_of(self, node_id: NodeId) -> str:
        """Return a node's server name; its id when the name was never heard."""
        if node_id == self.node_id:
            return self._server_name
        peer = self._peers().get(node_id) if self._peers else None
        return peer.name if peer else self._machine.table.node_names.get(node_id, node_id)

    def id_of(self, name: str) -> NodeId | None:
        """Return the id of the member with this server name, or with this id, whether it is up or not."""
        return next((node_id for node_id in self.members if name in (node_id, self.name_of(node_id))), None)

    def profile_of(self, node_id: NodeId) -> NodeProfile:
        """Return what a node says of itself; `UNKNOWN` when it was never heard."""
        if node_id == self.node_id:
            return self.own_profile
        peer = self._peers().get(node_id) if self._peers else None
        return UNKNOWN if peer is None else unpack_profile(peer.metadata)

    def ranking(self, accounts: Mapping[GroupId, str]) -> Callable[[LedGroup, NodeId], int]:
        """How little nodes should lead a group, as they say now: `NodeProfile.unfitness`. Each is looked at once.

        `accounts` are those of the groups of streams.
        """
        profiles: dict[NodeId, NodeProfile] = {}

        def rank(group: LedGroup, node_id: NodeId) -> int:
            if node_id not in profiles:
                profiles[node_id] = self.profile_of(node_id)
            return profiles[node_id].unfitness(accounts.get(group.group_id, ""))

        return rank

    def drained(self) -> list[str]:
        """The names of the other nodes that are up and should lead nothing, in order."""
        others = (node for node in self.members if node != self.node_id and self.is_up(node))
        return sorted(self.name_of(node) for node in others if self.profile_of(node).drained)

    def behind(self, level: int) -> list[str]:
        """Return the names of the members that are away, or do not know this feature level, in order."""
        there = [node for node in self.members if self.is_up(node) and self.profile_of(node).level >= level]
        return sorted(self.name_of(node) for node in self.members if node not in there)

    def is_up(self, node_id: NodeId) -> bool:
        """Say whether the node can be reached now."""
        if node_id == self.node_id:
            return True
        peer = self._peers().get(node_id) if self._peers else None
        return peer is not None and peer.up
