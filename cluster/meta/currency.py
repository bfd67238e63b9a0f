"""Whether this process may go by its table: is that as new as the meta group's was when this was asked?

After a restart the table is the one of the newest checkpoint of the meta log here, and the entries behind that are only
learnt to be committed from a leader. Until then a row may be of the past: the stream was moved, changed, deleted, or
deleted and created again. Going by such a row, a node once founded again a stream that had left it, and acknowledged
messages that no replica has. So until the table is proved to be current, once in the life of a process,

- no log is begun for a group that this node's ledger does not know (rule 38), and nothing that a log has lost is given
  up because a row says that no other node has it;
- no replica serves as leader: it takes no publish and proposes neither the config nor the members of its row. Its Raft
  group elects and follows as its own log says, so a restart of a whole cluster waits only for the meta group's leader.

Proved: the meta group's leader, confirmed by a majority, has said how far the group had committed, and that is applied
here. From then on the table only goes forward (MetaMachine.rewind), and a row that comes later is of a later time.
Without a majority of the meta group a restarted node serves nothing; one that has not been restarted goes on. What a
node leads meanwhile it hands over to others, which may have been confirmed (cluster/upkeep/unproved.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from jetraft.store.port import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

RETRY_S: Final = 0.05  # without a leader, asking takes up to four seconds by itself


class UnprovedError(StoreError):
    """A row may be of the past; this is tried again when the table is proved to be current."""


class Currency:
    """See the module. `committed_index` asks the meta leader and gives None when no node could say.

    `wait_applied` returns when this node has applied the meta group's log up to an index.
    """

    def __init__(
        self,
        *,
        committed_index: Callable[[], Awaitable[int | None]],
        wait_applied: Callable[[int], Awaitable[None]],
    ) -> None:
        self._committed_index = committed_index
        self._wait_applied = wait_applied
        self.is_proved = False

    async def run(self) -> None:
        """Return when the table is proved to be current."""
        while not self.is_proved:
            index = await self._committed_index()
            if index is None:
                await trio.sleep(RETRY_S)
                continue
            await self._wait_applied(index)
            self.is_proved = True
            log.info("the table of streams is current, as of entry %d of the meta group", index)

    def require(self, what: str) -> None:
        """Raise UnprovedError until the table is proved to be current."""
        if not self.is_proved:
            raise UnprovedError(f"{what}: the meta group has not confirmed yet what this node knows of it")
