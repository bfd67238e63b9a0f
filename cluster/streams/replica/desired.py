"""A change of a stream's replicas that is under way, as its info shows it (`cluster.desired` of nats-server 2.15).

It is read off the row and the group's members, so each leader says the same; only `created` is when the leader's node
heard of the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model.state import DesiredInfo, DesiredOrigin, DesiredPeer, DesiredStatus

if TYPE_CHECKING:
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.raft.group import Group
    from jetraft.store.model.state import ClusterInfo

CATCHING_UP: Final = DesiredStatus(description="waiting for desired peers to catch up", type="catchup")
REPORTING: Final = DesiredStatus(description="reporting membership to meta leader", type="meta")


def with_desired(cluster: ClusterInfo, site: Site, group: Group, row: StreamAssignment, changed_ns: int) -> ClusterInfo:
    """The info of a group, and what its members shall be while they are not. `changed_ns` is Unix time."""
    if not row.is_changing or not site.cluster_name:
        return cluster
    origin = None if row.former is None else DesiredOrigin(replicas=row.former.replicas)
    desired = DesiredInfo(
        created_ns=changed_ns,
        name=site.cluster_name,
        replicas=tuple(DesiredPeer(name=site.name_of(node), peer=node) for node in row.peers),
        origin=origin,
        status=_status(site, group, row),
    )
    return attrs.evolve(cluster, desired=desired)


def _status(site: Site, group: Group, row: StreamAssignment) -> DesiredStatus:
    voters = group.configuration.voters
    if not set(row.peers) <= set(voters):
        return CATCHING_UP
    surplus = sorted(set(voters) - set(row.peers))
    if surplus:
        return DesiredStatus(description=f"removing peer {site.name_of(surplus[0])}", type="membership")
    return REPORTING
