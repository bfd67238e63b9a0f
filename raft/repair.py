"""Gets damaged entries of a log back from the other members of its group.

A member whose log has faulty entries takes no part: it has no group, so it neither leads nor votes, and none of its
silence can let a candidate win that lacks what only this member and a dead one had (Protocol-Aware Recovery, FAST'18).
It asks the others for the entries, and takes those that must be the ones it has lost: raft/repair_rules.py compares.

What nobody has is one of four things. Applied here: the log begins behind it, and one member that has trimmed it is
enough to know. Trimmed elsewhere and not applied here: nothing but a snapshot brings this member up to date
(`OvertakenError`; a no-op in its place would let the replicas differ: seeds forget 224, forget-five 206 and 246). Never
had by a majority: it was not committed, the end of this log is given up, and the group admits this member again. Else
it may have been committed and acknowledged, and is lost for ever: an entry without messages takes its place, under the
same (index, term).

No member decides that last one alone, nor from answers of different moments, for an append with the true entry may
still be on its way to whoever said no. Once all have said it, each is asked again under a *fence*: a term above
everybody's, which it promises, durably, before it repeats its no. No leader of an earlier term is heard any more, none
of a later one has the entry: so nobody ever gets it, and whoever decides, now or later, decides the same (the promise
is that of Paxos' first phase). Silence is no answer: then the member goes on waiting.

What this module asks is in raft/repair_wire.py.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.raft.repair_inquiry import Fence, Findings, Inquiry, OvertakenError
from jetraft.raft.repair_pacing import Silence
from jetraft.raft.repair_wire import answer_of, unpack_request
from jetraft.raft.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store._frame import parse_header
from jetraft.store.block_cache import BlockCache
from jetraft.store.format import Identity
from jetraft.store.io import run_blocking
from jetraft.store.keyring import Secrets
from jetraft.store.ledger import Ledger
from jetraft.store.log import FileLog
from jetraft.store.log_open import mend, open_log
from jetraft.store.log_start import LogOptions
from jetraft.store.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import GroupLog, HardState, StoreCorrupt, StoreError, StoreFailed, StoreMisplaced
from jetraft.store.recovery import RecoveryMode

if TYPE_CHECKING:
    from jetraft.raft.catchup import CallLinks
    from jetraft.raft.manager import Manager

log_ = logging.getLogger(__name__)

__all__ = ["METHOD", "EntriesLostError", "OvertakenError", "RepairPendingError", "RepairStatistics", "Repairs"]

METHOD: Final = "raft.repair"
CALL_TIMEOUT_S: Final = 2.0


class RepairPendingError(StoreError):
    """Damaged entries could not be had from anybody now; ask again later."""


class EntriesLostError(StoreCorrupt):
    """No member has the damaged entries, in a group that must not go on without them."""


@attrs.frozen(kw_only=True, slots=True)
class RepairStatistics:
    """A snapshot of the figures."""

    logs_waiting: int
    entries_repaired: int
    entries_lost: int
    frames_served: int


class Repairs:
    """Serves frames to members that miss them, and mends this node's logs before their groups start."""

    def __init__(
        self,
        manager: "Manager",
        links: "CallLinks | None",
        *,
        secrets: Secrets | None = None,
        room_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._manager = manager
        self._links = links
        self._options = LogOptions(mode=RecoveryMode.SALVAGE, secrets=secrets, room_bytes=room_bytes)
        self._waiting: dict[tuple[GroupId, int], FileLog] = {}  # open, damaged, without a group
        self._distrusted: set[tuple[GroupId, int]] = set()  # a write to them has failed in this process
        self._whole: set[tuple[GroupId, int]] = set()  # groups that do not go on without what is lost
        self._fences: dict[tuple[GroupId, int], Fence] = {}
        self._silence: Silence[tuple[GroupId, int]] = Silence()
        self._repaired = self._lost = self._served = 0
        self.on_heard: list[Callable[[GroupId], None]] = []  # a member that a waiting log asked in vain is there now
        manager.on_stray = self._on_word
        if links is not None:
            links.serve(METHOD, self._serve)

    def statistics(self) -> RepairStatistics:
        """Figures for monitoring and tests."""
        return RepairStatistics(
            logs_waiting=len(self._waiting),
            entries_repaired=self._repaired,
            entries_lost=self._lost,
            frames_served=self._served,
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
        log is closed then. `accept_lost_hard_state`: the only voter of a group has nobody whom it could contradict.
        `may_lose`: the group goes on without entries that no member has; else EntriesLostError is raised, from now on
        also by `reopen`.
        Raises what `open_log` raises, and RepairPendingError: call again after a while.
        """
        key = identity.group_id, identity.incarnation
        (self._whole.discard if may_lose else self._whole.add)(key)
        log = self._waiting.get(key)
        if log is None:
            await until_left(ledger, key)
            await ledger.settle()
            options = attrs.evolve(
                self._options,
                distrust_cache=key in self._distrusted,
                accept_lost_hard_state=accept_lost_hard_state,
            )
            log = await run_blocking(partial(open_log, ledger, path, identity, cache, options))
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
        return await self.repair(log, others) if log.damaged else log

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
        await log.place.ledger.settle()
        opened = await run_blocking(log.reopen if log.failed is None else log.reopen_cold)
        return await self._sound(opened, others)

    def distrust(self, key: tuple[GroupId, int]) -> None:
        """A write to the group's log has failed: what is opened from now on is read from the device."""
        self._distrusted.add(key)

    def forget(self, group_id: GroupId) -> None:
        """The group is deleted: its log waits no longer."""
        for key in [key for key in self._waiting if key[0] == group_id]:
            self._waiting.pop(key).close()
            self._fences.pop(key, None)
            self._silence.forget(key)

    async def repair(self, log: FileLog, others: Sequence[NodeId]) -> FileLog:
        """The log without faulty entries, opened anew when it was mended; `others` are the group's other members.

        Raises RepairPendingError when an entry may still be had from a member that did not answer: the log then stays
        open here, also to serve others, until the next try; or when there is more damage than the opening found: then
        the next try opens it anew. Raises OvertakenError; the log is closed then.
        """
        if others and any(item.end_lost for item in log.damaged):
            log.close()
            raise OvertakenError(f"{log.place.group}: the end of the log is gone, and with it what it was")
        key = log.identity.group_id, log.identity.incarnation
        self._waiting[key] = log
        self._silence.begin(key)
        try:
            return await self._repair(key, log, others)
        except (OvertakenError, EntriesLostError):
            self._end_waiting(key)
            raise
        except (StoreCorrupt, StoreMisplaced, StoreFailed) as error:
            self._end_waiting(key)
            raise RepairPendingError(str(error)) from error
        finally:
            if key not in self._waiting:
                self._fences.pop(key, None)
                self._silence.forget(key)

    def _end_waiting(self, key: tuple[GroupId, int]) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.close()

    async def _repair(self, key: tuple[GroupId, int], log: FileLog, others: Sequence[NodeId]) -> FileLog:
        covered_index = _covered_index(log)
        fence = self._fences.get(key)
        inquiry = Inquiry(log, others, partial(self._call, key), covered_index=covered_index, fence=fence)
        found = await inquiry.run()
        if self._waiting.get(key) is not log:  # the group was deleted, or somebody else went on, while this one asked
            raise RepairPendingError(f"{log.place.group}: its log has changed")
        if log.is_busy:  # what it has promised to others must be known to the next opening
            raise RepairPendingError(f"{log.place.group}: a promise is on its way to the disk")
        wanted = inquiry.decide()
        if wanted is None:
            self._fences.pop(key, None)
        else:
            self._fences[key] = wanted
        if found.lost and key in self._whole:
            raise EntriesLostError(f"{log.place.group}: entries {found.lost} are damaged, and no other member has them")
        if found.lost or found.behind:
            await _salvage(log, others)
        if gone := [*found.lost, *found.unreadable]:
            log_.error("%s: entries %s are damaged on every member and lost", log.place.group, gone)
            self._lost += len(gone)
        log = await self._mended(key, log, found, others)
        if settled := found.settled(log.faulty):
            log.give_up(settled, found.frames)
        if log.faulty:
            raise RepairPendingError(f"{log.place.group}: damaged entries wait for another member: {log.faulty}")
        return self._waiting.pop(key)

    async def _mended(
        self, key: tuple[GroupId, int], log: FileLog, found: Findings, others: Sequence[NodeId]
    ) -> FileLog:
        """The log opened anew with what came back, and with what stands for lost entries, where that is news."""
        stand_ins = {index: log.substitute(index) for index in sorted(found.lost)}
        is_news = found.frames.keys() > log.returned.keys() or any(item.head_damaged for item in log.damaged)
        if not is_news and not (stand_ins and others):
            return log
        frames = found.frames | stand_ins
        self._repaired += len(found.frames) - len(log.returned)
        del self._waiting[key]
        log = self._waiting[key] = await run_blocking(partial(mend, log, frames))
        log_.info("%s: damaged entries are repaired: %s", log.place.group, sorted(found.frames))
        await _salvage(log, others)
        for index, frame in sorted(frames.items()):
            log.know(index, parse_header(frame).term)
        log.note_lost(found.lost)
        return log

    # Asking.

    async def _call(self, key: tuple[GroupId, int], node: NodeId, payload: bytes) -> bytes | None:
        """What a node answers; None when it does not. An answer that cannot be understood is one."""
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
            for callback in self.on_heard:
                callback(group_id)

    # Serving.

    async def _serve(self, sender: NodeId, payload: bytes) -> bytes:
        """See `answer`. Raises RemoteCallError."""
        await trio.lowlevel.checkpoint()
        return self.answer(sender, payload)

    def answer(self, sender: NodeId, payload: bytes) -> bytes:
        """What a log of this node has, from its group or waiting itself. Raises RemoteCallError.

        A no under a fence leaves with the term that is durable: where the promise is still on its way to the disk, the
        asker sees that, and asks again.
        """
        request = unpack_request(payload)
        self._on_word(sender, request.group_id, request.incarnation)
        group = self._manager.groups.get(request.group_id)
        if group is not None and group.incarnation == request.incarnation:
            try:
                found = answer_of(group.log, request, commit_index=group.commit_index, is_voter=group.is_voter)
            except (StoreCorrupt, OSError) as error:
                group.distrust(error)
                raise RemoteCallError(f"{request.group_id}: {error}") from error
            if not found.frames and group.failed is not None:
                raise RemoteCallError(f"{request.group_id} has failed here: {group.failed}")
            term = group.promise(0 if found.frames else request.fence_term)
        else:
            log = self._waiting.get((request.group_id, request.incarnation))
            if log is None:
                raise RemoteCallError(f"{request.group_id} is not open here")
            try:
                commit_index = log.statistics().checkpoint_index
                found = answer_of(log, request, commit_index=commit_index, is_voter=False)
            except (StoreCorrupt, OSError) as error:
                raise RemoteCallError(f"{request.group_id}: {error}") from error
            term = _promise(log, 0 if found.frames else request.fence_term)
        self._served += len(found.frames)
        return attrs.evolve(found, term=term).pack()


def _promise(log: FileLog, term: int) -> int:
    """Let a log that waits hear no leader below a term; returns the term that is durable, 0 while that is not sure."""
    if log.failed is not None:
        return 0
    if term > log.hard_state.term:
        log.set_hard_state(HardState(term=term, vote=None))
    log.submit()
    return log.hard_state.term if log.durable_token >= log.hard_state_token else 0


def _covered_index(log: FileLog) -> int:
    """Up to here the own checkpoint tells what the entries did; it names the last of them. Raises OvertakenError."""
    try:
        checkpoint = log.load_checkpoint()
    except (StoreCorrupt, StoreMisplaced) as error:
        raise OvertakenError(f"{log.place.group}: no checkpoint can be read: {error}") from error
    if checkpoint is None:
        return 0
    try:
        log.know(checkpoint.index, checkpoint.term)
    except ValueError as error:
        raise OvertakenError(f"{log.place.group}: its checkpoint contradicts its entries: {error}") from error
    return checkpoint.index


def _without_bad_checkpoints(log: FileLog) -> None:
    """Have the only member's log replayed from its first entry when no checkpoint can be read.

    Raises StoreCorrupt when those entries were dropped: then nobody knows what they did. The log is closed then.
    """
    try:
        log.load_checkpoint()
    except (StoreCorrupt, StoreMisplaced) as error:
        if not log.forget_checkpoints():
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


async def _salvage(log: FileLog, others: Sequence[NodeId]) -> None:
    """Keep the sound messages of damaged entries, if there is nobody who may have the entries as they were."""
    if others or not log.faulty:
        return
    kept = await run_blocking(log.salvage)
    if kept:
        log_.warning("%s: of entries %s only the damaged messages are lost", log.place.group, kept)


async def until_settled(log: FileLog) -> None:
    """Wait until everything is on disk, or the log has failed and nothing of it is on its way any more.

    Nobody else waits for this log. Until then it must not be opened again: the ledger may still learn of its changes.
    """
    moved = trio.Event()
    log.on_durable = lambda: moved.set()  # noqa: PLW0108  (the event is another one each time)
    while log.is_busy or (log.failed is None and log.durable_token < log.token()):
        moved = trio.Event()
        log.submit()
        if log.is_busy:
            await moved.wait()
    log.on_durable = None


async def until_left(ledger: Ledger, key: tuple[GroupId, int]) -> None:
    """Wait until nothing of the log that was open before is on its way: it would land in the next one's blocks.

    That one is closed. It is only known while the writer still has something of it.
    """
    log = ledger.logs.get(key)
    if log is None:
        return
    while log.is_busy:
        moved = trio.Event()
        log.on_durable = moved.set
        await moved.wait()
