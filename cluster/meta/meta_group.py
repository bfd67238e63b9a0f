"""The meta group of this node as others use it, and the one place that knows which object it is now.

There is none before the group is founded, and on a node that is outside of it; it is another object after its log was
replaced (members/meta_replica.py). All parts that need the group, its members or how far it is applied ask here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jetraft.raft.changes import Change
from jetraft.raft.transfer_candidates import LedGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.raft.engine.port import Proposal
    from jetraft.store.model.ids import NodeId


class Transferable(LedGroup, Protocol):
    """A group whose leadership can be moved."""

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Voters and learners."""

    def transfer_leadership(self, to: NodeId | None) -> bool:
        """Hand leadership over."""


class MetaGroup(Transferable, Protocol):
    """The part of raft.group.Group that requests use."""

    @property
    def applied_index(self) -> int:
        """The highest index applied."""

    @property
    def failed(self) -> Exception | None:
        """Why the group takes no part any more; None while it does."""

    @property
    def configuration_is_committed(self) -> bool:
        """Whether no leader can roll the present members back."""

    @property
    def members_may_change(self) -> bool:
        """Whether the groups of this cluster can have other members than those they were created with."""

    async def wait_applied(self, index: int) -> None:
        """Return when everything up to this index is applied, or the group has ended."""

    async def propose_and_wait(self, proposal: Proposal) -> object:
        """Propose and return the result of apply. Raises NotLeaderError or OutcomeUnknownError."""

    async def confirm_leadership(self) -> None:
        """Return when everything committed before the call is applied. Raises NotLeaderError."""


class MetaGroupRef:
    """See the module. `group` is None until there is one."""

    def __init__(self, group: MetaGroup | None = None) -> None:
        self.group = group
        self._replaced = Change()

    def replace(self, group: MetaGroup | None) -> None:
        """The meta group's object on this node is this one from now on; None: it has ended here."""
        self.group = group
        self._replaced.notify()

    @property
    def members(self) -> Sequence[NodeId]:
        """Voters and learners; none until the group is founded."""
        return () if self.group is None else self.group.members

    @property
    def applied_index(self) -> int:
        """How far this node has applied the meta group's log."""
        return 0 if self.group is None else self.group.applied_index

    async def wait_applied(self, index: int) -> None:
        """Return when everything up to this index is applied, maybe by a later group. The caller bounds the wait."""
        while self.applied_index < index:
            if self.group is None or self.group.failed is not None:
                await self._replaced.wait()
            else:
                await self.group.wait_applied(index)
