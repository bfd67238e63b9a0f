"""Gets damaged entries of a log back from the other members of its group.

A member whose log has damaged entries takes no part: it has no group, so it neither leads nor votes, and none of its
silence can let a candidate win that lacks what only this member and a dead one had (Protocol-Aware Recovery, FAST'18).
It asks the others for the entries, and takes those that must be the ones it has lost: raft/recovery/repair_rules.py
compares.

An entry that no member has is one of four things. Applied here: the log begins behind it, and one member that has
trimmed it is enough to know. Trimmed elsewhere and not applied here: nothing but a snapshot brings this member up to
date (`OvertakenError`; a no-op in its place would let the replicas differ: seeds forget 224, forget-five 206 and 246).
Never had by a majority: it was not committed, the end of this log is given up, and the group admits this member again.
Else it may have been committed and acknowledged, and is permanently lost: an entry without messages takes its place,
under the same (index, term).

No member decides that last one alone, nor from answers of different moments, for an append with the true entry may
still be on its way to a member that said no. Once all have said it, each is asked again under a *fence*: a term above
those of all members, which it promises, durably, before it repeats its no. No leader of an earlier term is heard any
more, none of a later one has the entry: so no member ever gets it, and every member that decides, now or later, decides
the same (the promise is that of Paxos' first phase). Silence is no answer: then the member goes on waiting.

An end that is damaged may have been longer than anything here says: raft/recovery/repair_end.py asks for that first.

This module opens logs and retains those that wait; one attempt to repair is raft/recovery/repair_attempt.py. The
questions are in raft/recovery/repair_wire.py, the answers come from raft/recovery/repair_serving.py.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.raft.recovery.repair_attempt import (
    EntriesLostError,
    LogKey,
    PendingRepairs,
    RepairAttempt,
    RepairPendingError,
)
from jetraft.raft.recovery.repair_inquiry import OvertakenError
from jetraft.raft.recovery.repair_pacing import Silence
from jetraft.raft.recovery.repair_serving import RepairServing
from jetraft.raft.recovery.repair_wire import unpack_request
from jetraft.raft.recovery.settling import until_left, until_settled
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import run_blocking
from jetraft.store.frames.format import Identity
from jetraft.store.frames.keyring import Secrets
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import is_new, open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import BEGUN_BYTES_MAX, LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import GroupLog, StoreCorrupt, StoreFailed, StoreMisplaced

if TYPE_CHECKING:
    from jetraft.raft.manager import Manager
    from jetraft.raft.recovery.call_links import CallLinks

log_ = logging.getLogger(__name__)

__all__ = ["METHOD", "EntriesLostError", "OvertakenError", "RepairPendingError", "RepairStatistics", "Repairs"]

METHOD: Final = "raft.repair"
CALL_TIMEOUT_S: Final = 2.0


@attrs.frozen(kw_only=True, slots=True)
class RepairStatistics:
    """A snapshot of the figures."""

    logs_waiting: int
    entries_repaired: int
    entries_lost: int
    frames_served: int


class Repairs:
    """Serves frames to members that miss them, and repairs this node's logs before their groups start."""

    def __init__(  # noqa: PLR0913  (what repairs rest on)
        self,
        manager: "Manager",
        links: "CallLinks | None",
        *,
        secrets: Secrets | None = None,
        available_bytes: Callable[[], int] | None = None,
        begun_bytes_max: int = BEGUN_BYTES_MAX,
        on_heard: Callable[[GroupId], None] = lambda _group_id: None,
        has_forgotten: Callable[[LogKey], bool] = lambda _key: False,
    ) -> None:
        """`on_heard` tells of a group whose log waits: a member that was asked in vain is there now.

        `has_forgotten` says of which groups this node has nothing any more that counts, and asks to be admitted.
        `begun_bytes_max` is how much of a log the ledger may have (decision 116).
        """
        self._manager = manager
        self._links = links
        self._options = LogOptions(
            mode=RecoveryMode.SALVAGE,
            secrets=secrets,
            available_bytes=available_bytes,
            begun_bytes_max=begun_bytes_max,
        )
        self._pending = PendingRepairs()
        self._distrusted: set[LogKey] = set()  # a write to them has failed in this process
        self._silence: Silence[LogKey] = Silence()
        self._serving = RepairServing(manager, self._pending.waiting, has_forgotten=has_forgotten)
        self._on_heard = on_heard
        manager.serve_strays(self._on_word)
        if links is not None:
            links.serve(METHOD, self._serve)

    def statistics(self) -> RepairStatistics:
        """Figures for monitoring and tests."""
        return RepairStatistics(
            logs_waiting=len(self._pending.waiting),
            entries_repaired=self._pending.entries_repaired,
            entries_lost=self._pending.entries_lost,
            frames_served=self._serving.frames_served,
        )

    async def open(  # noqa: PLR0913  (what a log is opened with)
        self,
        ledger: Ledger,
        path: Path,
        identity: Identity,
        cache: BlockCache,
        others: "Sequence[NodeId] | Callable[[FileLog], Sequence[NodeId]]",
        *,
        accept_lost_hard_state: bool = False,
        may_lose: bool = True,
    ) -> FileLog:
        """Open a group's log, and repair it when it is damaged; `others` are the group's other members.

        Where only the opened log can say who they are, `others` is called with it; what it raises is raised, and the
        log is closed then. `accept_lost_hard_state`: the only voter of a group cannot contradict another one.
        `may_lose`: the group goes on without entries that no member has; else EntriesLostError is raised, from now on
        also by `reopen`.
        Raises what `open_log` raises, and RepairPendingError: call again after a while.
        """
        key = identity.group_id, identity.incarnation
        whole = self._pending.whole
        (whole.discard if may_lose else whole.add)(key)
        log = self._pending.waiting.get(key)
        if log is None:
            await until_left(ledger, key)
            options = attrs.evolve(
                self._options,
                distrust_cache=key in self._distrusted,
                accept_lost_hard_state=accept_lost_hard_state,
            )
            opening = partial(open_log, ledger, path, identity, cache, options)
            if is_new(ledger, path, identity, options):  # a thread costs several times that
                log = opening()  # and no record of the group is on its way: a log that could write one has left
            else:
                await ledger.complete_pending()
                log = await run_blocking(opening)
        try:
            members = others(log) if callable(others) else others
        except BaseException:
            self.forget(identity.group_id)
            log.close()
            raise
        return await self._sound(log, members)

    async def _sound(self, log: FileLog, others: Sequence[NodeId]) -> FileLog:
        if not others:
            _without_bad_checkpoints(log)
        return await self.repair(log, others) if log.damaged_blocks else log

    async def reopen(self, log: GroupLog, others: Sequence[NodeId]) -> GroupLog:
        """Open a log again in which damage was found, or a write failed, while its group ran; the group has stopped.

        What waits for the disk is written first, as far as the log still takes writes. After a failed one everything is
        read from the device, by this opening and by those after it. Raises what `open` raises.
        A log in memory comes back empty, with nothing promised: who starts it has it admitted first.
        """
        if isinstance(log, MemLog):
            log.close()
            return MemLog()
        assert isinstance(log, FileLog)
        await until_settled(log)
        log.close()
        if log.failed is not None:
            self._distrusted.add((log.identity.group_id, log.identity.incarnation))
        await log.place.ledger.complete_pending()
        opened = await run_blocking(log.reopen if log.failed is None else log.reopen_cold)
        return await self._sound(opened, others)

    def distrust(self, key: LogKey) -> None:
        """A write to the group's log has failed: what is opened from now on is read from the device."""
        self._distrusted.add(key)

    def forget(self, group_id: GroupId) -> None:
        """The group is deleted: its log waits no longer."""
        for key in [key for key in self._pending.waiting if key[0] == group_id]:
            self._pending.end(key)
            self._pending.fences.pop(key, None)
            self._silence.forget(key)

    async def repair(self, log: FileLog, others: Sequence[NodeId]) -> FileLog:
        """The log without damaged entries, opened again when it was repaired; `others` are the group's other members.

        Raises RepairPendingError when an entry may still be had from a member that did not answer: the log then stays
        open here, also to serve others, until the next try; or when there is more damage than the opening found: then
        the next try opens it again. Raises OvertakenError; the log is closed then.
        """
        if others and any(item.end_lost for item in log.damaged_blocks):
            log.close()
            raise OvertakenError(f"{log.place.group}: the end of the log is gone, and with it what it was")
        key = log.identity.group_id, log.identity.incarnation
        self._pending.waiting[key] = log
        self._silence.begin(key)
        try:
            return await RepairAttempt(self._pending, log, others, partial(self._call, key)).run()
        except (OvertakenError, EntriesLostError):
            self._pending.end(key)
            raise
        except (StoreCorrupt, StoreMisplaced, StoreFailed) as error:
            # There is more damage than the opening found: only another opening can say how much.
            self._pending.end(key)
            raise RepairPendingError(str(error)) from error
        finally:
            if key not in self._pending.waiting:  # else the next attempt goes on with the fence of this one
                self._pending.fences.pop(key, None)
                self._silence.forget(key)

    # Asking.

    async def _call(self, key: LogKey, node: NodeId, payload: bytes) -> bytes | None:
        """The answer of a node; None when it does not. An answer that cannot be understood is one."""
        assert self._links is not None
        answer = None
        try:
            answer = await self._links.call(node, METHOD, payload, timeout_s=CALL_TIMEOUT_S, bulk=True)
        except (PeerUnavailableError, CallTimeoutError, RemoteCallError) as error:
            log_.info("%s: %s did not answer: %s", key[0], node, error)
        self._silence.note(key, node, answers=answer is not None)
        return answer

    def _on_word(self, sender: NodeId, group_id: GroupId, incarnation: int) -> None:
        """A member says something about a group that this node may wait for: it has its log open by now."""
        if self._silence.ends((group_id, incarnation), sender):
            self._on_heard(group_id)

    # Serving.

    async def _serve(self, sender: NodeId, payload: bytes) -> bytes:
        """See `answer`. Raises RemoteCallError."""
        await trio.lowlevel.checkpoint()
        return self.answer(sender, payload)

    def answer(self, sender: NodeId, payload: bytes) -> bytes:
        """The entries of a log of this node, from its group or waiting itself. Raises RemoteCallError."""
        request = unpack_request(payload)
        self._on_word(sender, request.group_id, request.incarnation)
        return self._serving.answer(request).pack()


def _without_bad_checkpoints(log: FileLog) -> None:
    """Have the only member's log replayed from its first entry when no checkpoint can be read.

    Raises StoreCorrupt when those entries were dropped: then what they did is unknown. The log is closed then.
    """
    try:
        log.load_checkpoint()
    except (StoreCorrupt, StoreMisplaced) as error:
        if not log.repair.forget_checkpoints():
            log.close()
            begins = log.first_index - 1
            raise StoreCorrupt(
                f"no checkpoint can be read, and the entries up to {begins} that it stood for are gone: {error}; "
                "restore it from a backup"
            ) from error
        log_.error(  # noqa: TRY400  (nothing failed in this program)
            "%s: no checkpoint can be read, so all %d entries are replayed; nothing is lost by that, but the disk has "
            "lost bytes: look at it, and run `jetraft verify`: %s",
            log.place.group,
            log.last_index,
            error,
        )
