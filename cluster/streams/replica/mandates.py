"""The mandates of a node's replicas: weighed together when evidence that they share begins or ends.

A replica weighs by itself what it finds out by itself (replica.py). Here is what comes from the meta group: the row of
a stream has changed, which is noted inside apply and looked at after it, and the table as a whole is known to be
current, or is not any more. The part that knows that calls `weigh_all`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.ports import TimerHandle, Timers
    from jetraft.cluster.state.assignment import StreamKey
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.clock import Clock


class Mandates:
    """See the module."""

    def __init__(
        self, *, machine: MetaMachine, directory: ReplicaDirectory[StreamReplica], timers: Timers, clock: Clock
    ) -> None:
        self._directory = directory
        self._timers = timers
        self._clock = clock
        self._changed: dict[StreamKey, None] = {}
        self._timer: TimerHandle | None = None
        machine.on_change.connect(self._note)

    def weigh_all(self) -> None:
        """The evidence for the rows of all streams has begun or ended: serving follows before this returns."""
        for _, replica in self._directory.replicas():
            replica.weigh()

    def _note(self, keys: Sequence[StreamKey]) -> None:
        self._changed.update(dict.fromkeys(key for key in keys if self._directory.get(key) is not None))
        if self._changed and self._timer is None:
            self._timer = self._timers.call_at(self._clock.mono_ns(), self._weigh_changed)

    def _weigh_changed(self) -> None:
        self._timer = None
        changed, self._changed = self._changed, {}
        for key in changed:
            replica = self._directory.get(key)
            if replica is not None:
                replica.weigh()
