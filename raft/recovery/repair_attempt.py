"""One attempt to repair a damaged log with what the other members say, from its first question to its outcome.

Each step that asks others, or works on files, gives way to other tasks: what was decided before it is checked again
after it (`_check_unchanged`). The log that is damaged stays in `PendingRepairs.waiting` until it is repaired, also to
serve other members.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs

from jetraft.raft.recovery.repair_end import End, EndInquiry
from jetraft.raft.recovery.repair_inquiry import Fence, Findings, Inquiry, OvertakenError
from jetraft.store.disk.io import run_blocking
from jetraft.store.frames._frame import parse_header
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import repair
from jetraft.store.model.events import ENTRIES_LOST, ENTRIES_REPAIRED, listed
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import StoreCorrupt, StoreError, StoreMisplaced

log_ = logging.getLogger(__name__)

LogKey = tuple[GroupId, int]  # group and incarnation


class RepairPendingError(StoreError):
    """No member could give the damaged entries now; ask again later."""


class EntriesLostError(StoreCorrupt):
    """No member has the damaged entries, in a group that must not go on without them."""


@attrs.define(kw_only=True, slots=True)
class PendingRepairs:
    """The damaged logs of this node, and what is remembered of them from one attempt to the next."""

    waiting: dict[LogKey, FileLog] = attrs.Factory(dict)  # open, damaged, without a group
    whole: set[LogKey] = attrs.Factory(set)  # groups that do not go on without what is lost
    fences: dict[LogKey, Fence] = attrs.Factory(dict)
    entries_repaired: int = 0
    entries_lost: int = 0

    def end(self, key: LogKey) -> None:
        """Close the log; what follows opens it again."""
        waiting = self.waiting.pop(key, None)
        if waiting is not None:
            waiting.close()


class RepairAttempt:
    """See the module. `call(node, payload)` returns a member's answer, None where there is none."""

    def __init__(
        self,
        pending: PendingRepairs,
        log: FileLog,
        others: Sequence[NodeId],
        call: Callable[[NodeId, bytes], Awaitable[bytes | None]],
    ) -> None:
        self._pending = pending
        self._log = log
        self._key = log.identity.group_id, log.identity.incarnation
        self._others = others
        self._call = call

    async def run(self) -> FileLog:
        """The log without damaged entries, no longer waiting. Raises RepairPendingError, OvertakenError, StoreError."""
        pending, key, group = self._pending, self._key, self._log.place.group
        best = None
        if self._others and self._log.repair.is_end_unknown:
            best = await self._find_end()
            self._others = self._others if best in self._others else (*self._others, best)
        inquiry = Inquiry(
            self._log,
            self._others,
            self._call,
            covered_index=_covered_index(self._log),
            fence=pending.fences.get(key),
            best=best,
        )
        found = await inquiry.run()
        self._check_unchanged()
        wanted = inquiry.decide()
        if wanted is None:
            pending.fences.pop(key, None)
        else:
            pending.fences[key] = wanted
        if found.lost and key in pending.whole:
            raise EntriesLostError(f"{group}: entries {found.lost} are damaged, and no other member has them")
        if found.lost or found.behind:
            await self._salvage()
        if gone := [*found.lost, *found.unreadable]:
            ENTRIES_LOST.log(group=self._log.identity.group_id, entries=listed(gone))
            pending.entries_lost += len(gone)
        await self._rewrite(found)
        log = self._log
        if settled := found.settled(log.damaged_entries):
            log.repair.give_up(settled, found.frames)
        if log.damaged_entries:
            raise RepairPendingError(f"{group}: damaged entries wait for another member: {log.damaged_entries}")
        log.note_floor()
        log.forget_end()
        return pending.waiting.pop(key)

    def _check_unchanged(self) -> None:
        """After questions to others. Raises RepairPendingError."""
        if self._pending.waiting.get(self._key) is not self._log:  # the group was deleted, or another attempt went on
            raise RepairPendingError(f"{self._log.place.group}: its log has changed")
        if self._log.durability.is_busy:  # what it has promised to others must be known to the next opening
            raise RepairPendingError(f"{self._log.place.group}: a promise is on its way to the disk")

    async def _find_end(self) -> NodeId:
        """Count all entries that the log can have had, as damaged ones; returns whose log shows how many.

        Raises RepairPendingError.
        """
        log = self._log
        end: End | None = await EndInquiry(log, self._others, self._call).run()
        self._check_unchanged()
        if end is None:
            raise RepairPendingError(
                f"{log.place.group}: the end of the log is damaged, and too few members say how far it may have gone"
            )
        last_index = max(end.last_index, log.repair.end_known)
        if last_index != log.last_index:
            log_.warning("%s: the damaged end of the log may have gone up to %d", log.place.group, last_index)
            await self._open_again(partial(log.reopen, end_index=last_index), close=True)
        return end.best

    async def _open_again(self, opening: Callable[[], FileLog], *, close: bool) -> None:
        """Replace the log by the one that is opened. While it is open nowhere, no other task finds it waiting."""
        del self._pending.waiting[self._key]
        if close:
            self._log.close()
        self._log = self._pending.waiting[self._key] = await run_blocking(opening)

    async def _rewrite(self, found: Findings) -> None:
        """Open the log again with what came back, and with what replaces lost entries, if that is new."""
        log = self._log
        placeholders = {index: log.repair.substitute(index) for index in sorted(found.lost)}
        returned = log.repair.returned
        is_news = found.frames.keys() > returned.keys() or any(item.head_damaged for item in log.damaged_blocks)
        # What stands between entries is damaged, and all of them are sound.
        is_news |= bool(self._others) and any(not gap.entries for item in log.damaged_blocks for gap in item.gaps)
        # In a group of one placeholders alone are no reason to write: they stay in memory (see Damage.give_up).
        if not is_news and not (placeholders and self._others):
            return
        frames = found.frames | placeholders
        self._pending.entries_repaired += len(found.frames) - len(returned)
        await self._open_again(partial(repair, log, frames), close=False)
        ENTRIES_REPAIRED.log(group=log.identity.group_id, entries=listed(sorted(found.frames)))
        await self._salvage()
        for index, frame in sorted(frames.items()):
            self._log.repair.set_term(index, parse_header(frame).term)
        self._log.repair.note_lost(found.lost)

    async def _salvage(self) -> None:
        """Salvage the sound messages of damaged entries, if no other member may have the entries as they were."""
        if self._others or not self._log.damaged_entries:
            return
        indexes = await run_blocking(self._log.repair.salvage)
        if indexes:
            log_.warning("%s: of entries %s only the damaged messages are lost", self._log.place.group, indexes)


def _covered_index(log: FileLog) -> int:
    """Up to here this log's checkpoint holds what the entries did; it names the last of them. Raises OvertakenError."""
    try:
        checkpoint = log.load_checkpoint()
    except (StoreCorrupt, StoreMisplaced) as error:
        raise OvertakenError(f"{log.place.group}: no checkpoint can be read: {error}") from error
    if checkpoint is None:
        return 0
    try:
        log.repair.set_term(checkpoint.index, checkpoint.term)
    except ValueError as error:
        raise OvertakenError(f"{log.place.group}: its checkpoint contradicts its entries: {error}") from error
    return checkpoint.index
