"""Groups in which this node may have promised what it has forgotten, as the node's ledger has them.

A memory group is noted before its replica starts for the first time, a group in files when its log is given up. One
that is noted when a replica without a log is to be started is one whose log, term and vote this node has forgotten
(raft/recovery/joining.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.ledger import ledger_records

if TYPE_CHECKING:
    from jetraft.store.ledger.ledger import Ledger
    from jetraft.store.ledger.ledger_records import GroupKey
    from jetraft.store.model.ids import GroupId


class MemoryGroups:
    """See the module. Every change is durable when the method returns."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __contains__(self, group: GroupKey) -> bool:
        state = self._ledger.state(group)
        return state is not None and state.is_noted

    def all(self) -> list[GroupKey]:
        """Every group noted."""
        return sorted(key for key in self._ledger.groups() if key in self)

    async def note(self, group_id: GroupId, incarnation: int) -> None:
        """A replica is about to start. Raises OSError."""
        key = group_id, incarnation
        if key not in self:
            await self._ledger.commit(ledger_records.noted(key))

    async def forget(self, group_id: GroupId) -> None:
        """The group was deleted, or has left this node. Raises OSError."""
        gone = [key for key in self._ledger.groups() if key[0] == group_id]
        if gone:
            await self._ledger.commit(*map(ledger_records.removed, gone))
