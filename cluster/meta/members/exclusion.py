"""The end of this node when the meta group does not count it as a member: it ends, or asks to be admitted again.

The node finds out by asking, as for its lease (table_lease.py): the answer of a leader that a majority has confirmed.
So it does not matter which message was lost; a call of the meta leader (`look`) only makes it ask at once.

- Removed while it ran, as a member: its replicas end, and stay on its disk. It serves nothing until it is started
  again: the word of the operator who has removed it, as with nats-server, whose JetStream is disabled until then.
- Removed while it was away: it asks to be admitted when it is back, as nats-server does by itself, and comes as a node
  without memory of the meta group (raft/recovery/joining.py, decision 125): its former log of the meta group is set
  aside. Its replicas of streams that still count on it are served again; those that went to other nodes are deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jetraft.cluster.meta.table_lease import TableLease

log = logging.getLogger(__name__)


class SettlingReplicas(Protocol):
    """The part of the directory of replicas that is used here."""

    async def settle(self) -> None:
        """Wait until this node matches the table as it is now."""


class Exclusion:
    """See the module. `leave` ends the replica of the meta group and empties the table; False: not now, try again.

    `rejoin` returns when this node is a member again.
    """

    def __init__(
        self,
        *,
        lease: TableLease,
        took_part: Callable[[], bool],
        leave: Callable[[], bool],
        rejoin: Callable[[], Awaitable[None]],
        directory: SettlingReplicas,
    ) -> None:
        self._lease = lease
        self._took_part = took_part
        self._leave = leave
        self._rejoin = rejoin
        self._directory = directory
        self._told = trio.Event()
        self._done: trio.Event | None = None  # of what the last answer calls for
        self.is_removed = False  # while it ran
        lease.on_excluded.connect(self._note)

    async def run(self) -> None:
        """Do what is to be done, until cancelled. Raises StoreError or OSError when the log cannot be opened."""
        while True:
            await self._told.wait()
            self._told = trio.Event()
            await self._end_or_rejoin()
            await self._directory.settle()
            if self._done is not None:
                self._done.set()
                self._done = None

    async def _end_or_rejoin(self) -> None:
        is_end = self._took_part()
        if self.is_removed or not self._leave():
            return  # its log is being replaced: the next answer tells again
        if is_end:
            self.is_removed = True
            log.error(
                "this server was removed from the cluster: its replicas end here, and stay on the disk;"
                " start it again to have it admitted again"
            )
        else:
            log.warning("this server was removed from the cluster while it was away; it asks to be admitted again")
            await self._rejoin()

    async def look(self) -> bool:
        """Ask whether this node is a member, and say whether it is none and its replicas have ended."""
        await self._lease.ask_again()
        if self._done is None:
            return False
        await self._done.wait()
        return self.is_removed

    def _note(self) -> None:
        if self._done is None:
            self._done = trio.Event()
        self._told.set()
