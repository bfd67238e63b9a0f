"""The other nodes that were linked in this process, up or down, and those that are kept out for a while. Pure.

A node is known from its first control frame on, and stays known when it is down: the count of names is bounded, as a
node that knows the secret could invent any number of them.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.gossip import ADDRESSES_MAX, About
from jetraft.raft.mesh.handshake import HandshakeRefusedError, Hello
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId

PENALTY_NS: Final = 2 * NS_PER_S  # how long a node that was refused in a session is not linked again
PEERS_MAX: Final = 1024  # names that one process remembers


@attrs.frozen(kw_only=True, slots=True)
class MeshPeer:
    """A node as others have described it, kept while it is down. `metadata` is what its server says of itself."""

    node_id: NodeId
    name: str
    up: bool
    session: int  # counts the sessions with any peer in this process
    address: Address | None  # where it listens for peers
    last_seen_ns: int  # mono
    metadata: Mapping[str, Any]
    links: tuple[NodeId, ...] | None = None  # whom it is linked with; None when it does not say

    @property
    def client_url(self) -> str:
        """The address for its clients; empty when it did not say."""
        return str(self.metadata.get("client_url", ""))


class KnownPeers:
    """See the module."""

    def __init__(self) -> None:
        self._peers: dict[NodeId, MeshPeer] = {}
        self._penalties: dict[NodeId, tuple[int, str]] = {}  # until when (mono), and what for

    @property
    def all(self) -> Mapping[NodeId, MeshPeer]:
        """Every node that was ever linked in this process."""
        return MappingProxyType(self._peers)

    def is_up(self, node: NodeId) -> bool:
        """Whether there is a session with the node."""
        peer = self._peers.get(node)
        return peer is not None and peer.up

    def last_seen_ns(self, node: NodeId) -> int | None:
        """When the last session with the node ended (mono); None when there was none."""
        peer = self._peers.get(node)
        return None if peer is None else peer.last_seen_ns

    def relay_to(self, node: NodeId) -> NodeId | None:
        """A linked node that is linked with `node` too, always the same of several; None when there is none."""
        return min((peer.node_id for peer in self._up() if node in (peer.links or ())), default=None)

    def check(self, hello: Hello, now_ns: int) -> None:
        """Raises HandshakeRefusedError for a node that has a penalty, and for one name too many."""
        until_ns, why = self._penalties.get(hello.node_id, (0, ""))
        if until_ns > now_ns:
            raise HandshakeRefusedError(f"{hello.node_id} {why} less than {PENALTY_NS // NS_PER_S} s ago")
        if hello.node_id not in self._peers and len(self._peers) >= PEERS_MAX:
            raise HandshakeRefusedError(f"{PEERS_MAX} nodes have been here already")

    def penalise(self, node: NodeId, now_ns: int, why: str) -> None:
        """Keep a node out for a while: it would fill the log with beginnings and ends of links."""
        running = {other: penalty for other, penalty in self._penalties.items() if penalty[0] > now_ns}
        self._penalties = {**running, node: (now_ns + PENALTY_NS, why)}

    def learn(self, hello: Hello, about: About, *, session: int, now_ns: int) -> MeshPeer | None:
        """Replace what is known of a node by its newest control frame; returns what was known before."""
        before = self._peers.get(hello.node_id)
        self._peers[hello.node_id] = MeshPeer(
            node_id=hello.node_id,
            name=hello.name,
            up=True,
            session=session,
            address=about.address,
            last_seen_ns=now_ns,
            metadata=about.metadata,
            links=about.links,
        )
        return before

    def session_ended(self, node: NodeId, last_seen_ns: int) -> MeshPeer | None:
        """The node is down; None when its session had never begun, for want of a control frame."""
        peer = self._peers.get(node)
        if peer is None or not peer.up:
            return None
        self._peers[node] = attrs.evolve(peer, up=False, last_seen_ns=last_seen_ns)
        return peer

    def about(self, metadata: Mapping[str, Any], address: Address | None) -> About:
        """This node's report of itself, and of the nodes that it is linked with."""
        addresses = {peer.node_id: peer.address for peer in self._up() if peer.address is not None}
        peers = dict(list(addresses.items())[:ADDRESSES_MAX])
        links = tuple([peer.node_id for peer in self._up()][:ADDRESSES_MAX])
        return About(metadata=metadata, address=address, peers=peers, links=links)

    def _up(self) -> Iterator[MeshPeer]:
        return (peer for peer in self._peers.values() if peer.up)
