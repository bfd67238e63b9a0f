"""The logs of this node's replicas, from the first opening to the end: of streams and of the meta group alike.

    open -> repair -> admit -> begin       `open`: a log over which the group can be started
    another log for a group that runs      `swap`: what was fetched, or what is on the device
    give up                                in `open`: what is of no use is set aside, never deleted, after an admission

Who wants a replica says so with a `Wish`: what it knows, and what has to be asked again after each wait (rule 37).

A log that is here and known to the ledger is opened at once; where it has lost something, others are asked for it. One
that no node remembers is begun with its founding members if this node was never counted on; else its group's
leader has to admit this node (raft/recovery/joining.py). That is so for a node that came later, for one whose disk was
wiped, and for one that has lost its promises or more of its log than can be recovered: what is left is set aside
first (decision 34).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.raft.recovery.joining import until_durable
from jetraft.raft.recovery.repair import OvertakenError
from jetraft.raft.replay import known_members
from jetraft.store.frames.format import Identity
from jetraft.store.ledger import ledger_records
from jetraft.store.model.events import REPLICA_SET_ASIDE
from jetraft.store.port import HardStateLost, StoreCorrupt, StoreMisplaced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from jetraft.raft.recovery.joining import MemberAdmission
    from jetraft.raft.recovery.repair import Repairs
    from jetraft.raft.recovery.swap import Swap
    from jetraft.store.blocks.cache import BlockCache
    from jetraft.store.ledger.ledger_records import GroupKey
    from jetraft.store.ledger.node_dir import NodeDir
    from jetraft.store.log.file_log import FileLog
    from jetraft.store.model.ids import NodeId
    from jetraft.store.port import GroupLog

OF_NO_USE: Final = (HardStateLost, OvertakenError, StoreCorrupt, StoreMisplaced)  # what an admission gets over


@attrs.frozen(kw_only=True)
class Wish:
    """A replica that should run here. All that may change while a log is opened is a question, asked when it counts."""

    key: GroupKey
    is_alone: Callable[[], bool]  # whether it is certain that no other node holds the group
    others: Callable[[FileLog], Sequence[NodeId]]  # who may have what this log has lost; may raise StoreError
    may_be_known: Callable[[], bool]  # whether the group may count on a self of this node that it does not remember
    require_current: Callable[[], None]  # raises StoreError while what is wished for may be of the past
    admit: Callable[[], Awaitable[MemberAdmission]]  # asks the group's leader; raises JoinPendingError
    may_lose: Callable[[], bool]  # whether it may go on without entries that no member has


@attrs.define(eq=False)
class ReplicaLogs:
    """See the module."""

    node_dir: NodeDir
    cache: BlockCache
    repairs: Repairs

    async def open(self, wish: Wish) -> GroupLog:
        """Return the group's log, sound and begun; everything in it that others may count on is durable.

        Raises RepairPendingError or JoinPendingError: other members have to be asked again; StoreError, OSError.
        """
        try:
            return await self._open(wish)
        except OF_NO_USE as error:
            wish.require_current()
            if wish.is_alone():
                if self.node_dir.ledger.state(wish.key) is None:  # nor may the next start take it for a new one
                    await self.node_dir.ledger.commit(ledger_records.forgotten(wish.key))
                raise type(error)(f"{error}; restore the stream or the store from a backup, or delete it") from error
            return await self.begin_again(wish, error)

    async def begin_again(self, wish: Wish, reason: object) -> GroupLog:
        """Give the log up and become a learner of the group, as if the disk were new.

        Until the group's leader agrees everything stays as it is (JoinPendingError). A crash between moving the log out
        of the way and writing that down leaves a group whose files are missing: it comes here again, and never votes.
        """
        admission = await wish.admit()
        REPLICA_SET_ASIDE.log(group=wish.key[0], error=str(reason))
        await self.node_dir.set_aside(*wish.key)
        log = await self._opened(wish.key, (), accept_lost_hard_state=True)
        admission.begin(log)
        await until_durable(log)
        return log

    async def be_admitted(self, wish: Wish, log: GroupLog) -> None:
        """Begin a log as the group's leader says. Durable when this returns: from then on this node has a memory."""
        admission = await wish.admit()
        admission.begin(log)
        await until_durable(log)

    async def swap(self, swap: Swap, *, stop: Callable[[], None]) -> GroupLog:
        """End a replica with `stop`, and return the log over which it is started again; `swap` was checked just now.

        Raises StoreError or OSError when there is none: the old one is closed then, and what is on disk can be opened.
        """
        old = swap.group.log
        stop()
        try:
            return await swap.carry_out()
        except BaseException:
            self.close(old, (swap.group.group_id, swap.group.incarnation))
            raise

    def close(self, log: GroupLog, key: GroupKey) -> None:
        """Give a log's files back. After a failed write its next opening reads from the device."""
        if log.failed is not None:
            self.repairs.distrust(key)
        log.close()

    def is_known(self, key: GroupKey) -> bool:
        """Whether this node holds something of the group, or should."""
        return self.node_dir.ledger.state(key) is not None or self.node_dir.group(*key).exists()

    def is_forgotten(self, key: GroupKey) -> bool:
        """Whether the ledger says that the group may count on a self of this node that is gone."""
        state = self.node_dir.ledger.state(key)
        return state is not None and state.is_noted

    # Inside.

    async def _open(self, wish: Wish) -> GroupLog:
        if not self.is_known(wish.key):
            wish.require_current()
        log = await self._opened(
            wish.key, wish.others, accept_lost_hard_state=wish.is_alone(), may_lose=wish.may_lose()
        )
        try:
            _check_losses(log, wish)
            if log.load_checkpoint() is None:
                await self._begin(wish, log)
        except BaseException:
            self.close(log, wish.key)
            raise
        return log

    async def _opened(
        self,
        key: GroupKey,
        others: Sequence[NodeId] | Callable[[FileLog], Sequence[NodeId]],
        *,
        accept_lost_hard_state: bool,
        may_lose: bool = True,
    ) -> FileLog:
        identity = Identity(node_id=self.node_dir.node_id, group_id=key[0], incarnation=key[1])
        return await self.repairs.open(
            self.node_dir.ledger,
            self.node_dir.group(*key),
            identity,
            self.cache,
            others,
            accept_lost_hard_state=accept_lost_hard_state,
            may_lose=may_lose,
        )

    async def _begin(self, wish: Wish, log: GroupLog) -> None:
        """There is no checkpoint: the log is new, or its first batch was cut short, or its checkpoints are gone."""
        wish.require_current()
        if wish.is_alone() and log.last_index and not log.boundary[0]:
            return  # the only member has all its entries: who the members are is among them
        must_ask = wish.may_be_known()
        # The log of an admitted member begins with a checkpoint, as does a trimmed one: without it, it is gone.
        if log.boundary[0] or (must_ask and log.last_index):
            raise StoreCorrupt(f"{wish.key[0]}: the checkpoints are gone")
        if must_ask:
            await self.be_admitted(wish, log)


def _check_losses(log: FileLog, wish: Wish) -> None:
    if log.lost and not wish.may_lose():
        raise StoreCorrupt(f"{log.place.group}: entries {log.lost} are damaged, and no other member has them")


def members_of(log: FileLog, believed: Iterable[NodeId], *, if_unnamed: Iterable[NodeId] = ()) -> set[NodeId]:
    """Nodes that may have what a log has lost: members by its own newest configuration, and those believed to be some.

    `if_unnamed` count when the log names none. The log is read only if it has lost something.
    """
    named = known_members(log) if log.damaged_blocks or not has_checkpoints(log) else ()
    return {*believed, *(named or if_unnamed)}


def has_checkpoints(log: GroupLog) -> bool:
    """Whether the log's checkpoint can be read, if it has any."""
    try:
        log.load_checkpoint()
    except (StoreCorrupt, StoreMisplaced):
        return False
    return True
