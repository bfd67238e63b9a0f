"""Makes this node's replicas match the table: starts what is assigned, stops what is not, deletes what was removed.

The table says what should be; apply only notes which streams changed, and they are worked off always against the newest
row, so ten changes of one stream are one piece of work and a replayed create-and-delete is none. Different streams are
worked at side by side, so that they share fsyncs and a slow one holds up no other; a stream is worked at by one
task at a time. A loop compares all rows with what runs, now and then: it finds what no event has announced, and names
what cannot be started.

A group's data is deleted only when the table holds its tombstone, or says that the group has left this node, and is
proved to be current (currency.py): in a table of the past the group may have left this node and not come back yet. A
replica that is no longer assigned and has neither is stopped and kept; so is a directory that no row knows: both are
reported as orphans.
"""

from __future__ import annotations

import logging
import math
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, Protocol

import attrs
import trio

from jetraft.cluster.calls.reconciling import Reconciling
from jetraft.cluster.meta.currency import UnprovedError
from jetraft.cluster.meta.directory import R, ReplicaDirectory, Running, Unstarted
from jetraft.raft.recovery.joining import JoinPendingError
from jetraft.raft.recovery.repair import RepairPendingError
from jetraft.raft.recovery.repair_pacing import rest_s
from jetraft.raft.recovery.swap import SwapRefusedError
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.port import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
    from jetraft.raft.recovery.swap import Swap
    from jetraft.store.model.ids import GroupId, NodeId
    from jetraft.store.model.signal import Signal

log = logging.getLogger(__name__)

RETRY_S: Final = 5.0  # a replica that could not be started is tried again: the disk may have been full or read-only
UNPROVED_RETRY_S: Final = 10.0  # one that waits for the table to be proved; `retry_all` comes sooner
PATIENCE_NS: Final = 10 * NS_PER_S  # before what is not started is named: an admission or a repair takes less mostly
SLICE: Final = 1000  # rows that are compared in one turn: under a millisecond
JOIN_RETRY_S: Final = 0.3  # one that waits to be admitted by other members, which may be electing a leader
WORKED_AT_ONCE: Final = 16  # streams: what they wait for is mostly the disk, whose writer threads are as many
SLOW_S: Final = 1.0  # one that takes longer reads a large log, or waits for other nodes: no other waits for it
SLOW_MAX: Final = 240  # that may be worked at besides; each may hold a log's files open


class ReplicaHost(Protocol[R]):
    """The home of replicas: opens logs, starts and stops replicas, throws data away."""

    async def start(self, assignment: StreamAssignment) -> R:
        """Open the log and start the replica over it. Raises StoreError or OSError when the log cannot be opened."""

    async def reopen(self, replica: R, assignment: StreamAssignment, swap: Swap) -> R:
        """End the replica, let `swap` replace its log, start it again. Raises StoreError or OSError: it has ended.

        The swap was checked: nothing is awaited before the replica has ended.
        """

    async def stop(self, replica: R) -> None:
        """End the replica and its group and close the log; the data stays."""

    async def discard(self, group_id: GroupId) -> None:
        """Move the group's data to the trash, then remove it; nothing to do when there is none."""

    def stored_groups(self) -> Iterable[tuple[GroupId, int]]:
        """The stream groups (id, incarnation) that have data on this node's disk."""


@attrs.frozen(kw_only=True, slots=True)
class BackendStatistics:
    """How well this node matches the table. `failed`: streams whose replica could not be started, and why."""

    running: int
    waiting: int
    orphans: tuple[GroupId, ...]
    failed: Mapping[StreamKey, str]


@attrs.define(eq=False)
class _Reopening:
    """A replica whose log is to be replaced, and who waits for it."""

    swap: Swap
    ended: trio.Event = attrs.field(factory=trio.Event)
    error: Exception | None = None


