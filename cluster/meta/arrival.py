"""How this node comes to its seat in the meta group: as founder, by joining, or anew over a log of no use.

A founder opens its log and starts. A node that the founding went on without asks the leader until it is admitted, and
writes that down before the group starts. One whose log has lost its promises (term and vote, its checkpoints, its end)
is admitted as if it had never been there, and what is left of the log is kept aside (ARCHITECTURE.md, decision 34).
A server that stands alone then begins an empty one, when its ledger knows every stream (adoption.py).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from jetraft.cluster.meta.seat import META_GROUP, MetaSeat
from jetraft.raft.joining import Begins, Joining
from jetraft.raft.repair import OvertakenError
from jetraft.store.port import HardStateLost, StoreCorrupt, StoreMisplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.forward import MeshLike
    from jetraft.cluster.meta.bootstrap import Bootstrap
    from jetraft.cluster.meta.founding import Founders
    from jetraft.cluster.streams.memory_groups import MemoryGroups
    from jetraft.raft.joining import Admission
    from jetraft.store.model.ids import GroupId, NodeId

log = logging.getLogger(__name__)


class Arrival:
    """See the module. `joining` and `mesh` are None on a server that stands alone.

    `unknown` gives the groups with data here that only the meta group's log can name.
    """

    def __init__(  # noqa: PLR0913  (all that a seat depends on)
        self,
        *,
        node_id: NodeId,
        bootstrap: Bootstrap,
        seat: MetaSeat,
        memory_groups: MemoryGroups,
        joining: Joining | None,
        mesh: MeshLike | None,
        unknown: Callable[[], Sequence[GroupId]],
    ) -> None:
        self._node_id = node_id
        self._bootstrap = bootstrap
        self._seat = seat
        self._memory_groups = memory_groups
        self._joining = joining
        self._mesh = mesh
        self._unknown = unknown
        self.is_outside = False  # while this node asks to be admitted

    async def run(self, *, waits: Callable[[], None]) -> None:
        """Return when the meta group runs here. `waits` is called before a wait for others that a log of no use costs.

        Raises StoreError or OSError when the log cannot be opened.
        """
        founders = await self._bootstrap.run()
        if founders is None:
            founders = await self._join()
        try:
            await self._seat.take(founders, is_known=(META_GROUP, founders.incarnation) in self._memory_groups)
        except (HardStateLost, OvertakenError, StoreCorrupt, StoreMisplaced) as error:
            if self._joining is None:
                await self._begin_anew(founders, error)
                return
            log.error("%s: %s; it is filled anew, what it held is kept aside", META_GROUP, error)  # noqa: TRY400
            waits()
            await self._retake(founders)

    async def _join(self) -> Founders:
        """Become a member of a meta group that exists; durable when this returns. Its log is there then."""
        founders = self._bootstrap.elsewhere
        assert founders is not None
        self.is_outside = True
        admission = await self._seat.join(founders, partial(self._ask, founders), give_up=self._seat.trash)
        await self._bootstrap.joined(founders, admission.commit_index)
        self.is_outside = False
        return founders

    async def _retake(self, founders: Founders) -> None:
        """Start the meta group as a learner anew, when its leader agrees: this member's log is of no use.

        What was lost of the ledger with it, if that was the reason, may have named groups in memory, of which nothing
        else tells. So every group up to now may know a self of this node that it has forgotten, before it starts here.
        """
        self.is_outside = True

        async def ask() -> Admission:
            admission = await self._ask(founders)
            await self._bootstrap.joined(founders, admission.commit_index)
            return admission

        await self._seat.join(founders, ask, give_up=self._seat.set_aside)
        self.is_outside = False
        await self._seat.take(founders, is_known=True)

    async def _begin_anew(self, founders: Founders, error: Exception) -> None:
        """Start an empty meta group on a server that stands alone, whose streams are known without it.

        Raises the error when they are not: what nobody can name must not look as if it were not there.
        """
        unknown = self._unknown()
        if unknown:
            raise StoreCorrupt(
                f"{error}; nothing else says what the streams of {', '.join(unknown)} are: restore the store from a "
                "backup, or move it away to start with an empty one"
            ) from error
        log.error(
            "%s: %s; it begins anew, what is left of it is kept aside, and every stream is taken back from the ledger",
            META_GROUP,
            error,
        )
        await self._seat.set_aside()
        await self._seat.take(founders, is_known=False)

    async def _ask(self, founders: Founders) -> Admission:
        assert self._mesh is not None
        assert self._joining is not None
        others = sorted(peer for peer, info in self._mesh.peers.items() if info.up)
        return await self._joining.ask(
            META_GROUP, founders.incarnation, own=self._node_id, others=others, begins=Begins.NEVER
        )
