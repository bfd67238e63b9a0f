"""The members of a stream's group or of the meta group: asked for by this node, and answered to others.

A node without memory of a group asks to be admitted (raft/recovery/joining.py). Here is what the cluster says to that:
whom the table wants in a group, what follows an admission, and what this node has to know before it asks itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.meta.members.meta_replica import META_GROUP
from jetraft.raft.recovery.joining import Begins, Joining, JoinPendingError
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.leader_duties import LeaderDuties
    from jetraft.cluster.requests.inquiries import Inquiries
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.recovery.joining import MemberAdmission
    from jetraft.store.model.ids import GroupId, NodeId


@attrs.frozen(kw_only=True)
class GroupMembers:
    """Questions and reports of `Joining` about the groups that this node leads."""

    directory: ReplicaDirectory[StreamReplica]
    leader_duties: LeaderDuties

    def may_join(self, group_id: GroupId, node_id: NodeId) -> bool:
        """Say whether a node without memory is wanted in a group that this node leads."""
        if group_id == META_GROUP:
            return True
        found = self.directory.by_group(group_id)
        return found is not None and node_id in found[0].peers

    def admitted(self, group_id: GroupId) -> None:
        """A group that this node leads has another learner."""
        found = self.directory.by_group(group_id)
        if found is not None:
            found[1].look_after_members()
        elif group_id == META_GROUP:
            self.leader_duties.attend()

    def forgotten(self, group_id: GroupId) -> None:
        """A stream in memory goes on here, and others have forgotten what this node may not have."""
        found = self.directory.by_group(group_id)
        if found is not None:
            found[1].note_forgotten()


@attrs.frozen(kw_only=True)
class StreamAdmission:
    """Asks for this node. `joining` is None on a server that stands alone, where no other node has to be asked."""

    node_id: NodeId
    joining: Joining | None
    inquiries: Inquiries

    async def ask(self, row: StreamAssignment) -> MemberAdmission:
        """Ask how this node may take part in a stream's group. Raises JoinPendingError."""
        assert self.joining is not None
        if not await self.inquiries.is_current(row):
            raise JoinPendingError(f"{row.group_id}: what this node knows of it may be out of date")
        others = [node for node in row.holders if node != self.node_id]
        is_memory = row.config.storage is StorageType.MEMORY
        begins = Begins.WITH_ALL if is_memory else Begins.AS_PAIR
        return await self.joining.ask(row.group_id, row.incarnation, own=self.node_id, others=others, begins=begins)

    def forget(self, group_id: GroupId) -> None:
        """The group has left this node, which does not wait for it any more."""
        if self.joining is not None:
            self.joining.forget(group_id)

    def has_begun_empty(self, group_id: GroupId) -> bool:
        """Whether a group began empty in this process, as none of its members remembered it."""
        return self.joining is not None and self.joining.has_begun_empty(group_id)
