"""Gives back the disk space of messages that are gone inside blocks, without a pause (store/log/compaction.py).

One task looks at the replicas of this node in turn: it plans for blocks of which little lives, and carries plans out
whose time has come: when both checkpoints of the log are behind them. Where nothing else brings that about, because a
stream rests, it takes checkpoints earlier, lets the log begin a new block, and a leader adds an entry that does nothing
so that the second checkpoint can follow.
A block in which a message was erased is rewritten whatever else lives in it: the subject is left, which a replay from a
checkpoint of before needs, and no checkpoint of after. A log that has been rewritten for this
rests before the next time, whatever is erased meanwhile: a delete may not cost a block of megabytes each time.
Replicas do this on their own, each for its own files; no entry says so, and state does not depend on it.

While the disk is nearly full nothing is waited for: messages are refused until there is room. A replica in which
nothing has changed since nothing was found to be done is not looked at.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

import attrs
import trio

from jetraft.raft.engine.port import Proposal
from jetraft.store.disk.io import run_blocking, sync_directory
from jetraft.store.frames.format import Kind
from jetraft.store.log.compaction import Compacted, Plan, Source, compact, discard, is_worthwhile
from jetraft.store.log.file_log import FileLog
from jetraft.store.model.clock import NS_PER_S, rest_s
from jetraft.store.model.config import StoreCompression
from jetraft.store.port import StoreCorrupt, StoreRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group
    from jetraft.store.model.clock import Clock
    from jetraft.store.stream.stream_store import StreamStore

log_ = logging.getLogger(__name__)

LOOK_S: Final = 2.0  # and longer with many replicas in which nothing happens: see rest_s
SLICE: Final = 200  # replicas that are looked at in one turn: under a millisecond
HURRIED_LOOK_S: Final = 0.2  # while the disk is nearly full: giving back what was purged takes four looks
PATIENCE_NS: Final = 10 * NS_PER_S  # how long a plan waits for the checkpoints that come by themselves
HURRIED_PATIENCE_NS: Final = NS_PER_S // 10  # at first, and twice as long each time: each entry takes room too
FAILED_REST_NS: Final = 60 * NS_PER_S  # before a block is planned for again whose rewriting failed
ERASED_REST_NS: Final = 300 * NS_PER_S  # between rewrites of a log for what was erased: the subject of a late one stays
COURTESIES: Final = 3  # another replica is behind by two checkpoints and the rest of its patience at most
PLANS_MAX: Final = 4  # per log, of blocks that are to be rewritten: each holds 8 bytes for a live message
BYTES_PER_S_MAX: Final = 32 << 20  # of blocks read, as the scrub: publishers must not notice
GONE_PERCENT_MIN: Final = 25  # of a block's messages, before it is looked at closely


class CompactedReplica(Protocol):
    """The used part of a StreamReplica."""

    machine: StreamMachine

    @property
    def group(self) -> Group:
        """Its Raft group."""
        ...

    @property
    def is_leader(self) -> bool:
        """True when it leads."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class CompactorStatistics:
    """A snapshot of the figures."""

    blocks_rewritten: int
    blocks_dropped: int
    bytes_gained: int
    plans_waiting: int
    replicas_looked_at: int  # so far, again and again


@attrs.define(eq=False)
class _Work:
    """The compactor's knowledge of one log."""

    plans: list[Plan] = attrs.Factory(list)
    examined: dict[int, int] = attrs.Factory(dict)  # block -> its live messages when it was looked at
    waiting_since_ns: int | None = None
    patience_ns: int = HURRIED_PATIENCE_NS  # while the disk is nearly full
    put_off: dict[int, int] = attrs.Factory(dict)  # block -> when it may be planned for again
    to_erase: frozenset[int] = frozenset()  # blocks to plan for because of what was erased in them, now
    erases_from_ns: int = 0  # when the next ones may be named
    proposed: int = 0  # entries that do nothing, since then
    last_index: int = 0  # of the log, when it was looked at
    courtesies: int = 0  # entries that do nothing still to come, for replicas that wait longer than this one


