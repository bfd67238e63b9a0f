"""This node's replica of the meta group: the group over its log, from the start on, and again over a replaced log.

The log is replaced when this node was away for so long that the others have trimmed what it lacks
(raft/recovery/catchup.py), or opened again after damage (cluster/upkeep/restarter.py). The table stays while the group
is away for that moment: a table that is empty for an instant would look like a cluster without streams, and every
replica here would be stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.raft.group_spec import GroupSpec
from jetraft.store.model.ids import GroupId
from jetraft.store.port import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.members.founding import Founders
    from jetraft.cluster.replica_logs import ReplicaLogs
    from jetraft.raft.group import Group
    from jetraft.raft.manager import Manager
    from jetraft.raft.recovery.swap import Swap
    from jetraft.store.port import GroupLog

META_GROUP: Final = GroupId("meta")


class MetaReplica:
    """See the module. `listeners` hear of every new group object, `end_listeners` when there is none any more."""

    def __init__(
        self,
        *,
        machine: MetaMachine,
        manager: Manager,
        logs: ReplicaLogs,
        listeners: Sequence[Callable[[Group], None]],
        end_listeners: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._machine = machine
        self._manager = manager
        self._logs = logs
        self._listeners = listeners
        self._end_listeners = end_listeners
        self._founders: Founders | None = None
        self._open: Callable[[], Awaitable[GroupLog]] | None = None
        self._is_swapping = False
        self.group: Group | None = None

    def take(self, founders: Founders, opened: GroupLog, *, open_again: Callable[[], Awaitable[GroupLog]]) -> None:
        """Start the group over its log. `open_again` opens that once more, when another one could not be had."""
        self._founders, self._open = founders, open_again
        self._start(opened)

    async def reopen(self, swap: Swap) -> None:
        """Replace the log (raft/recovery/swap.py). When that fails, the old one is opened again and the failure raised.

        Without a log that opens there is no group until the next call.
        """
        swap.check(None if self._is_swapping else self.group)
        self._is_swapping = True
        try:
            await self._swap(swap)
        finally:
            self._is_swapping = False

    async def _swap(self, swap: Swap) -> None:
        assert self._open is not None
        try:
            new = await self._logs.swap(swap, stop=self._stop)
        except (StoreError, OSError):
            self._machine.rewind()
            self._start(await self._open())
            raise
        checkpoint = new.load_checkpoint()
        if checkpoint is None or checkpoint.index < self._machine.applied_index:
            self._machine.rewind()  # entries that were applied are applied again
        self._start(new)

    def end(self) -> bool:
        """Take no part any more, and close the log. False while it is being replaced: nothing is done then."""
        if self._is_swapping:
            return False
        if self.group is not None:
            group, self.group = self.group, None
            self._stop()
            self._logs.close(group.log, (META_GROUP, group.incarnation))
            for listener in self._end_listeners:
                listener()
        return True

    def _stop(self) -> None:
        if META_GROUP in self._manager.groups:
            self._manager.remove(META_GROUP)

    def _start(self, meta_log: GroupLog) -> None:
        assert self._founders is not None
        founders = self._founders
        spec = GroupSpec(
            group_id=META_GROUP,
            incarnation=founders.incarnation,
            members=founders.members,
            preferred_leader=founders.members[0],
        )
        self.group = self._manager.create(spec, meta_log, self._machine)
        for listener in self._listeners:
            listener(self.group)
