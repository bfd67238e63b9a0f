"""Looks for bit rot in the logs of this node's groups, the meta group among them: one task reads their files.

store/log/scrub.py says which, and how fast. A group in whose log damage is found stops, and restarter.py has it
repaired. So there is one way to deal with damage, whatever finds it. A damaged checkpoint needs no repair while its
group runs: what it stands for is in memory, and another one takes its place.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from jetraft.store.disk.io import run_blocking
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.scrub import Scrub, Target, bytes_of, verify_twice
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.raft.group import Group
    from jetraft.store.disk.io import Disk
    from jetraft.store.log.scrub import ScrubStatistics
    from jetraft.store.model.clock import Clock

log_ = logging.getLogger(__name__)


class Scrubber:
    """See the module. `groups` gives the groups of this node."""

    def __init__(
        self, *, disk: Disk, clock: Clock, groups: Callable[[], Sequence[Group]], scrub: Scrub | None = None
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._groups = groups
        self._scrub = scrub or Scrub()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            logs = [group.log for group in self._groups() if group.failed is None]
            targets = [target for log in logs if isinstance(log, FileLog) for target in log.upkeep.scrub_targets()]
            target = self._scrub.next_target(targets)
            if target is None:
                await trio.sleep(self._scrub.idle_ns / NS_PER_S)
                continue
            await self._verify(target)
            await trio.sleep(self._scrub.rest_ns(target, bytes_of(targets)) / NS_PER_S)

    def statistics(self) -> ScrubStatistics:
        """Figures for monitoring and tests."""
        return self._scrub.statistics()

    async def _verify(self, target: Target) -> None:
        try:
            await run_blocking(partial(verify_twice, self._disk, target))
        except FileNotFoundError:
            self._scrub.note(target, damaged=False)  # trimmed meanwhile
        except StoreCorrupt as error:
            self._scrub.note(target, damaged=True)
            for group in self._groups():
                if group.group_id == target.identity.group_id and group.incarnation == target.identity.incarnation:
                    self._deal_with(group, target, error)
        else:
            self._scrub.note(target, damaged=False)

    def _deal_with(self, group: Group, target: Target, error: StoreCorrupt) -> None:
        """Have the group repaired, unless its log was cut or trimmed while the file was read."""
        log = group.log
        now = log.upkeep.scrub_targets() if isinstance(log, FileLog) else []
        if not any(each.path == target.path and each.last_index >= target.last_index for each in now):
            return
        if target.is_checkpoint:
            log_.error("%s: %s; another checkpoint is taken", group.group_id, error)
            group.renew_checkpoint()
        else:
            group.fail(error, self._clock.mono_ns())
