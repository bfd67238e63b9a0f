"""The names of this domain's JetStream API: which connections are told them, and by which node of a cluster.

A leaf node may be a cluster, each of whose nodes has a connection to the same hub. A request that came over all of them
would be carried out by each, so the node with the lowest id among those that have a connection tells the names.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from jetraft.api.leafnodes.admission import domain_subjects
from jetraft.api.leafnodes.link import LeafLink

HUBS_KEY: Final = "leaf_hubs"  # of a node's metadata: [account, cluster] of the hubs that it is connected to
HUBS_MAX: Final = 256
WORDS: Final = 2  # account and cluster

Hub = tuple[str, str]


def hub_of(link: LeafLink) -> Hub:
    """The name that connections of several nodes to one hub share."""
    assert link.peer is not None
    return link.account, link.peer.cluster or link.peer.name


def hubs_in(metadata: Any) -> set[Hub]:
    """A peer's report of its hubs, checked."""
    listed = metadata.get(HUBS_KEY)
    found = listed[:HUBS_MAX] if isinstance(listed, list) else []
    return {
        (hub[0], hub[1])
        for hub in found
        if isinstance(hub, list) and len(hub) == WORDS and all(isinstance(word, str) for word in hub)
    }


@attrs.define(eq=False)
class DomainNames:
    """Keeps what connections are told as it has to be."""

    domain: str
    has_jetstream: Callable[[str], bool]  # an account
    _told: set[int] = attrs.field(factory=set)
    _described: list[list[str]] = attrs.field(factory=list)

    def update(self, links: Iterable[LeafLink], write: Callable[[int, bytes], object], mesh: Any) -> None:
        """Tell the names where this node is the one to do so, and take them back where it is not any more."""
        if not self.domain:
            return
        admitted = [link for link in links if link.admitted and self.has_jetstream(link.account)]
        elsewhere: set[Hub] = set()
        if mesh is not None:
            self._describe([link for link in admitted if link.is_spoke], mesh)
            lower = [peer for peer in mesh.peers.values() if peer.up and peer.node_id < mesh.node_id]
            elsewhere = set().union(*(hubs_in(peer.metadata) for peer in lower))
        self._told &= {link.cid for link in admitted}
        for link in admitted:
            wanted = not link.is_spoke or hub_of(link) not in elsewhere
            if wanted is not (link.cid in self._told):
                (self._told.add if wanted else self._told.discard)(link.cid)
                verb = "LS+" if wanted else "LS-"
                lines = "".join(f"{verb} {subject}\r\n" for subject in domain_subjects(self.domain))
                write(link.cid, lines.encode())

    def _describe(self, spokes: list[LeafLink], mesh: Any) -> None:
        """Say to the other nodes which hubs this one is connected to."""
        hubs = sorted(list(hub) for hub in {hub_of(link) for link in spokes})[:HUBS_MAX]
        if hubs != self._described:
            self._described = hubs
            mesh.describe(HUBS_KEY, hubs)
