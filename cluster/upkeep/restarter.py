"""Starts replicas again that their disk has stopped: damage, a full disk, a failed write.

A group that fails has left its members at once: it neither leads nor votes, and /healthz says why. The sequence then is
the same for every cause: the replica is ended, its log opened again as at a start of the server (after a failed write
with everything read from the device), repaired from the other members where it is damaged (raft/recovery/repair.py),
and the replica started over it. reopening.py says when. While that goes on the other members serve the stream.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from jetraft.cluster.upkeep.reopening import Reopening
from jetraft.raft.recovery.swap import Swap
from jetraft.store.model.clock import rest_s, tick_s
from jetraft.store.model.events import REPLICA_FAILED, REPLICA_RESUMED
from jetraft.store.port import StoreCorrupt, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jetraft.raft.group import Group
    from jetraft.raft.recovery.repair import Repairs
    from jetraft.store.disk.space import SpaceWatch
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5  # and longer with many groups: see rest_s


class Reopener(Protocol):
    """The part that ends and starts groups: `ClusterNode`, for the meta group and for replicas."""

    def __call__(self, swap: Swap) -> Awaitable[None]:
        """End the group, start it over the other log: see raft/recovery/swap.py. Raises StoreError or OSError."""


@attrs.frozen(kw_only=True, slots=True)
class RestarterStatistics:
    """A snapshot of the figures."""

    reopened: int
    failed: int
    at_work: int


class Restarter:
    """See the module. `groups` gives the groups of this node, the meta group among them."""

    def __init__(  # noqa: PLR0913  (what it watches, and who ends and starts)
        self,
        *,
        node_id: NodeId,
        clock: Clock,
        groups: Callable[[], Sequence[Group]],
        repairs: Repairs,
        reopen: Reopener,
        space: SpaceWatch,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._groups = groups
        self._repairs = repairs
        self._reopen = reopen
        self._space = space
        self._reopening: Reopening[tuple[str, int]] = Reopening()
        self._at_work: set[tuple[str, int]] = set()
        self._reopened = self._failed = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                began_ns = self._clock.mono_ns()
                self._look(nursery)
                rest = rest_s(LOOK_S, self._clock.mono_ns() - began_ns)
                await trio.sleep_until(tick_s(trio.current_time(), rest))

    def statistics(self) -> RestarterStatistics:
        """Figures for monitoring and tests."""
        return RestarterStatistics(reopened=self._reopened, failed=self._failed, at_work=len(self._at_work))

    def _look(self, nursery: trio.Nursery) -> None:
        now_ns = self._clock.mono_ns()
        for group in self._groups():
            if group.failed is None:
                if group.log.is_starved:
                    group.log.submit()
                continue
            key = group.group_id, group.incarnation
            if isinstance(group.failed, OSError | StoreCorrupt) and self._is_due(key, group.failed, now_ns):
                self._at_work.add(key)
                nursery.start_soon(self._repair, key, group)

    def _is_due(self, key: tuple[str, int], error: Exception, now_ns: int) -> bool:
        has_room = not self._space.is_exhausted(now_ns)  # enough to go on with; messages wait for more
        return key not in self._at_work and self._reopening.is_due(key, error, now_ns, has_room=has_room)

    async def _repair(self, key: tuple[str, int], group: Group) -> None:
        others = [node for node in group.members if node != self._node_id]
        REPLICA_FAILED.log(group=group.group_id, error=str(group.failed))
        try:
            carry_out = partial(self._repairs.reopen, group.log, others)
            await self._reopen(Swap(group, is_wanted=lambda: group.failed is not None, carry_out=carry_out))
            self._reopened += 1
            REPLICA_RESUMED.log(group=group.group_id)
        except (StoreError, OSError) as error:
            self._failed += 1
            log.warning("%s: %s", group.group_id, error)
        finally:
            self._at_work.discard(key)
