"""Which nodes get the replicas of a stream, and who leads it. Pure: the same question has the same answer.

Nodes that carry the tags and have the room; those that are online first, those that an operator drains last, then those
with the fewest replicas, the least promised bytes, the fewest led streams. A new replicated stream may count on nodes
that are away, as long as a majority is there: it begins, and they catch up. With a unique tag no two replicas share its
value. The preferred leader is the chosen node that leads least and is not drained, so leaders spread even when every
node holds everything.

Source of the rules and of the texts: jetstream_cluster.go, selectPeerGroup and getStepDownPreferredPlacement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model import errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from jetraft.store.model.config import Placement
    from jetraft.store.model.ids import NodeId

FULL: Final = "miscellaneous issue"  # nats-server's words for a server at its max_ha_assets
NO_SUITABLE_PEERS: Final = "no suitable peers for placement"


@attrs.frozen(kw_only=True, slots=True)
class NodeLoad:
    """The load of a node by assignment, and its properties. `room_bytes`: what may still be promised; None for any."""

    node_id: NodeId
    online: bool
    name: str = ""
    replicas: int = 0
    replicated: int = 0  # of the replicas, those of streams with several
    leaders: int = 0
    reserved_bytes: int = 0
    room_bytes: int | None = None
    is_short: bool = False  # its disk takes no messages now
    is_drained: bool = False  # an operator wants others to lead
    tags: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True, slots=True)
class Wanted:
    """The wishes of a stream. Tags that start with `!` exclude nodes that carry them.

    `unique_tag` is a prefix: each replica's node must have a tag that starts with it, and no two the same one;
    `taken` are those of replicas that stay where they are. `away_max` of the nodes may be offline. A node that has
    `replicated_max` replicas of streams with several gets no further one; None: it does not matter here.
    """

    replicas: int
    cluster: str = ""
    tags: tuple[str, ...] = ()
    max_bytes: int = 0
    unique_tag: str = ""
    taken: frozenset[str] = frozenset()
    away_max: int = 0
    replicated_max: int | None = None


@attrs.frozen(kw_only=True, slots=True)
class Placed:
    """The chosen nodes, sorted by id, and the one that should lead first."""

    peers: tuple[NodeId, ...]
    preferred: NodeId


@attrs.define(slots=True)
class _Reasons:
    """Why nodes were left out, in the order in which nats-server names it."""

    offline: bool = False
    no_room: bool = False
    not_unique: bool = False
    is_full: bool = False  # of streams with several replicas
    not_matched: set[str] = attrs.field(factory=set)
    excluded: set[str] = attrs.field(factory=set)

    def text(self, tags: Sequence[str]) -> str:
        """For the error; tags in the order in which they were asked for."""
        bare = [tag.removeprefix("!") for tag in tags]
        parts = [NO_SUITABLE_PEERS]
        parts += ["peer offline"] * self.offline
        parts += ["insufficient storage"] * self.no_room
        parts += ["server tag not unique"] * self.not_unique
        parts += [FULL] * self.is_full
        for what, named in (("not matched", self.not_matched), ("excluded", self.excluded)):
            if named:
                parts.append(f"tags {what} [{', '.join(repr(tag) for tag in bare if tag in named)}]")
        return ", ".join(parts)


def place(wanted: Wanted, nodes: Sequence[NodeLoad], *, cluster: str) -> Placed:
    """Choose the nodes of a stream, or of its further replicas.

    Raises ApiError 10005 with nats-server's text when too few nodes are online, carry the tags, have room, or are in
    the cluster.
    """
    assert wanted.replicas > 0
    reasons = _Reasons()
    in_cluster = wanted.cluster in ("", cluster)
    suitable = [node for node in nodes if in_cluster and _suits(node, wanted, reasons)]
    chosen: list[NodeLoad] = []
    taken = set(wanted.taken)
    for node in sorted(suitable, key=_by_load):
        if wanted.unique_tag:
            unique = unique_tag_of(node.tags, wanted.unique_tag)
            if unique is None or unique in taken:
                reasons.not_unique = True
                continue
            taken.add(unique)
        chosen.append(node)
    chosen = chosen[: wanted.replicas]
    too_many_away = sum(not node.online for node in chosen) > wanted.away_max
    if len(chosen) < wanted.replicas or too_many_away:
        reasons.offline |= too_many_away
        raise errors.CLUSTER_NO_PEERS.with_values(err=reasons.text(wanted.tags))
    leader = min((node for node in chosen if node.online), key=_as_leader)
    return Placed(peers=tuple(sorted(node.node_id for node in chosen)), preferred=leader.node_id)


def fits(node: NodeLoad, wanted: Wanted, *, cluster: str) -> bool:
    """Whether a replica that is on this node may stay there; being away for a while is no reason to move it."""
    if wanted.cluster not in ("", cluster):
        return False
    return _suits(attrs.evolve(node, online=True, room_bytes=None, is_short=False, replicated=0), wanted, _Reasons())


def unique_tag_of(tags: AbstractSet[str], prefix: str) -> str | None:
    """The tag that starts with the prefix; the first in order when there are several."""
    return min((tag for tag in tags if tag.startswith(prefix.lower())), default=None)


def choose_transfer_target(
    placement: Placement | None, members: Sequence[NodeLoad], *, own: NodeId, cluster: str
) -> NodeId | None:
    """The member that shall lead a group that node `own` leads; None for any member. `members` are all of the group's.

    Raises ApiError 10005 with nats-server's text when no node fits.
    """
    if placement is None:
        return None
    if placement.preferred:
        found = next((node for node in members if placement.preferred in (node.name, node.node_id)), None)
        if found is None:
            raise errors.CLUSTER_NO_PEERS.with_values(err=f'preferred server "{placement.preferred}" not known')
        if found.node_id == own:
            raise errors.CLUSTER_NO_PEERS.with_values(err=f'preferred server "{placement.preferred}" is already leader')
        return found.node_id
    in_cluster, tags = placement.cluster in ("", cluster), {tag.lower() for tag in placement.tags}
    others = [node for node in members if in_cluster and node.node_id != own and node.online and tags <= node.tags]
    if not others:
        raise errors.CLUSTER_NO_PEERS.with_values(err="no replacement peer connected")
    return min(others, key=_as_leader).node_id


def _as_leader(node: NodeLoad) -> tuple[bool, int, NodeId]:
    return (node.is_drained, node.leaders, node.node_id)


def _by_load(node: NodeLoad) -> tuple[bool, bool, int, int, int, NodeId]:
    return (not node.online, node.is_drained, node.replicas, node.reserved_bytes, node.leaders, node.node_id)


def _suits(node: NodeLoad, wanted: Wanted, reasons: _Reasons) -> bool:
    if not node.online and not wanted.away_max:
        reasons.offline = True
        return False
    for tag in wanted.tags:
        excludes, bare = tag.startswith("!"), tag.removeprefix("!")
        if (bare.lower() in node.tags) == excludes:
            (reasons.excluded if excludes else reasons.not_matched).add(bare)
            return False
    if node.is_short or (node.room_bytes is not None and wanted.max_bytes > node.room_bytes):
        reasons.no_room = True
        return False
    if wanted.replicated_max is not None and node.replicated >= wanted.replicated_max:
        reasons.is_full = True
        return False
    return True
