"""The replicas of this node: which run, which are to be looked at, which could not be started.

`MetaBackend` (backend.py) alone changes this; all other parts look replicas up here. The directory stands below both
the backend and what the backend's host needs, so neither has to be told of the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs
import trio

from jetraft.cluster.state.changes import StreamChanges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
    from jetraft.raft.group import Group
    from jetraft.store.model.ids import GroupId


class HostedReplica(Protocol):
    """A running replica of a stream on this node."""

    @property
    def group(self) -> Group:
        """Its Raft group."""

    def reconfigure(self, assignment: StreamAssignment) -> None:
        """Take over a newer config; the leader proposes it to the stream's group."""


R = TypeVar("R", bound=HostedReplica)


@attrs.frozen
class Running(Generic[R]):
    """A replica and the row it was started from, or last reconfigured to."""

    replica: R
    assignment: StreamAssignment


@attrs.frozen(slots=True)
class Unstarted:
    """Why a replica could not be started, and whose data its attempts may have left."""

    group_id: GroupId
    reason: str
    attempts: int
    due_s: float  # of trio's clock: when it is tried again


class ReplicaDirectory(Generic[R]):
    """See the module. `changes` hears of each stream whose row has changed, and whose replica starts or ends."""

    def __init__(self, changes: StreamChanges | None = None) -> None:
        self._changes = changes or StreamChanges()
        self._running: dict[StreamKey, Running[R]] = {}
        self._listed: Sequence[tuple[StreamAssignment, R]] | None = None  # what `replicas` says, until they change
        self.dirty: dict[StreamKey, None] = {}  # to be brought in line with the table
        self.working: dict[StreamKey, float] = {}  # being brought in line, since this moment of trio's clock
        self.unstarted: dict[StreamKey, Unstarted] = {}
        self.woken = trio.Event()  # there is work
        self.settled = trio.Event()  # there is none

    def get(self, key: StreamKey) -> R | None:
        """Return the running replica of a stream, if this node holds one."""
        running = self._running.get(key)
        return running.replica if running else None

    def replicas(self) -> Sequence[tuple[StreamAssignment, R]]:
        """Return all running replicas with their assignments, in the order they were started.

        The same object until they change: several tasks look at all of them twice a second.
        """
        if self._listed is None:
            self._listed = tuple((running.assignment, running.replica) for running in self._running.values())
        return self._listed

    def accounts(self) -> dict[GroupId, str]:
        """The account of each group that runs here."""
        return {running.assignment.group_id: running.assignment.account for running in self._running.values()}

    def by_group(self, group_id: GroupId) -> tuple[StreamAssignment, R] | None:
        """Return the running replica of a group, with its assignment."""
        for running in self._running.values():
            if running.assignment.group_id == group_id:
                return running.assignment, running.replica
        return None

    @property
    def wanted(self) -> int:
        """How many replicas this node has, with those that do not run, or not yet."""
        known = (self._running, self.unstarted, self.dirty)
        # Few are being worked at; the difference of the views would go over all that run, several times a second.
        starting = sum(not any(key in each for each in known) for key in self.working)
        return len(self._running) + len(self.unstarted) + len(self.dirty) + starting

    async def settle(self) -> None:
        """Wait until this node matches the table as it is now."""
        if self.dirty or self.working:
            await self.settled.wait()

    def started(self) -> Mapping[StreamKey, Running[R]]:
        """Return what runs, by stream; it changes while it is looked at across turns."""
        return self._running

    # --- for the backend

    def running(self, key: StreamKey) -> Running[R] | None:
        """Return what runs of a stream, with the row that it runs by."""
        return self._running.get(key)

    def set(self, key: StreamKey, running: Running[R] | None) -> None:
        """The replica of a stream runs from now on, or does not."""
        if running is None:
            del self._running[key]
        else:
            self._running[key] = running
        self._listed = None
        self._changes.notify(key)

    def note(self, keys: Sequence[StreamKey]) -> None:
        """These streams are to be brought in line with the table."""
        if keys:
            self._changes.notify_all(keys)
            self.dirty.update(dict.fromkeys(keys))
            self.settled = trio.Event() if self.settled.is_set() else self.settled
            self.woken.set()
