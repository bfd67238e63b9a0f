"""Ends copies of what could not be used (store/ledger/quarantine.py) when they are of no use any more.

| Kept | Until |
|---|---|
| a log that was replaced from other members | its stream is not here any more; the replica is whole again; KEPT_NS |
| damaged bytes of a log that was repaired | the same, and a message of the stream is erased (at once, by the log) |
| a log that the only replica has lost | its stream is gone; KEPT_NS; its operator says so (`jetraft quarantine`) |

It looks at what is there with every sweep (sweeping.py), so no event has to announce anything. The directories of
groups are looked at when the process starts and once an hour: what is kept there comes about when a log is opened.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.disk.io import run_blocking
from jetraft.store.ledger import quarantine
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.store.ledger.ledger_records import GroupKey
    from jetraft.store.ledger.node_dir import NodeDir
    from jetraft.store.ledger.quarantine import KeptCopy
    from jetraft.store.model.clock import Clock

log = logging.getLogger(__name__)

DAY_NS: Final = 24 * 3600 * NS_PER_S
KEPT_NS: Final = 7 * DAY_NS  # time to look into what happened; operators are told in the log, and by a metric
GROUPS_LOOK_NS: Final = 3600 * NS_PER_S


@attrs.frozen(kw_only=True, slots=True)
class GroupHere:
    """The state of a group on this node now. `is_whole`: it runs here, undamaged, with all that is committed."""

    is_assigned: bool
    is_whole: bool = False
    has_others: bool = False


@attrs.frozen(kw_only=True, slots=True)
class QuarantineStatistics:
    """The copies that are kept now, as of the last look; and how much was removed in this process."""

    copies: int
    bytes: int
    removed: int


def why_superfluous(copy: KeptCopy, here: GroupHere, now_ns: int) -> str | None:
    """Why a copy is of no use, for the log; None while it is kept. `now_ns` is unix time."""
    if not here.is_assigned:
        return "its stream is not on this node any more"
    if here.is_whole and (here.has_others or not copy.is_log):
        return "the replica here is whole again"
    if copy.seen_ns and now_ns - copy.seen_ns >= KEPT_NS:
        return f"it was kept for {KEPT_NS // DAY_NS} days"
    return None


class Quarantine:
    """See the module. `state_of` says what a group is; it is asked when the meta group has confirmed the table."""

    def __init__(self, node_dir: NodeDir, *, clock: Clock, state_of: Callable[[GroupKey], GroupHere]) -> None:
        self._node_dir = node_dir
        self._clock = clock
        self._state_of = state_of
        self._groups_due_ns = 0  # mono
        self._in_groups: list[KeptCopy] = []
        self._kept: list[KeptCopy] = []
        self._removed = 0

    def statistics(self) -> QuarantineStatistics:
        """Return a snapshot."""
        kept = sum(copy.bytes for copy in self._kept)
        return QuarantineStatistics(copies=len(self._kept), bytes=kept, removed=self._removed)

    async def look(self) -> None:
        """Remove what is of no use any more. Raises OSError: the next look goes on."""
        found = await self._found()
        kept: list[KeptCopy] = []
        for copy in found:
            why = why_superfluous(copy, self._state_of(copy.group), self._clock.unix_ns())
            if why is None:
                kept.append(await run_blocking(partial(self._noted, copy)))
                continue
            await run_blocking(partial(quarantine.remove, self._node_dir.disk, copy))
            self._removed += 1
            log.info("group %s: %s (%d bytes) is removed: %s", copy.group[0], copy.path, copy.bytes, why)
        self._in_groups = [copy for copy in kept if not self._is_aside(copy)]
        self._tell(kept)
        self._kept = kept

    async def _found(self) -> list[KeptCopy]:
        disk, root = self._node_dir.disk, self._node_dir.root
        if self._clock.mono_ns() < self._groups_due_ns:
            aside = await run_blocking(partial(quarantine.copies_aside, disk, root))
            return aside + await run_blocking(partial(quarantine.still_there, disk, self._in_groups))
        found = await run_blocking(partial(quarantine.copies, disk, root))
        self._groups_due_ns = self._clock.mono_ns() + GROUPS_LOOK_NS
        return found

    def _is_aside(self, copy: KeptCopy) -> bool:
        return copy.path.parent == self._node_dir.root / quarantine.ASIDE_NAME

    def _noted(self, copy: KeptCopy) -> KeptCopy:
        return quarantine.note_seen(self._node_dir.disk, copy, self._clock.unix_ns())

    def _tell(self, kept: list[KeptCopy]) -> None:
        known = {copy.path for copy in self._kept}
        for copy in kept:
            if copy.path not in known:
                log.warning(
                    "group %s: %d bytes of what could not be used are kept in %s for at most %d days",
                    copy.group[0],
                    copy.bytes,
                    copy.path,
                    KEPT_NS // DAY_NS,
                )
