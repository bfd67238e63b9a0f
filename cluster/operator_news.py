"""News for operators of a node's part in the cluster: the leader of the meta group, and servers that were removed.

The advisories go to the system account; who leads is in the log of every node besides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.peer_views import led_replicas
from jetraft.store.model.events import MEMBER_REMOVED, META_LEADER, META_LEADER_LOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.advisories import NodeAdvisories
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.raft.group import Group
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import NodeId


class OperatorNews:
    """See the module. A server that stands alone has none of this to tell."""

    def __init__(
        self,
        *,
        machine: MetaMachine,
        meta_group: Callable[[], Group | None],
        view: ClusterView,
        advisories: NodeAdvisories,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._meta_group = meta_group
        self._view = view
        self._advisories = advisories
        self._clock = clock
        self._told_term: int | None = None
        self._logged: tuple[NodeId | None, int] | None = None  # leader and term
        machine.on_leader.connect(self._look)

    def server_removed(self, node_id: NodeId) -> None:
        """A node is no member of the meta group any more; told where that was decided."""
        name, server_id = self._view.name_of(node_id), self._view.profile_of(node_id).server_id
        MEMBER_REMOVED.log(node=name, node_id=node_id, cluster=self._view.name)
        self._advisories.server_removed(name, server_id, self._view.name)

    def out_of_storage(self) -> None:
        """This node's disk takes no more messages."""
        own = self._view.node_id
        name, server_id = self._view.name_of(own), self._view.profile_of(own).server_id
        self._advisories.out_of_storage(name, server_id, self._view.name)

    def _look(self) -> None:
        term, group = self._machine.leading_term, self._meta_group()
        if self._view.clustered and group is not None:
            leader = group.node_id if term is not None else self._machine.leader
            self._log(leader, group.term)
        if not self._view.clustered or group is None or term is None or term == self._told_term:
            return
        self._told_term = term
        view, now_ns = self._view, self._clock.mono_ns()
        replicas = led_replicas(group, name_of=view.name_of, link_heard_ns=view.link_heard_ns, now_ns=now_ns)
        self._advisories.domain_leader(group.node_id, replicas, view.name)

    def _log(self, leader: NodeId | None, term: int) -> None:
        """A leader that was elected again after a moment without contact is news as well: its term is another one."""
        if (leader, term) == self._logged or (leader is None and self._logged is None):
            return  # it is known, or it is the beginning
        self._logged = leader, term
        if leader is None:
            META_LEADER_LOST.log(term=term)
        else:
            META_LEADER.log(leader=self._view.name_of(leader), term=term)
