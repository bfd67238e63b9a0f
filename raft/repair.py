"""Gets damaged entries of a log back from the other members of its group.

A member whose log has faulty entries takes no part: it has no group, so it neither leads nor votes, and none of its
silence can let a candidate win that lacks what only this member and a dead one had (Protocol-Aware Recovery, FAST'18).
It asks the others for the frames. Frames are the same bytes on every member, so a frame that holds and stands between
the same neighbours is the very one that was lost (log matching): the answer tells the term before the first entry and
after the last one. Where nothing follows, an entry counts that the other knows as committed; and one of this member's
present term, as if its leader had sent it once more: where two of three have lost the end, nobody can be elected and
nothing is known as committed until they have it back (disk fault flipped-bits-everywhere, seed 903).

An entry that every other member says not to have is lost: it cannot be got back, and the log goes on without it
(`FileLog.give_up`). Silence is no answer: then the member goes on waiting. An entry that others have trimmed is a third
thing: it was committed, and is part of their state. When this member's own checkpoint covers it too, the log begins
behind it, and one such answer is enough (seed forget 16: the third member could not answer before these two had a
leader); when not, nothing but a snapshot can bring this member up to date, and it says so (`OvertakenError`): a no-op
in its place would let the replicas differ (seeds forget 224, forget-five 206 and 246 of the simulator). So it does when
what follows the damage here was overruled by another leader: its own leader is gone, nobody else can say what was there
(seed forget-five 255).

    request (msgpack): group, incarnation, first, last
    answer (msgpack): [frames from `first` on, term before `first`, term after the last frame, committed index,
                       first index of the log]
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgpack
import trio

from jetraft.raft.repair_pacing import Silence
from jetraft.raft.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.raft.wire import RemoteProtocolError
from jetraft.store import trimmed
from jetraft.store._frame import parse_header, verify
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
from jetraft.store.port import GroupLog, StoreCorrupt, StoreError, StoreMisplaced
from jetraft.store.recovery import RecoveryMode
from jetraft.store.stand_in import stands_in

if TYPE_CHECKING:
    from jetraft.raft.catchup import CallLinks
    from jetraft.raft.manager import Manager

log_ = logging.getLogger(__name__)

METHOD: Final = "raft.repair"
ANSWER_BYTES_MAX: Final = 4 << 20  # at least one frame; a damaged block takes a few calls
CALL_TIMEOUT_S: Final = 2.0


class RepairPendingError(StoreError):
    """Damaged entries could not be had from anybody now; ask again later."""


class OvertakenError(StoreError):
    """The group has gone on without this log: nothing but a snapshot can bring the member up to date.

    Damaged entries that it has not applied are trimmed elsewhere; or what follows them here was never committed, and
    what they were nobody can tell.
    """


@attrs.frozen(kw_only=True, slots=True)
class RepairStatistics:
    """A snapshot of the figures."""

    logs_waiting: int
    entries_repaired: int
    entries_lost: int
    frames_served: int


@attrs.frozen(kw_only=True, slots=True)
class _Answer:
    """What another member has from an entry on."""

    frames: tuple[bytes, ...]
    term_before: int | None
    term_after: int | None
    commit_index: int
    first_index: int
    is_thinned: bool  # it has the first entry asked for, without the messages that are gone


@attrs.define(slots=True)
class _Findings:
    """What became of faulty entries; what is in none of these may still be had later."""

    covered_index: int  # up to here this member's own checkpoint tells what the entries did
    frames: dict[int, bytes] = attrs.Factory(dict)
    lost: list[int] = attrs.Factory(list)  # nobody has them
    overtaken: list[int] = attrs.Factory(list)  # nobody has them, and somebody has trimmed them
    thinned: list[int] = attrs.Factory(list)  # nobody has them whole, and somebody has what lives of them

    def settled(self, faulty: trimmed.Ranges) -> trimmed.Ranges:
        """The faulty entries about which everything is known."""
        known = {*self.frames, *self.lost, *self.overtaken}
        indexes = [index for first, last in faulty for index in range(first, last + 1)]
        return trimmed.merged((index, index) for index in indexes if index in known)


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
        others: Sequence[NodeId],
        *,
        accept_lost_hard_state: bool = False,
    ) -> FileLog:
        """Open a group's log, and repair it when it is damaged; `others` are the group's other members.

        `accept_lost_hard_state`: the only voter of a group has nobody whom it could contradict.
        Raises what `open_log` raises, and RepairPendingError: call again after a while.
        """
        key = identity.group_id, identity.incarnation
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
        return await self._sound(log, others)

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

    def forget(self, group_id: GroupId) -> None:
        """The group is deleted: its log waits no longer."""
        for key in [key for key in self._waiting if key[0] == group_id]:
            self._waiting.pop(key).close()
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
        except (StoreCorrupt, StoreMisplaced) as error:
            waiting = self._waiting.pop(key, None)
            if waiting is not None:
                waiting.close()
            raise RepairPendingError(str(error)) from error
        finally:
            if key not in self._waiting:
                self._silence.forget(key)

    async def _repair(self, key: tuple[GroupId, int], log: FileLog, others: Sequence[NodeId]) -> FileLog:
        try:
            checkpoint = log.load_checkpoint()
        except (StoreCorrupt, StoreMisplaced) as error:
            self._waiting.pop(key).close()
            raise OvertakenError(f"{log.place.group}: no checkpoint can be read: {error}") from error
        covered_index = 0 if checkpoint is None else checkpoint.index
        found = _Findings(covered_index=covered_index, frames=dict(log.returned))
        for first, last in log.faulty:
            log_.warning("%s: entries %d to %d are damaged", log.place.group, first, last)
            await self._fetch(log, first, last, others, found)
        overtaken = [index for index in found.overtaken if index > covered_index] + found.thinned
        if overtaken:
            self._waiting.pop(key).close()
            raise OvertakenError(f"{log.place.group}: damaged entries {overtaken} are not to be had any more")
        if found.lost:
            await _salvage(log, others)
            log_.error("%s: entries %s are damaged on every member and lost", log.place.group, found.lost)
            self._lost += len(found.lost)
        if found.frames.keys() > log.returned.keys() or any(item.head_damaged for item in log.damaged):
            self._repaired += len(found.frames) - len(log.returned)
            frames = found.frames | _stand_ins(log, found)
            del self._waiting[key]
            log = self._waiting[key] = await run_blocking(partial(mend, log, frames))
            log_.info("%s: damaged entries are repaired: %s", log.place.group, sorted(found.frames))
            await _salvage(log, others)
        if settled := found.settled(log.faulty):
            log.give_up(settled, found.frames)
        if log.faulty:
            raise RepairPendingError(f"{log.place.group}: damaged entries wait for another member: {log.faulty}")
        return self._waiting.pop(key)

    # Asking.

    async def _fetch(self, log: FileLog, first: int, last: int, others: Sequence[NodeId], findings: _Findings) -> None:
        """Find out about the entries of a faulty range."""
        frames = findings.frames
        index = first
        while index <= last:
            denied, is_overtaken, is_thinned, found = 0, False, False, None
            for node in others:
                answer = await self._ask(node, log, index, last)
                found = None if answer is None else _matching(log, index, last, answer, frames)
                if found:
                    frames.update(found)
                    index += len(found)
                    break
                if answer is not None and not answer.frames:
                    denied += 1
                    is_overtaken = is_overtaken or index < answer.first_index
                    is_thinned = is_thinned or answer.is_thinned
                elif answer is not None and _is_overruled(log, index, last, answer):
                    denied, is_overtaken = len(others), True
                    break
            if not found:
                is_gone = is_overtaken and not is_thinned and index <= findings.covered_index
                if denied < len(others) and not is_gone:
                    log_.warning("%s: entry %d is not to be had now", log.place.group, index)
                elif is_thinned:
                    findings.thinned.append(index)
                else:
                    (findings.overtaken if is_overtaken else findings.lost).append(index)
                index += 1

    async def _ask(self, node: NodeId, log: FileLog, first: int, last: int) -> _Answer | None:
        """What the node has; None when it does not say."""
        assert self._links is not None
        identity = log.identity
        key = identity.group_id, identity.incarnation
        payload = bytes(msgpack.packb((*key, first, last)))
        try:
            packed = await self._links.call(node, METHOD, payload, timeout_s=CALL_TIMEOUT_S, bulk=True)
            answer = _decode_answer(packed, first=first, last=last, incarnation=identity.incarnation)
        except (PeerUnavailableError, CallTimeoutError, RemoteCallError, RemoteProtocolError) as error:
            log_.info("%s: %s did not give entry %d: %s", log.place.group, node, first, error)
            answer = None
        self._silence.note(key, node, answers=answer is not None)
        return answer

    def _on_word(self, sender: NodeId, group_id: GroupId, incarnation: int) -> None:
        """A member says something about a group that this node may wait for: it has its log open by now."""
        if self._silence.ends((group_id, incarnation), sender):
            for callback in self.on_heard:
                callback(group_id)

    # Serving.

    async def _serve(self, sender: NodeId, payload: bytes) -> bytes:
        """Frames of a log of this node, from its group or waiting itself. Raises RemoteCallError."""
        await trio.lowlevel.checkpoint()
        group_id, incarnation, first, last = _decode_request(payload)
        self._on_word(sender, group_id, incarnation)
        group = self._manager.groups.get(group_id)
        log: GroupLog | None
        if group is not None and group.incarnation == incarnation:
            log, commit_index = group.log, group.commit_index
        else:
            log = self._waiting.get((group_id, incarnation))
            if log is None:
                raise RemoteCallError(f"{group_id} is not open here")
            commit_index = log.statistics().checkpoint_index
        answer = _answer(log, first, last, commit_index)
        self._served += len(answer[0])
        return bytes(msgpack.packb(answer))


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


def _stand_ins(log: FileLog, found: _Findings) -> dict[int, bytes]:
    """What stands for the lost entries above the checkpoint: the same on every member that has lost them."""
    frames: dict[int, bytes] = {}
    for index in sorted(found.lost):
        if index > found.covered_index:
            before = found.frames.get(index - 1) or frames.get(index - 1)
            frames[index] = log.substitute(index, after=before)
    return frames


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


def _answer(
    log: GroupLog, first: int, last: int, commit_index: int
) -> tuple[list[bytes], int | None, int | None, int, int, bool]:
    """What this node says about a range of a log."""
    frames = _frames(log, first, last)
    terms = log.term_at(first - 1), log.term_at(first + len(frames))
    return frames, *terms, commit_index, log.first_index, not frames and log.is_compacted(first)


def _frames(log: GroupLog, first: int, last: int) -> list[bytes]:
    """The frames from `first` on that can be read; none when that one cannot. What stands for a lost one is none."""
    found: list[bytes] = []
    size = 0
    try:
        for _, entry in log.frames(first, min(last, log.last_index)):
            size += len(entry.frame)
            if entry.index != first + len(found) or (found and size > ANSWER_BYTES_MAX):
                break
            if stands_in(entry.frame) or log.is_compacted(entry.index):
                break
            found.append(entry.frame)
    except StoreCorrupt as error:
        log_.warning("asked for entries %d to %d: %s", first, last, error)
    return found


def _matching(
    log: FileLog, first: int, last: int, answer: _Answer, frames: dict[int, bytes]
) -> dict[int, bytes] | None:
    """The frames of an answer if they are those that this log has lost, else None."""
    if not answer.frames:
        return None
    before = parse_header(frames[first - 1]).term if first - 1 in frames else log.term_at(first - 1)
    if before is not None and answer.term_before is not None and answer.term_before != before:
        return None  # either may not know, behind a hole: then only what is committed is taken, below
    if _has_other_future(log, first, last, answer):
        return None  # what follows here was never committed: only its leader can say so
    behind = first + len(answer.frames)
    is_committed = answer.commit_index >= behind - 1
    behind_term = log.term_at(behind) if last < behind <= log.last_index else None
    is_same = behind_term is not None and answer.term_after == behind_term
    is_sent_again = before is not None and before == answer.term_before and _is_of_leader(log, last, answer)
    return dict(enumerate(answer.frames, first)) if is_committed or is_same or is_sent_again else None


def _is_of_leader(log: FileLog, last: int, answer: _Answer) -> bool:
    """Whether the entries of an answer, which fit to what is before them, are from the leader of this member's term.

    An entry of a term is made by that term's leader, and whoever has it has what its leader has before it. This member
    has promised nothing to a later leader, so it would take the entries from this one, whatever it had in their place:
    that is the same, or was never committed. Not where something sound follows, which then might have to go.
    """
    return last >= log.last_index and parse_header(answer.frames[-1]).term == log.hard_state.term


def _has_other_future(log: FileLog, first: int, last: int, answer: _Answer) -> bool:
    """Whether what follows the faulty entries here cannot follow those of the answer: terms never go back."""
    behind = first + len(answer.frames)
    behind_term = log.term_at(behind) if last < behind <= log.last_index else None
    return behind_term is not None and parse_header(answer.frames[-1]).term > behind_term


def _is_overruled(log: FileLog, first: int, last: int, answer: _Answer) -> bool:
    """Whether the answer proves that what follows the faulty entries here was never committed, and never will be."""
    is_committed = answer.commit_index >= first + len(answer.frames) - 1
    return is_committed and _has_other_future(log, first, last, answer)


def _decode_request(payload: bytes) -> tuple[GroupId, int, int, int]:
    """Raises RemoteCallError, which goes to the node that asked."""
    try:
        group_id, *numbers = msgpack.unpackb(payload, raw=False)
        incarnation, first, last = numbers
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteCallError("no repair request") from error
    is_right = isinstance(group_id, str) and all(isinstance(number, int) and number >= 0 for number in numbers)
    if not is_right or not 0 < first <= last < 1 << 63:
        raise RemoteCallError("no repair request")
    return GroupId(group_id), incarnation, first, last


def _decode_answer(data: bytes, *, first: int, last: int, incarnation: int) -> _Answer:
    """Only frames that hold and are the entries asked for, in order. Raises RemoteProtocolError."""
    try:
        answer: Any = msgpack.unpackb(data)
        frames, term_before, term_after, commit_index, first_index, is_thinned = answer
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError("no repair answer") from error
    if not isinstance(frames, list) or len(frames) > last - first + 1:
        raise RemoteProtocolError("no repair answer")
    if not isinstance(commit_index, int) or not isinstance(first_index, int) or not isinstance(is_thinned, bool):
        raise RemoteProtocolError("no repair answer")
    term = 0
    for index, frame in enumerate(frames, first):
        if not isinstance(frame, bytes) or not verify(frame):
            raise RemoteProtocolError(f"entry {index}: a damaged frame")
        header = parse_header(frame)
        stated = (header.length, header.log_index, header.incarnation)
        if stated != (len(frame), index, incarnation) or header.term < term:
            raise RemoteProtocolError(f"entry {index}: another entry's frame")
        term = header.term
    return _Answer(
        frames=tuple(frames),
        term_before=term_before,
        term_after=term_after,
        commit_index=commit_index,
        first_index=first_index,
        is_thinned=is_thinned,
    )
