"""Takes streams back into the table of a server that stands alone, after its meta log has lost what it said of them.

Absence from the table is never taken for a deletion: data of a stream is there, so the stream is. What its row was, the
ledger has (saved_rows.py); where that has nothing, the data stays where it is, and /healthz names it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.cluster.calls.unfinished import Unfinished
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.meta_group import MetaGroup, MetaGroupRef
    from jetraft.cluster.meta.saved_rows import SavedRows
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.store.ledger.ledger_records import GroupKey
    from jetraft.store.model.ids import GroupId

log = logging.getLogger(__name__)


class Adoption:
    """See the module. `stored` gives the stream groups that have data here."""

    def __init__(
        self,
        *,
        rows: SavedRows,
        machine: MetaMachine,
        frontend: MetaFrontend,
        meta_group: MetaGroupRef,
        stored: Callable[[], Iterable[GroupKey]],
    ) -> None:
        self._rows = rows
        self._machine = machine
        self._frontend = frontend
        self._meta_group = meta_group
        self._stored = stored
        self._done_for: MetaGroup | None = None  # the meta group that the saved rows were compared with
        self._left: list[StreamAssignment] = []  # rows that could not be taken back
        self._unfinished = Unfinished("streams that the meta group has lost")

    def unknown(self) -> list[GroupId]:
        """The groups with data here that no saved row names: without the meta log it is unknown what they are."""
        return self._rows.without(self._stored())

    async def run(self) -> None:
        """Take back what is missing, once for each time that the meta log was opened.

        Does nothing until this node leads the meta group. The change is durable when this returns. What could not be
        taken back is tried again by each call: what is in its way may be deleted.
        """
        if self._machine.leading_term is None:
            return
        stored = set(self._stored())
        if self._done_for is not self._meta_group.group:
            self._done_for = self._meta_group.group
            if self._machine.lost_entries:
                await self._remove_superfluous(stored)
            self._left = self._rows.missing(stored)
            await self._take_back()
            self._rows.prune(stored)
        elif self._left:
            self._left = [row for row in self._left if (row.group_id, row.incarnation) in stored]
            await self._take_back()

    async def _take_back(self) -> None:
        rows, self._left, stuck = self._left, [], {}
        for row in rows:
            try:
                await self._frontend.adopt(row)
            except (ApiError, Moved, AnswerLost) as error:
                self._left.append(row)
                why = getattr(error, "description", None) or str(error) or type(error).__name__
                stuck["stream {} > {}".format(*row.key)] = (
                    f"{row.group_id} cannot be taken back: {why}; its data is kept: delete what is in its way"
                )
            else:
                log.error(
                    "stream %s > %s (%s): damage has cost the meta group what it knew of it; it is served as the "
                    "ledger has it, from %s.%d",
                    *row.key,
                    row.group_id,
                    row.group_id,
                    row.incarnation,
                )
        _, line = self._unfinished.looked(stuck, int(trio.current_time() * NS_PER_S))
        if line is not None:
            log.error("%s", line)

    async def _remove_superfluous(self, stored: Collection[GroupKey]) -> None:
        """Delete again what was deleted in an entry that is lost: it may be in the way of its successor."""
        for row in self._rows.superfluous(stored):
            with suppress(ApiError, Moved, AnswerLost):  # the table has it still: the next start tries again
                await self._frontend.remove(*row.key)
                log.warning(
                    "stream %s > %s (%s): damage has cost the meta group entries, its deletion among them: neither "
                    "data nor the ledger knows it; it is deleted again",
                    *row.key,
                    row.group_id,
                )
