"""Which nodes get the replicas of a new stream. Pure: the same nodes and the same request give the same answer.

Online nodes only; those with the fewest replicas first, then the least reserved bytes, then the fewest led streams.
The preferred leader is the chosen node that leads least, so leaders spread even when every node holds everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jetraft.store.model.ids import NodeId

NO_SUITABLE_PEERS: Final = "no suitable peers for placement"


@attrs.frozen(kw_only=True, slots=True)
class NodeLoad:
    """What a node carries by assignment: replicas, streams it was preferred to lead, sum of max_bytes promised."""

    node_id: NodeId
    online: bool
    replicas: int = 0
    leaders: int = 0
    reserved_bytes: int = 0
    tags: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True, slots=True)
class Wanted:
    """What a stream asks for; tags starting with `!` exclude nodes that carry them."""

    replicas: int
    cluster: str = ""
    tags: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, slots=True)
class Placed:
    """The chosen nodes, sorted by id, and the one that should lead first."""

    peers: tuple[NodeId, ...]
    preferred: NodeId


def place(wanted: Wanted, nodes: Sequence[NodeLoad], *, cluster: str) -> Placed:
    """Choose the nodes of a new stream.

    Raises ApiError 10005 with nats-server's text when too few nodes are online, carry the tags, or are in the cluster.
    """
    if wanted.cluster not in ("", cluster):
        raise errors.CLUSTER_NO_PEERS.with_values(err=NO_SUITABLE_PEERS)
    tagged = [node for node in nodes if _carries(node, wanted.tags)]
    suitable = [node for node in tagged if node.online]
    if len(suitable) < wanted.replicas:
        missing = wanted.tags if len(tagged) < wanted.replicas else ()
        raise errors.CLUSTER_NO_PEERS.with_values(err=NO_SUITABLE_PEERS + _tags_text(missing))
    assert wanted.replicas > 0
    chosen = sorted(suitable, key=_by_load)[: wanted.replicas]
    leader = min(chosen, key=lambda node: (node.leaders, node.node_id))
    return Placed(peers=tuple(sorted(node.node_id for node in chosen)), preferred=leader.node_id)


def _by_load(node: NodeLoad) -> tuple[int, int, int, NodeId]:
    return (node.replicas, node.reserved_bytes, node.leaders, node.node_id)


def _carries(node: NodeLoad, tags: Iterable[str]) -> bool:
    return all((tag[1:] not in node.tags) if tag.startswith("!") else (tag in node.tags) for tag in tags)


def _tags_text(tags: Sequence[str]) -> str:
    return f", tags not matched [{' '.join(repr(tag) for tag in tags)}]" if tags else ""
