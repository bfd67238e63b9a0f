"""Looks at every replica of the node, again and again: does it do what its row and its role say?

A replica does so by itself when an event says that something has changed (streams/replica/replica.py). Here nothing
rests on the event: a configuration that was proposed and not committed, a change of members that stands still, a right
to lead that was not weighed again is found within IDLE_NS, and named when it lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from jetraft.cluster.calls.reconciling import Reconciling
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.streams.replica.replica import StreamReplica

IDLE_NS: Final = 30 * NS_PER_S  # 10,000 replicas, a third of them led, are looked through in 0.12 s of processor time
AGAIN_NS: Final = 2 * NS_PER_S  # while a replica has something to do: most of that takes less
PATIENCE_NS: Final = 10 * NS_PER_S  # a new member catches up for that long, if there is much
SLICE: Final = 50  # replicas that are looked at in one turn: under a millisecond


class ReplicaDuties:
    """See the module."""

    def __init__(self, directory: ReplicaDirectory[StreamReplica]) -> None:
        self._directory = directory
        self.loop = Reconciling(
            "streams on this node", self._look, idle_ns=IDLE_NS, patience_ns=PATIENCE_NS, first_pause_ns=AGAIN_NS
        )

    async def _look(self) -> dict[str, str]:
        undone = {}
        for number, (row, replica) in enumerate(self._directory.replicas()):
            if number % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
            if self._directory.get(row.key) is not replica:
                continue  # it has ended meanwhile
            why = replica.reconcile()
            if why is not None:
                undone["stream {} > {}".format(*row.key)] = why
        return undone
