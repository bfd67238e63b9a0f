"""The home of the replicas of streams: starts and stops them over logs, throws deleted data away.

How a log is opened, repaired, begun, exchanged and given up is in cluster/replica_logs.py; here is what a stream's row
says for it, and the logs in memory. A log is begun only where the table is proved to be current
(cluster/meta/currency.py); one that is here, and known to the node's ledger, is opened at once: what its group may do
is said by its own log.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.replica_logs import ReplicaLogs, Wish, has_checkpoints, members_of
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.recovery.joining import JoinPendingError, MemberAdmission
from jetraft.store.disk.io import run_blocking
from jetraft.store.ledger import quarantine
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import StorageType
from jetraft.store.model.events import REPLICA_EMPTY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from jetraft.cluster.meta.currency import Currency
    from jetraft.cluster.meta.saved_rows import SavedRows
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.memory_groups import MemoryGroups
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.recovery.repair import Repairs
    from jetraft.raft.recovery.swap import Swap
    from jetraft.store.ledger.node_dir import NodeDir
    from jetraft.store.model.ids import GroupId, NodeId
    from jetraft.store.port import GroupLog

log_ = logging.getLogger(__name__)


@attrs.define(eq=False)
class StreamHost:
    """Implements ReplicaHost of cluster/meta/backend.py over a node directory."""

    site_of: Callable[[str], Site]  # by account
    node_dir: NodeDir
    logs: ReplicaLogs
    repairs: Repairs
    memory_groups: MemoryGroups
    admit: Callable[[StreamAssignment], Awaitable[MemberAdmission]]  # raises JoinPendingError
    forget_admission: Callable[[GroupId], None]  # the group has left this node
    saved_rows: SavedRows | None  # None in a cluster
    joined_index: Callable[[], int]  # of the meta log: streams from before may know an earlier self of this node
    currency: Currency
    is_in_table: Callable[[StreamAssignment], bool]  # whether that is the stream's row now

    async def start(self, assignment: StreamAssignment) -> StreamReplica:
        """Open the log (in a thread: it may be long) and start the replica over it. Raises StoreError, OSError.

        A damaged log is repaired from the other replicas first; until it is, RepairPendingError says what is missing.
        JoinPendingError: it is not known yet how this node may take part. UnprovedError: nor whether it should at all.
        """
        is_memory = assignment.config.storage is StorageType.MEMORY
        if is_memory:
            return await self._start_in_memory(assignment)
        wish = self._wish(assignment)
        log = await self.logs.open(wish)
        if isinstance(log, FileLog):
            log.durability.assume_beginning(is_alone=wish.is_alone())  # the row is committed, and says how
        return await self._start_over(log, assignment)

    async def _start_in_memory(self, assignment: StreamAssignment) -> StreamReplica:
        own, key = self.node_dir.node_id, (assignment.group_id, assignment.incarnation)
        is_emptied = assignment.holders == (own,) and key in self.memory_groups
        replica = await self._start_over(await self._memory_log(assignment), assignment)
        if is_emptied:
            REPLICA_EMPTY.log(group=assignment.group_id)
            replica.note_forgotten(by_all=True)
        return replica

    async def reopen(self, replica: StreamReplica, assignment: StreamAssignment, swap: Swap) -> StreamReplica:
        """End the replica, let `swap` replace its log, start again. Raises StoreError or OSError: start it later."""
        log = await self.logs.swap(swap, stop=replica.stop)
        if isinstance(log, MemLog) and log.load_checkpoint() is None:
            return await self._start_in_memory(assignment)
        return await self._start_over(log, assignment)

    async def _start_over(self, log: GroupLog, assignment: StreamAssignment) -> StreamReplica:
        try:
            # A server without a stream is ready without these 80 modules, and loads them then
            # (api/startup/late_imports.py).
            from jetraft.cluster.streams.replica.replica import StreamReplica  # noqa: PLC0415

            return await StreamReplica.open(assignment=assignment, log=log, site=self.site_of(assignment.account))
        except BaseException:
            log.close()
            raise

    def _wish(self, assignment: StreamAssignment) -> Wish:
        return Wish(
            key=(assignment.group_id, assignment.incarnation),
            is_alone=lambda: self.currency.is_proved and assignment.holders == (self.node_dir.node_id,),
            others=partial(self._others, assignment),
            may_be_known=partial(self._may_be_known, assignment),
            require_current=partial(self._require_current, assignment),
            admit=partial(self.admit, assignment),
            may_lose=lambda: True,  # a stream lists what is lost
        )

    def _others(self, assignment: StreamAssignment, log: FileLog) -> list[NodeId]:
        """Other nodes that may have what this log has lost: by the row, if it is current; else the log may know better.

        Raises UnprovedError when both name no node: a row of the past must not have it given up.
        """
        own, members = self.node_dir.node_id, set(assignment.holders)
        if not self.currency.is_proved:
            members = members_of(log, members)
            if members == {own} and (log.damaged_blocks or not has_checkpoints(log)):
                self.currency.require(f"{assignment.group_id}: there is damage")
        return sorted(members - {own})

    def _require_current(self, assignment: StreamAssignment) -> None:
        """A log may be begun as this row says. Raises UnprovedError, or JoinPendingError when there is a newer row."""
        self.currency.require(assignment.group_id)
        if not self.is_in_table(assignment):
            raise JoinPendingError(f"{assignment.group_id}: what is assigned has changed")

    async def _memory_log(self, assignment: StreamAssignment) -> GroupLog:
        self._require_current(assignment)
        log, own = MemLog(), self.node_dir.node_id
        group = assignment.group_id, assignment.incarnation
        if assignment.holders == (own,):  # with the only member its messages are gone, as on any server
            log.save_checkpoint(0, 0, Configuration(voters=(own,)).encode(), b"")
        elif group in self.memory_groups or self._may_be_known(assignment):
            await self.logs.be_admitted(self._wish(assignment), log)
        await self.memory_groups.note(*group)
        return log

    def _may_be_known(self, assignment: StreamAssignment) -> bool:
        """Whether the group may count on a self of this node that it does not remember."""
        own, key = self.node_dir.node_id, (assignment.group_id, assignment.incarnation)
        came_later = own in assignment.newcomers or assignment.incarnation <= self.joined_index()
        return came_later or self.logs.is_forgotten(key)

    async def stop(self, replica: StreamReplica) -> None:
        """End the replica and its group, close the log; the data stays."""
        replica.stop()
        self.logs.close(replica.group.log, (replica.group.group_id, replica.group.incarnation))

    async def discard(self, group_id: GroupId) -> None:
        """Move the group's data to the trash, then remove it, also where the ledger cannot be told. Raises OSError.

        What was kept of it for inspection goes too.
        """
        self.repairs.forget(group_id)
        self.forget_admission(group_id)
        if self.saved_rows is not None:
            self.saved_rows.forget(group_id)
        for found, incarnation in list(self.node_dir.groups()):
            if found == group_id:
                await run_blocking(partial(self.node_dir.throw_away, group_id, incarnation))
        await run_blocking(partial(quarantine.remove_aside, self.node_dir.disk, self.node_dir.root, group_id))
        await self.memory_groups.forget(group_id)

    def stored_groups(self) -> Iterable[tuple[GroupId, int]]:
        """The stream groups on disk, and those that the ledger knows; the meta group is not one."""
        stored = [*self.node_dir.groups(), *self.node_dir.ledger.groups()]
        return [group for group in dict.fromkeys(stored) if group[0] != "meta"]
