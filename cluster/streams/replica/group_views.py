"""How a stream's group looks to clients: leader and replicas by server name, in infos and in the leader's advisory."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from jetraft.cluster.peer_views import led_replicas, peer_infos
from jetraft.store.model.state import ClusterInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.cluster.site import Site
    from jetraft.raft.group import Group
    from jetraft.store.stream.consumer_state import ConsumerState

CONSUMERS_TOLD_MAX: Final = 1000  # each costs a look at the interest in its subject when a leader begins


def cluster_info(site: Site, group: Group) -> ClusterInfo:
    """Leader and other replicas; a server that stands alone names itself only."""
    leader = "" if group.leader is None else site.name_of(group.leader)
    if not site.cluster_name:
        return ClusterInfo(leader=leader)
    # The group measures with the monotonic clock, so the Unix time of a beginning is counted back from now.
    since_ns = site.clock.unix_ns() - (site.clock.mono_ns() - group.leader_since_ns)
    replicas = peer_infos(group, name_of=site.name_of, link_heard_ns=site.link_heard_ns, now_ns=site.clock.mono_ns())
    return ClusterInfo(
        name=site.cluster_name,
        raft_group=group.group_id,
        leader=leader,
        leader_since_ns=since_ns if leader else None,
        replicas=replicas,
    )


def announce_leader(site: Site, group: Group, stream: str, consumers: Iterable[ConsumerState]) -> None:
    """Publish that this node leads a stream that has other replicas, too, and with it these consumers."""
    if len(group.members) > 1:
        site.advisories.stream_leader(stream, site.name_of(group.node_id), _replicas(site, group))
        announce_consumers(site, group, stream, consumers)


def announce_consumers(site: Site, group: Group, stream: str, consumers: Iterable[ConsumerState]) -> None:
    """Publish that this node leads these consumers, up to CONSUMERS_TOLD_MAX of them."""
    if len(group.members) > 1:
        leader, replicas = site.name_of(group.node_id), _replicas(site, group)
        for consumer in islice(consumers, CONSUMERS_TOLD_MAX):
            if not consumer.config.direct:
                site.advisories.consumer_leader(stream, consumer.name, leader, replicas)


def _replicas(site: Site, group: Group) -> list[dict[str, Any]]:
    return led_replicas(group, name_of=site.name_of, link_heard_ns=site.link_heard_ns, now_ns=site.clock.mono_ns())
