"""Where this node's replicas live: opens their logs, starts and stops their shells, throws deleted data away.

A log is begun only where the table is proved to be current (cluster/meta/currency.py); one that is here, and known to
the node's ledger, is opened at once: what its group may do is said by its own log.

A replica that knows nothing of its group, though the group may know it, has to be admitted before it starts
(raft/joining.py): one that came later, one whose disk was wiped, one whose log was in memory, one that has lost its
term and vote or more of its log than can be repaired. What the last one still had is set aside first, never deleted.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.streams.shell import StreamShell
from jetraft.raft.joining import Admission, JoinPendingError, until_durable
from jetraft.raft.membership import Configuration
from jetraft.raft.recovery import known_members
from jetraft.raft.repair import OvertakenError
from jetraft.store.format import Identity
from jetraft.store.io import run_blocking
from jetraft.store.mem_log import MemLog
from jetraft.store.model.config import StorageType
from jetraft.store.port import HardStateLost, StoreCorrupt, StoreMisplaced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from jetraft.cluster.meta.assignment import StreamAssignment
    from jetraft.cluster.meta.currency import Currency
    from jetraft.cluster.meta.saved_rows import SavedRows
    from jetraft.cluster.streams.memory_groups import MemoryGroups
    from jetraft.cluster.streams.site import Site
    from jetraft.raft.repair import Repairs
    from jetraft.raft.swap import Swap
    from jetraft.store.block_cache import BlockCache
    from jetraft.store.log import FileLog
    from jetraft.store.model.ids import GroupId, NodeId
    from jetraft.store.node_dir import NodeDir
    from jetraft.store.port import GroupLog

log_ = logging.getLogger(__name__)


@attrs.define(eq=False)
class StreamHost:
    """Implements ReplicaHost of cluster/meta/backend.py over a node directory."""

    site: Site
    node_dir: NodeDir
    cache: BlockCache
    repairs: Repairs
    memory_groups: MemoryGroups
    admit: Callable[[StreamAssignment], Awaitable[Admission]]  # raises JoinPendingError
    saved_rows: SavedRows | None  # None in a cluster
    joined_index: Callable[[], int]  # of the meta log: streams from before may know an earlier self of this node
    currency: Currency
    is_in_table: Callable[[StreamAssignment], bool]  # whether that is the stream's row now

    async def start(self, assignment: StreamAssignment) -> StreamShell:
        """Open the log (in a thread: it may be long) and start the shell over it. Raises StoreError, OSError.

        A damaged log is repaired from the other replicas first; until it is, RepairPendingError says what is missing.
        JoinPendingError: nobody can say now how this node may take part. UnprovedError: nor whether it should at all.
        """
        return self._start_over(await self._open(assignment), assignment)

    async def reopen(self, replica: StreamShell, assignment: StreamAssignment, swap: Swap) -> StreamShell:
        """End the replica, let `swap` replace its log, start again. Raises StoreError or OSError: start it later."""
        replica.stop()
        try:
            log = await swap.carry_out()
            if isinstance(log, MemLog) and log.load_checkpoint() is None:
                log = await self._memory_log(assignment)
        except BaseException:
            replica.group.log.close()
            raise
        return self._start_over(log, assignment)

    def _start_over(self, log: GroupLog, assignment: StreamAssignment) -> StreamShell:
        try:
            return StreamShell(assignment=assignment, log=log, site=self.site)
        except BaseException:
            log.close()
            raise

    async def _open(self, assignment: StreamAssignment) -> GroupLog:
        if assignment.config.storage is StorageType.MEMORY:
            return await self._memory_log(assignment)
        try:
            return await self._file_log(assignment)
        except (HardStateLost, OvertakenError, StoreCorrupt, StoreMisplaced) as error:
            self.currency.require(f"{assignment.group_id}: {error}")
            if assignment.holders == (self.node_dir.node_id,):
                raise
            return await self._begin_anew(assignment, error)

    async def _file_log(self, assignment: StreamAssignment) -> GroupLog:
        """Open the log and repair it. Raises HardStateLost, OvertakenError, StoreCorrupt: it is of no use."""
        own = self.node_dir.node_id
        if not self._is_known_here(assignment):
            self._require_current(assignment)
        is_alone = assignment.holders == (own,) and self.currency.is_proved
        log = await self._opened(assignment, partial(self._others, assignment), accept_lost_hard_state=is_alone)
        try:
            if log.load_checkpoint() is None:
                await self._begin(assignment, log)
        except BaseException:
            log.close()
            raise
        return log

    async def _opened(
        self,
        assignment: StreamAssignment,
        others: Sequence[NodeId] | Callable[[FileLog], Sequence[NodeId]],
        *,
        accept_lost_hard_state: bool,
    ) -> GroupLog:
        key = assignment.group_id, assignment.incarnation
        identity = Identity(node_id=self.node_dir.node_id, group_id=key[0], incarnation=key[1])
        return await self.repairs.open(
            self.node_dir.ledger,
            self.node_dir.group(*key),
            identity,
            self.cache,
            others,
            accept_lost_hard_state=accept_lost_hard_state,
        )

    def _others(self, assignment: StreamAssignment, log: FileLog) -> list[NodeId]:
        """Who else may have what this log has lost: the row says so, if it is current; else the log may know better.

        Raises UnprovedError when by both nobody has: a row of the past must not have it given up.
        """
        members = set(assignment.holders)
        if not self.currency.is_proved and (log.damaged or not _has_checkpoints(log)):
            members |= known_members(log)
            if len(members) == 1:
                self.currency.require(f"{assignment.group_id}: there is damage")
        return sorted(members - {self.node_dir.node_id})

    async def _begin(self, assignment: StreamAssignment, log: GroupLog) -> None:
        """There is no checkpoint: the log is new, or its first batch was cut short, or its checkpoints are gone."""
        self._require_current(assignment)
        key = assignment.group_id, assignment.incarnation
        if assignment.holders == (self.node_dir.node_id,) and log.last_index and not log.boundary[0]:
            return  # the only member has all its entries: who the members are is among them
        must_ask = key in self.memory_groups or self._may_be_known(assignment)
        if log.boundary[0] or (must_ask and log.last_index):
            raise StoreCorrupt(f"{key[0]}: the checkpoints are gone")
        if must_ask:
            await self._be_admitted(assignment, log)

    async def _begin_anew(self, assignment: StreamAssignment, error: Exception) -> GroupLog:
        """Give the log up and become a learner of the group, as if the disk were new.

        Until the group's leader agrees everything stays as it is (JoinPendingError). A crash between moving the log out
        of the way and writing that down leaves a group whose files are missing: it comes here again, and never votes.
        """
        key = assignment.group_id, assignment.incarnation
        admission = await self.admit(assignment)
        log_.error("%s: %s; this replica is filled anew, what it held is kept aside", key[0], error)
        await self.node_dir.set_aside(*key)
        log = await self._opened(assignment, (), accept_lost_hard_state=True)
        admission.begin(log)
        await until_durable(log)
        return log

    def _is_known_here(self, assignment: StreamAssignment) -> bool:
        """Whether this node holds something of the group, or should."""
        key = assignment.group_id, assignment.incarnation
        return self.node_dir.ledger.state(key) is not None or self.node_dir.group(*key).exists()

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
            await self._be_admitted(assignment, log)
        await self.memory_groups.note(*group)
        return log

    def _may_be_known(self, assignment: StreamAssignment) -> bool:
        """Whether the group may count on a self of this node that it does not remember."""
        own = self.node_dir.node_id
        return own in assignment.newcomers or assignment.incarnation <= self.joined_index()

    async def _be_admitted(self, assignment: StreamAssignment, log: GroupLog) -> None:
        """Begin the log as the group's leader says. Durable when this returns: from then on this node has a memory."""
        admission = await self.admit(assignment)
        admission.begin(log)
        await until_durable(log)

    async def stop(self, replica: StreamShell) -> None:
        """End the shell and its group, close the log; the data stays."""
        replica.stop()
        replica.group.log.close()

    async def discard(self, group_id: GroupId) -> None:
        """Move the group's data to the trash, then remove it, also where the ledger cannot be told. Raises OSError."""
        self.repairs.forget(group_id)
        if self.saved_rows is not None:
            self.saved_rows.forget(group_id)
        for found, incarnation in list(self.node_dir.groups()):
            if found == group_id:
                trashed = self.node_dir.rename_into_trash(group_id, incarnation)
                if trashed is not None:
                    await run_blocking(partial(self.node_dir.remove, trashed))
        await self.memory_groups.forget(group_id)

    def stored_groups(self) -> Iterable[tuple[GroupId, int]]:
        """The stream groups on disk, and those that the ledger knows; the meta group is not one."""
        stored = [*self.node_dir.groups(), *self.node_dir.ledger.groups()]
        return [group for group in dict.fromkeys(stored) if group[0] != "meta"]


def _has_checkpoints(log: FileLog) -> bool:
    """Whether the log's checkpoint can be read, if it has any."""
    try:
        log.load_checkpoint()
    except (StoreCorrupt, StoreMisplaced):
        return False
    return True