class MetaBackend(Generic[R]):
    """Starts and stops this node's replicas. One task (`run`) does; they are looked up in the directory."""

    def __init__(  # noqa: PLR0913  (what it compares, and with what)
        self,
        *,
        node_id: NodeId,
        machine: MetaMachine,
        directory: ReplicaDirectory[R],
        host: ReplicaHost[R],
        is_table_proved: Callable[[], bool] = lambda: True,
        on_heard: Signal[[GroupId]] | None = None,
    ) -> None:
        """`on_heard` tells of a member that a group's damaged log waits for (raft/recovery/repair.py)."""
        self._node_id = node_id
        self._is_table_proved = is_table_proved
        self._machine = machine
        self._host = host
        self._directory = directory
        self._orphans: set[GroupId] = set()
        self._undiscarded: dict[GroupId, float] = {}  # when it is tried again
        self._discarding: dict[GroupId, trio.Event] = {}  # what is on its way out, until its ledger knows it no more
        self._reopenings: dict[StreamKey, _Reopening] = {}
        self.comparison = Reconciling("replicas on this node", self._compare, patience_ns=PATIENCE_NS)
        machine.on_change.connect(directory.note)
        if on_heard is not None:
            on_heard.connect(self.retry)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reconcile until cancelled, then stop all replicas."""
        self._directory.note(list(self._machine.table.streams))
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    self._work_off(nursery)
                    if not self._directory.dirty and not self._directory.working:
                        self._directory.settled.set()
                    with trio.move_on_at(self._next_retry_s()):
                        await self._directory.woken.wait()
                    now_s = trio.current_time()
                    for group_id in [group_id for group_id, due_s in self._undiscarded.items() if due_s <= now_s]:
                        del self._undiscarded[group_id]
                        if group_id not in self._wanted_groups():
                            await self._discard_if_removed(group_id)
                    self._directory.note([key for key, due_s in self._due() if due_s <= now_s])
                    self._directory.woken = trio.Event()
        finally:
            # Shielded: else the first await raises Cancelled, and the replicas after it are not stopped.
            with trio.CancelScope(shield=True):
                for row, replica in self._directory.replicas():
                    await self._host.stop(replica)
                    self._directory.set(row.key, None)

    def retry(self, group_id: GroupId) -> None:
        """Try again now to start the group's replica, should it wait: a member that it waits for was heard of."""
        keys = [key for key, row in self._machine.table.streams.items() if row.group_id == group_id]
        self._directory.note([key for key in keys if self._directory.get(key) is None])

    async def _compare(self) -> dict[str, str]:
        """Note each stream whose replica is not what its row says, or whose log is to be replaced.

        Returns those, and what could not be started.
        """
        different = []
        noted = {**self._machine.table.streams, **self._directory.started(), **self._reopenings}
        for number, key in enumerate(list(noted)):
            if number % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
            if self._is_different(key):
                different.append(key)
        self._directory.note(different)
        undone = dict.fromkeys(different, "its replica is not what its row says")
        undone |= {key: unstarted.reason for key, unstarted in self._directory.unstarted.items()}
        return {"stream {} > {}".format(*key): why for key, why in undone.items()}

    def _is_different(self, key: StreamKey) -> bool:
        """Whether what runs is not what the row says, and nothing is under way about it."""
        if key in self._directory.dirty or key in self._directory.working or key in self._directory.unstarted:
            return False
        if key in self._reopenings:
            return True
        row, running = self._machine.table.get(key), self._directory.running(key)
        wanted = row if row is not None and self._node_id in row.holders else None
        return wanted is not (None if running is None else running.assignment) and (
            wanted is None or running is None or running.assignment != wanted
        )

    def retry_all(self) -> None:
        """Try again now what could not be started or discarded: the table is proved to be current."""
        self._directory.note(list(self._directory.unstarted))
        self._undiscarded = dict.fromkeys(self._undiscarded, trio.current_time())
        self._directory.woken.set()

    async def reopen(self, swap: Swap) -> None:
        """Replace the log of a running replica, where no other task works at it.

        Raises SwapRefusedError when it is not wanted any more by then: nothing is done. Raises StoreError or OSError
        when it failed: the replica is then started again over the log that it had.
        """
        found = (row.key for row, replica in self._directory.replicas() if replica.group is swap.group)
        key = next(found, None)
        if key is None or key in self._reopenings:
            raise StoreError(f"{swap.group.group_id} does not run here now")
        reopening = self._reopenings[key] = _Reopening(swap)
        self._directory.note([key])
        await reopening.ended.wait()
        if reopening.error is not None:
            raise reopening.error

    async def sweep(self) -> None:
        """Delete what tombstones allow of the groups on disk, and note the rest as orphans.

        To be called once the table is known to be current; before that, what it lacks may only be unread.
        """
        known = self._wanted_groups()
        self._orphans -= known
        for group_id in sorted({group_id for group_id, _ in self._host.stored_groups()} - known):
            if group_id not in self._wanted_groups():  # it may have come back while another one was discarded
                await self._discard_if_removed(group_id)

    def _wanted_groups(self) -> set[GroupId]:
        return {row.group_id for row in self._machine.table.streams.values() if self._node_id in row.holders}

    def statistics(self) -> BackendStatistics:
        """Return how well this node matches the table."""
        return BackendStatistics(
            running=len(self._directory.replicas()),
            waiting=len(self._directory.dirty),
            orphans=tuple(sorted(self._orphans)),
            failed={key: unstarted.reason for key, unstarted in self._directory.unstarted.items()},
        )

    def _work_off(self, nursery: trio.Nursery) -> None:
        """Begin with what was noted, as far as it may be worked at now. A stream that is being worked at waits."""
        now_s = trio.current_time()
        quick = sum(now_s < began_s + SLOW_S for began_s in self._directory.working.values())
        room = min(WORKED_AT_ONCE - quick, WORKED_AT_ONCE + SLOW_MAX - len(self._directory.working))
        for key in list(islice((key for key in self._directory.dirty if key not in self._directory.working), room)):
            del self._directory.dirty[key]
            self._directory.working[key] = now_s
            nursery.start_soon(self._work_at, key)

    async def _work_at(self, key: StreamKey) -> None:
        try:
            await self._reconcile(key)
        finally:
            del self._directory.working[key]
            self._directory.woken.set()

    def _due(self) -> list[tuple[StreamKey, float]]:
        """The replicas that could not be started, and when it is tried again. Nothing while other streams wait."""
        if self._directory.dirty:
            return []
        return [
            (key, each.due_s) for key, each in self._directory.unstarted.items() if key not in self._directory.working
        ]

    def _next_retry_s(self) -> float:
        dues_s = [due_s for _, due_s in self._due()]
        if self._directory.dirty:  # some may begin when those that are worked at count as slow
            now_s = trio.current_time()
            dues_s += [slow_s for began_s in self._directory.working.values() if (slow_s := began_s + SLOW_S) > now_s]
        return min([*dues_s, *self._undiscarded.values()], default=math.inf)

    async def _reconcile(self, key: StreamKey) -> None:
        row = self._machine.table.get(key)
        wanted = row if row is not None and self._node_id in row.holders else None
        running = self._directory.running(key)
        # Another incarnation is another stream of the same name: it must meet no old log (rule 30).
        if running is not None and (wanted is None or wanted.incarnation != running.assignment.incarnation):
            await self._stop(key, running)
            running = None
        reopening = self._reopenings.pop(key, None)
        if reopening is not None:
            await self._reopen(key, running, reopening)
            running = self._directory.running(key)
        unstarted = self._directory.unstarted.get(key)
        if unstarted is not None and (wanted is None or wanted.group_id != unstarted.group_id):
            del self._directory.unstarted[key]
            await self._discard_if_removed(unstarted.group_id)
        if wanted is None:
            return
        if running is None:
            await self._start(key, wanted)
        elif running.assignment != wanted:
            self._directory.set(key, Running(replica=running.replica, assignment=wanted))
            running.replica.reconfigure(wanted)

    async def _start(self, key: StreamKey, assignment: StreamAssignment) -> None:
        group_id = assignment.group_id
        while group_id in self._discarding:  # it was here before, has left, and comes back
            await self._discarding[group_id].wait()
        try:
            replica = await self._host.start(assignment)
        except (StoreError, OSError) as error:
            self._put_off(key, group_id, error)
            return
        self._directory.unstarted.pop(key, None)
        self._directory.set(key, Running(replica=replica, assignment=assignment))

    def _put_off(self, key: StreamKey, group_id: GroupId, error: StoreError | OSError) -> None:
        """The replica could not be started: note why, and when to try again."""
        before = self._directory.unstarted.get(key)
        attempts = 1 if before is None else before.attempts + 1
        if isinstance(error, UnprovedError):
            pause_s = UNPROVED_RETRY_S
        elif isinstance(error, JoinPendingError):
            pause_s = JOIN_RETRY_S
        else:
            pause_s = rest_s(attempts) if isinstance(error, RepairPendingError) else RETRY_S
            if before is None:
                log.error("stream %s > %s (%s): cannot start: %s", *key, group_id, error)
        self._directory.unstarted[key] = Unstarted(group_id, str(error), attempts, trio.current_time() + pause_s)

    async def _reopen(self, key: StreamKey, running: Running[R] | None, reopening: _Reopening) -> None:
        try:
            reopening.swap.check(None if running is None else running.replica.group)
            assert running is not None
        except SwapRefusedError as error:
            reopening.error = error
            reopening.ended.set()
            return
        self._directory.set(key, None)
        try:
            replica = await self._host.reopen(running.replica, running.assignment, reopening.swap)
            self._directory.set(key, Running(replica=replica, assignment=running.assignment))
        except (StoreError, OSError) as error:
            reopening.error = error
        finally:
            reopening.ended.set()

    async def _stop(self, key: StreamKey, running: Running[R]) -> None:
        self._directory.set(key, None)
        await self._host.stop(running.replica)
        await self._discard_if_removed(running.assignment.group_id)

    async def _discard_if_removed(self, group_id: GroupId) -> None:
        if self._machine.table.is_removed(group_id, self._node_id):
            self._orphans.discard(group_id)
            if not self._is_table_proved():
                self._undiscarded[group_id] = trio.current_time() + UNPROVED_RETRY_S
            elif group_id not in self._discarding:
                await self._discard(group_id)
        elif group_id not in self._orphans:
            self._orphans.add(group_id)
            if self._machine.has_table:
                log.warning(
                    "group %s is not assigned to this node and was not deleted; its data is kept: restore the store "
                    "from a backup if it lacks a stream, or remove what is of no use",
                    group_id,
                )

    async def _discard(self, group_id: GroupId) -> None:
        ended = self._discarding[group_id] = trio.Event()
        self._undiscarded.pop(group_id, None)
        try:
            await self._host.discard(group_id)
        except OSError as error:
            log.error("group %s was deleted, and its data cannot be: %s", group_id, error)  # noqa: TRY400
            self._undiscarded[group_id] = trio.current_time() + RETRY_S
        finally:
            del self._discarding[group_id]
            ended.set()
