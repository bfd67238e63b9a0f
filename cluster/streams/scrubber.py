"""Looks for bit rot in the logs of this node's replicas, and has replicas repaired in which some was found.

One task reads blocks (store/scrub.py says which, and how fast), another looks for replicas that stopped because an
entry could not be read. Both end in the same way: the replica is ended, its log opened again as at a start of the
server, repaired from the other members (raft/repair.py), and the replica started over it. So there is one way to deal
with damage, whenever it is found. While that goes on the other members serve the stream.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from jetraft.store.io import run_blocking
from jetraft.store.log import FileLog
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.port import StoreCorrupt, StoreError
from jetraft.store.scrub import Scrub, Target, bytes_of, verify_twice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jetraft.raft.group import Group
    from jetraft.raft.repair import Repairs
    from jetraft.store.io import Disk
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import GroupId, NodeId
    from jetraft.store.port import GroupLog
    from jetraft.store.scrub import ScrubStatistics

log = logging.getLogger(__name__)

IDLE_S: Final = 60.0  # between rounds, and when there is nothing to read
LOOK_S: Final = 1.0  # how soon a replica that met damage is noticed


class Reopener(Protocol):
    """Who ends and starts replicas: `MetaBackend.reopen`."""

    def __call__(self, group_id: GroupId, swap: Callable[[], Awaitable[GroupLog]]) -> Awaitable[None]:
        """End the replica, await `swap()`, start it over the log that it returns. Raises StoreError or OSError."""


class Scrubber:
    """See the module. `groups` gives the groups of this node's replicas."""

    def __init__(  # noqa: PLR0913  (what it reads, and who repairs)
        self,
        *,
        node_id: NodeId,
        disk: Disk,
        clock: Clock,
        groups: Callable[[], Sequence[Group]],
        repairs: Repairs,
        reopen: Reopener,
        scrub: Scrub | None = None,
    ) -> None:
        self._node_id = node_id
        self._disk = disk
        self._clock = clock
        self._groups = groups
        self._repairs = repairs
        self._reopen = reopen
        self._scrub = scrub or Scrub()

    async def run(self) -> None:
        """Read and repair until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            nursery.start_soon(self._watch)

    def statistics(self) -> ScrubStatistics:
        """Figures for monitoring and tests."""
        return self._scrub.statistics()

    async def _read(self) -> None:
        while True:
            targets = self._targets()
            target = self._scrub.next_target(targets)
            if target is None:
                await trio.sleep(IDLE_S)
                continue
            await self._verify(target)
            await trio.sleep(self._scrub.rest_ns(target, bytes_of(targets)) / NS_PER_S)

    def _targets(self) -> list[Target]:
        logs = [group.log for group in self._groups() if group.failed is None]
        return [target for found in logs if isinstance(found, FileLog) for target in found.scrub_targets()]

    async def _verify(self, target: Target) -> None:
        try:
            await run_blocking(partial(verify_twice, self._disk, target))
        except FileNotFoundError:
            self._scrub.note(target, damaged=False)  # trimmed meanwhile
        except StoreCorrupt as error:
            self._scrub.note(target, damaged=True)
            for group in self._groups():
                if group.group_id == target.identity.group_id and group.incarnation == target.identity.incarnation:
                    group.fail(error, self._clock.mono_ns())
        else:
            self._scrub.note(target, damaged=False)

    async def _watch(self) -> None:
        while True:
            for group in self._groups():
                if isinstance(group.failed, StoreCorrupt):
                    await self._repair(group)
            await trio.sleep(LOOK_S)

    async def _repair(self, group: Group) -> None:
        others = [node for node in group.members if node != self._node_id]
        log.warning("%s: %s; the replica is opened again", group.group_id, group.failed)
        try:
            await self._reopen(group.group_id, partial(self._repairs.reopen, group.log, others))
        except (StoreError, OSError) as error:
            log.warning("%s: %s", group.group_id, error)
