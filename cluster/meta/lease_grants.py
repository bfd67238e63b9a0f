"""The meta leader's knowledge of the other nodes' leases of the table (table_lease.py): when none can run any more.

A lease begins when its node asks, which is before the leader answers; so it ends at most LEASE_NS after the answer, on
the node's clock, and MARGIN_NS later than that on the leader's. Answers of earlier leaders were confirmed by a
majority before this one was elected: those leases are over LEASE_NS after the election. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.meta.table_lease import LEASE_NS

if TYPE_CHECKING:
    from jetraft.store.model.ids import NodeId

# By how much two steady clocks may differ over one lease: a hundred times what NTP corrects, and coarse timers.
MARGIN_NS: Final = LEASE_NS // 10


class LeaseGrants:
    """See the module. All times are of this node's steady clock."""

    def __init__(self) -> None:
        self._term = 0
        self._began_ns = 0
        self._answered_ns: dict[NodeId, int] = {}

    def lead(self, term: int, now_ns: int) -> None:
        """This node leads the meta group in this term."""
        if term != self._term:
            self._term, self._began_ns, self._answered_ns = term, now_ns, {}

    def answered(self, node: NodeId, now_ns: int) -> None:
        """A node was told how far the meta group has committed."""
        self._answered_ns[node] = now_ns

    @property
    def earlier_over_ns(self) -> int:
        """When all leases are over that earlier leaders have granted."""
        return self._began_ns + LEASE_NS + MARGIN_NS

    def over_ns(self, node: NodeId) -> int:
        """When all leases are over that the node may have by now."""
        return self._answered_ns.get(node, self._began_ns) + LEASE_NS + MARGIN_NS