class Compactor:
    """See the module. `replicas` gives those of this node; `is_short` says that the disk is nearly full."""

    def __init__(
        self,
        *,
        clock: Clock,
        replicas: Callable[[], Sequence[CompactedReplica]],
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._replicas = replicas
        self._is_short = is_short
        self._hurried = trio.Event()
        self._looked = 0
        self._work: WeakKeyDictionary[FileLog, _Work] = WeakKeyDictionary()
        self._idle: WeakKeyDictionary[FileLog, tuple[int, ...]] = WeakKeyDictionary()  # all that has happened to it
        self._rewritten = self._dropped = self._gained = 0

    async def run(self) -> None:
        """Look after the replicas until cancelled."""
        while True:
            looked, took_ns, began_ns = self._looked, 0, self._clock.mono_ns()
            for number, replica in enumerate(self._replicas()):
                await self.look_after(replica)
                if number % SLICE == SLICE - 1:  # those in which nothing has happened do not give way
                    took_ns += self._clock.mono_ns() - began_ns
                    await trio.lowlevel.checkpoint()
                    began_ns = self._clock.mono_ns()
            took_ns += self._clock.mono_ns() - began_ns
            if self._is_short():
                await trio.sleep(HURRIED_LOOK_S)
                continue
            with trio.move_on_after(rest_s(LOOK_S, took_ns) if self._looked == looked else LOOK_S):
                await self._hurried.wait()
            self._hurried = trio.Event()

    def compact_now(self) -> None:
        """The disk is nearly full: look now."""
        self._hurried.set()

    def statistics(self) -> CompactorStatistics:
        """Figures for monitoring and tests."""
        return CompactorStatistics(
            blocks_rewritten=self._rewritten,
            blocks_dropped=self._dropped,
            bytes_gained=self._gained,
            plans_waiting=sum(len(work.plans) for work in self._work.values()),
            replicas_looked_at=self._looked,
        )

    async def look_after(self, replica: CompactedReplica) -> None:
        """Plan for one replica, and carry out what may be carried out now."""
        log = replica.group.log
        if not isinstance(log, FileLog) or replica.group.failed is not None or log.failed is not None:
            return
        happened = (log.token(), log.durable_token, replica.group.applied_index, log.checkpoint_floor)
        if self._idle.get(log) == happened:
            return
        self._idle.pop(log, None)
        work = self._work.setdefault(log, _Work())
        self._looked += 1
        self._examine(replica, log, work)
        ready = [plan for plan in work.plans if plan.index <= log.checkpoint_floor]
        work.plans = [plan for plan in work.plans if plan.index > log.checkpoint_floor]
        self._drop(replica.group, log, work, ready)
        for plan in ready:
            if not plan.is_dead:
                await self._rewrite(replica, log, work, plan)
        if log.failed is not None:
            return
        rests_after_erasures = bool(log.upkeep.erased_in) or self._clock.mono_ns() < work.erases_from_ns
        if not self._hasten(replica, log, work) and not work.put_off and not rests_after_erasures:
            self._idle[log] = happened
            if not work.examined:
                del self._work[log]  # a node has many streams in which nothing is ever gone
        await trio.lowlevel.checkpoint()

    def _examine(self, replica: CompactedReplica, log: FileLog, work: _Work) -> None:
        """Plan for the blocks in which something has gone since they were last looked at."""
        store, index, now_ns = replica.machine.store, replica.group.applied_index, self._clock.mono_ns()
        for block in [block for block, due_ns in work.put_off.items() if now_ns >= due_ns]:
            del work.put_off[block]
            work.examined.pop(block, None)
        planned = {plan.block for plan in work.plans}
        room = PLANS_MAX - sum(not plan.is_dead for plan in work.plans)
        compresses = _compresses(replica.machine)
        if log.upkeep.erased_in and now_ns >= work.erases_from_ns:
            work.to_erase, work.erases_from_ns = log.upkeep.erased_in, now_ns + ERASED_REST_NS
        fill = store.block_fill()
        work.examined = {block: work.examined[block] for block, _, _ in fill if block in work.examined}
        for block, spanned, living in fill:
            must_go = block in work.to_erase
            has_changed = must_go or work.examined.get(block) != living
            is_new = has_changed and block not in planned and block not in work.put_off
            much_is_gone = (spanned - living) * 100 >= spanned * GONE_PERCENT_MIN
            if not is_new or (room <= 0 and living) or not (much_is_gone or compresses or must_go):
                continue
            source = log.upkeep.compaction_source(block, index)
            if source is None:
                continue
            work.examined[block] = living
            work.to_erase -= {block}
            live = store.live_in(block)
            is_to_be_packed = compresses and source.indexes is None
            if not living or is_to_be_packed or must_go or is_worthwhile(source.used, live.message_bytes):
                work.plans.append(Plan(block=block, index=index, live=live, erasures=log.upkeep.erasures_in(block)))
                room -= bool(living)

    def _drop(self, group: Group, log: FileLog, work: _Work, ready: Sequence[Plan]) -> None:
        """Drop the blocks in which nothing lives."""
        dead = [plan for plan in ready if plan.is_dead]
        if dead:
            before = log.statistics().bytes_used
            index = max(plan.index for plan in dead)
            dropped = group.change_blocks(lambda: log.upkeep.drop_dead([plan.block for plan in dead], index))
            self._dropped += dropped
            if not dropped:
                self._put_off(work, dead)
            self._gained += before - log.statistics().bytes_used

    async def _rewrite(self, replica: CompactedReplica, log: FileLog, work: _Work, plan: Plan) -> None:
        group, source = replica.group, log.upkeep.compaction_source(plan.block, plan.index)
        if source is None:
            return
        compressed = _compresses(replica.machine)
        try:
            compacted = await run_blocking(partial(compact, log.place, source, plan.live, compressed=compressed))
            is_done = await self._exchange(group, log, compacted, plan)
        except StoreCorrupt as error:
            group.distrust(error)
            return
        except (StoreRefused, OSError) as error:
            log_.warning("%s: a block was not compacted: %s", source.path, error)
            is_done = False
        if not is_done:
            self._put_off(work, [plan])
            await self._discard(log, source)
        if not self._is_short():
            await trio.sleep(source.used / BYTES_PER_S_MAX)

    async def _exchange(self, group: Group, log: FileLog, compacted: Compacted, plan: Plan) -> bool:
        """Put the new file in place; False when the block has changed meanwhile or is being fetched."""
        if not group.change_blocks(lambda: log.upkeep.exchange(compacted)):
            return False
        self._rewritten += 1
        self._gained += compacted.bytes_gained
        try:
            await run_blocking(partial(sync_directory, log.place.disk, compacted.source.path.parent))
        except OSError as error:
            log.upkeep.directory_sync_failed(error)
        else:  # before, a power cut may bring the old file back, and the ledger must know what is in it
            log.upkeep.forget_erasures(plan.block, plan.erasures)
        return True

    def _put_off(self, work: _Work, plans: Sequence[Plan]) -> None:
        """These could not be carried out: plan for their blocks again after a while, as they are then."""
        work.put_off.update(dict.fromkeys((plan.block for plan in plans), self._clock.mono_ns() + FAILED_REST_NS))
        work.to_erase |= {plan.block for plan in plans if plan.erasures}

    @staticmethod
    async def _discard(log: FileLog, source: Source) -> None:
        """Remove what was written of a block's new file; what cannot be removed goes when the log is opened again."""
        try:
            await run_blocking(partial(discard, log.place.disk, source.path))
        except OSError as error:
            log_.warning("%s: an unfinished file stays: %s", source.path, error)

    def _hasten(self, replica: CompactedReplica, log: FileLog, work: _Work) -> bool:
        """Bring about the checkpoints that plans wait for, when they do not come by themselves.

        Returns whether there is anything to wait for.
        """
        now_ns, group, store = self._clock.mono_ns(), replica.group, replica.machine.store
        rests = group.log.last_index == work.last_index == group.applied_index
        if group.log.last_index - work.last_index > work.proposed:  # something came that may wait for this
            work.patience_ns = HURRIED_PATIENCE_NS
        work.last_index, work.proposed = group.log.last_index, 0
        first_live_seq = replica.machine.first_live_seq
        has_droppable = log.upkeep.has_droppable(first_live_seq)
        should_roll = rests and self._should_roll(log, store, work)
        waits = bool(work.plans) or has_droppable or should_roll
        if waits and len(group.members) > 1:
            work.courtesies = COURTESIES
        if not waits and not work.courtesies:
            work.waiting_since_ns = None
        elif work.waiting_since_ns is None:
            work.waiting_since_ns = now_ns
        elif now_ns - work.waiting_since_ns >= (work.patience_ns if self._is_short() else PATIENCE_NS):
            work.waiting_since_ns = now_ns
            work.patience_ns = min(2 * work.patience_ns, PATIENCE_NS)
            work.courtesies -= not waits
            if should_roll:
                group.change_blocks(log.roll_early)
            if waits and group.applied_index > log.statistics().checkpoint_index:
                group.checkpoint()
            if replica.is_leader and rests and group.applied_index == group.log.last_index:
                from jetraft.cluster.state import commands  # noqa: PLC0415  a server without streams needs none

                nothing = commands.Remove(seqs=commands.to_runs(()), erase=False)
                work.proposed = 1
                group.propose(Proposal(kind=Kind.STREAM_OP, body=commands.encode_stream_command(nothing)))
        return waits or work.courtesies > 0 or not rests

    @staticmethod
    def _should_roll(log: FileLog, store: StreamStore, work: _Work) -> bool:
        """Whether the block that grows should end before it is full: little lives in it, or something was erased."""
        number, used = log.growing
        if number is None:
            return False
        return number in work.to_erase or is_worthwhile(used, store.live_in(number).message_bytes)


def _compresses(machine: StreamMachine) -> bool:
    """Whether the stream asks for compression: its blocks are then rewritten once, whatever lives in them."""
    return machine.config is not None and machine.config.compression is not StoreCompression.NONE
